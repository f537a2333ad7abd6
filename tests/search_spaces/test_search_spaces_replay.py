"""Stored steps: confirmed by their code, and laid into the layouts that are asked for."""

from __future__ import annotations

import pytest

from autotune.codegen.kernel import generate
from autotune.errors import ConfigError, ScheduleError
from autotune.ops import Workload, parse_workload
from autotune.ops.registry import compute_def
from autotune.schedule import Schedule
from autotune.search_spaces import Interface, default_config, make_schedule, task_space
from autotune.search_spaces.space.replay import Recorded, confirm, in_layouts
from autotune.target import Target
from autotune.tensor.layout import Layout
from tests.search_spaces.conv_cases import check_schedule

TARGET = Target.parse("x86 -mcpu=haswell -num-cores=1")
CONV = parse_workload("conv2d data=1,16,12,12 weight=16,16,3,3 pad=1 + relu")


def ir_hash(schedule: Schedule) -> str:
    return generate(schedule, TARGET).ir_hash


def recorded(workload: Workload, template: str, algorithm: str) -> Recorded:
    config = task_space(workload, TARGET).members[template].default.replace(template=template)
    schedule = make_schedule(workload, config, TARGET)
    return Recorded(schedule.steps_json(), algorithm, ir_hash(schedule))


def test_recorded_comes_back_from_json() -> None:
    stored = Recorded('[["unroll","out0","x"]]', "direct", "abc")
    assert Recorded.from_json(stored.to_json()) == stored
    for text in ("", "[]", '{"steps":"[]"}'):
        with pytest.raises(ConfigError, match="not a recorded schedule"):
            Recorded.from_json(text)


@pytest.mark.parametrize(
    ("template", "algorithm"), [("conv2d.direct", "direct"), ("conv2d.winograd_f4", "winograd_f4")]
)
def test_the_algorithm_is_found_where_nobody_noted_it(template: str, algorithm: str) -> None:
    known = recorded(CONV, template, algorithm)
    assert confirm(CONV, Recorded(known.steps, "", known.ir_hash), ir_hash) == known
    assert confirm(CONV, known, ir_hash) == known


def test_an_elementwise_workload_has_one_algorithm() -> None:
    relu = parse_workload("relu data=64 + exp")
    schedule = make_schedule(relu, default_config(relu, TARGET), TARGET)
    stored = Recorded(schedule.steps_json(), "", ir_hash(schedule))
    assert confirm(relu, stored, ir_hash).algorithm == "direct"


def test_what_gives_other_code_is_refused() -> None:
    known = recorded(CONV, "conv2d.direct", "direct")
    for other, said in (
        (Recorded("[]", "direct", known.ir_hash), "its steps give other code now"),
        (Recorded("[]", "", known.ir_hash), "its steps give other code now|its steps do not replay"),
        (Recorded("{", "direct", known.ir_hash), "its steps do not replay: not a list of schedule steps"),
        (Recorded(known.steps, "direct", ""), "it has no steps or no IR hash"),
    ):
        with pytest.raises(ScheduleError, match=said):
            confirm(CONV, other, ir_hash)


@pytest.mark.parametrize("template", ["conv2d.direct", "conv2d.winograd_f4"])
def test_the_same_steps_in_the_layouts_of_others_are_right(template: str) -> None:
    known = recorded(CONV, template, template.removeprefix("conv2d."))
    stored = known.schedule(CONV)
    own = dict(stored.state.layouts)
    data, weight, out = own["in0"], own["in1"], own["out0"]
    wider = data.with_halo([(0, 0), (0, 0), (3, 3), (2, 4)])
    wide = Interface((wider, weight, out.with_halo([(0, 0), (0, 0), (1, 1), (1, 1)])))
    moved = in_layouts(stored, wide)
    assert dict(moved.state.layouts)["in0"] == wide.layouts[0]
    assert len(moved.steps) == len(stored.steps)
    check_schedule(CONV, moved, TARGET)
    plain = in_layouts(stored, Interface((data, Layout.row_major(4), Layout.row_major(4))))
    assert dict(plain.state.layouts)["in1"] == weight  # constants keep theirs
    assert "out0" not in dict(plain.state.layouts)
    check_schedule(CONV, plain, TARGET)


def test_layouts_may_be_given_to_steps_that_chose_none() -> None:
    relu = parse_workload("relu data=1,16,6,6")
    stored = make_schedule(relu, default_config(relu, TARGET), TARGET)
    blocked = Layout.blocked(4, [(1, 8)])
    assert in_layouts(stored, Interface((Layout.row_major(4),) * 2)) is stored
    moved = in_layouts(Schedule(compute_def(relu)), Interface((blocked, blocked)))
    assert dict(moved.state.layouts) == {"in0": blocked, "out0": blocked}
    check_schedule(relu, moved, TARGET)


def test_an_interface_of_another_kernel_is_refused() -> None:
    stored = Schedule(compute_def(CONV))
    with pytest.raises(ConfigError, match="the interface has 1 layouts, the kernel 3 operands"):
        in_layouts(stored, Interface((Layout.row_major(4),)))
