"""Local response normalisation by rows: blocked, row-major and with halos; channels that do not fill a vector."""

from __future__ import annotations

import pytest

from autotune.ops import parse_workload
from autotune.search_spaces import Config, Interface, make_schedule, templates_for
from autotune.target import Target
from autotune.tensor.layout import Layout
from tests.search_spaces.matmul_cases import wrong

ROW, BLOCK16, BLOCK8 = Layout.row_major(4), Layout.blocked(4, [(1, 16)]), Layout.blocked(4, [(1, 8)])
HALO = BLOCK16.with_halo([(0, 0), (0, 0), (1, 2), (1, 1)])


@pytest.mark.parametrize("target", ["native -num-cores=2", "x86 -mcpu=haswell -num-cores=2"])
@pytest.mark.parametrize("shape", ["1,192,6,5", "2,20,3,4", "1,3,4,4", "1,1,2,3"])
@pytest.mark.parametrize("layouts", [(BLOCK16, BLOCK16), (ROW, ROW), (BLOCK8, ROW), (HALO, HALO)])
def test_lrn(target: str, shape: str, layouts: tuple[Layout, Layout]) -> None:
    parsed = Target.parse(target)
    workload = parse_workload(f"lrn data={shape} size=5 alpha=0.02 + relu")
    assert templates_for(workload, parsed)[0].name == "lrn.rows"
    config = Config.of(template="lrn.rows", lanes=parsed.lanes(4))
    failure = wrong(workload, make_schedule(workload, config, parsed, Interface(layouts)), parsed)
    assert failure is None, str(failure)
