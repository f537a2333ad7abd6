"""Lines of the cache that tiles touch."""

from __future__ import annotations

import pytest

from autotune.ops import parse_workload
from autotune.search_spaces import lookup
from autotune.search_spaces.sketch.lines import torn
from autotune.search_spaces.sketch.space import SketchSpace
from tests.targets import fixed

FIXED = fixed("x86 -mcpu=x86-64-v4 -num-cores=1")


def space_of(text: str, name: str = "sketch.contraction") -> SketchSpace:
    space = lookup(name).space(parse_workload(text), FIXED)
    assert isinstance(space, SketchSpace)
    return space


def test_vectors_that_begin_anywhere_lie_across_lines() -> None:
    for columns, share in ((64, 0.0), (72, 0.5), (77, 60 / 64)):
        c = space_of(f"matmul a=32,48 b=48,{columns}").numbers.c
        assert torn(c, c.factors[1], 1, 64) == share
        assert torn(c, c.factors[1], 1, 16) == (0.0 if columns < 77 else 12 / 64)


def test_panels_are_never_torn() -> None:
    space = space_of("matmul a=var:32,48 b=var:48,77")
    config = space.default().replace(vector="j", **{"pack.in1": "once"})
    column = space.feature_names.index("torn")
    assert space.encode(config)[column] == 0 < space.encode(config.replace(**{"pack.in1": "no"}))[column]


@pytest.mark.parametrize(("inner", "joined"), [((0, 1), 1.0), ((1, 0), 0.0)])
def test_tiles_go_on_where_the_last_one_ended(inner: tuple[int, int], joined: float) -> None:
    space = space_of("matmul a=var:32,48 b=const:48,256")
    config = space.default().replace(vector="j", lanes=16, tile=(4, 2), inner=inner, **{"block.i": 0, "block.j": 0})
    row = dict(zip(space.feature_names, space.encode(config).tolist()))
    assert (row["written"], row["joined"]) == (1.0, joined)  # 32 floats are two lines
