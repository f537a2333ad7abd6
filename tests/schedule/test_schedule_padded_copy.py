"""cache_read with padding (the copy holds the zeros, nobody tests for edges afterwards), and of one read of several."""

from __future__ import annotations

import pytest

from autotune.errors import ScheduleError
from autotune.lower import lower, print_program
from autotune.ops.parse import parse_workload
from autotune.ops.registry import compute_def
from autotune.schedule import Schedule
from autotune.tensor import ComputeDef, compute, placeholder, read, reduce_axis, sum_
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Cast, walk
from tests.conftest import Golden, Right


def conv(text: str = "data=1,5,7,9 weight=6,5,3,3 pad=1,2,0,1 stride=1,2") -> Schedule:
    return Schedule(compute_def(parse_workload(f"conv2d {text}"))).cache_write("out0")


def test_convolution_reads_a_padded_copy(golden: Golden, right: Right) -> None:
    s = conv().cache_read("in0", "out0.c", padded=True)
    rows = s.state.stage("out0").loops[2].name
    s = s.compute_at("out0.c", "out0", rows).compute_at("in0.r", "out0", rows)
    golden(f"{s}\n\n{print_program(lower(s))}")
    right(s)
    assert Schedule.from_json(s.to_json()).key == s.key


@pytest.mark.parametrize("text", ["data=2,3,4,5 weight=4,3,2,2 pad=0,0,1,1", "data=1,2,6,6 weight=2,2,1,1 stride=2",
                                  "data=1,4,5,5 weight=4,1,3,3 pad=2 groups=4 dilation=2"])  # fmt: skip
def test_any_window(text: str, right: Right) -> None:
    s = conv(text).cache_read("in0", "out0.c", padded=True)
    right(s)
    assert "if" not in "".join(line for line in print_program(lower(s)).splitlines() if "out0.c[" in line)


def test_maxima_are_padded_with_the_least(right: Right) -> None:
    s = Schedule(compute_def(parse_workload("max_pool data=1,3,7,7 kernel=3,3 stride=2 pad=1")))
    right(s.cache_read("in0", s.compute.stages[0].name, padded=True))


def test_other_conditions_are_refused() -> None:
    x, mask = placeholder((8,), name="in0"), placeholder((8,), "bool", "in1")
    k = reduce_axis(3, "k")
    masked = compute((8,), lambda i: read(x, (i,), when=mask[i]), name="y")
    with pytest.raises(ScheduleError, match="`in1.i.` is no test for the inside of in0; leave out padded"):
        Schedule(ComputeDef.build([x, mask], [masked])).cache_read("in0", "y", padded=True)
    half = compute(
        (8,), lambda i: sum_(read(x, (i + k.var - 1,), when=(i + k.var >= 1) & (i + k.var < 5)), k), name="y"
    )
    with pytest.raises(ScheduleError, match="is no test for the inside of in0"):
        Schedule(ComputeDef.build([x], [half])).cache_read("in0", "y", padded=True)
    ends = compute((8,), lambda i: read(x, (i - 1,), i >= 1, 0.0) + read(x, (i + 1,), i < 7, 1.0), name="y")
    with pytest.raises(ScheduleError, match="y pads it with different values"):
        Schedule(ComputeDef.build([x], [ends])).cache_read("in0", "y", padded=True)


def test_the_option_is_a_truth() -> None:
    with pytest.raises(ScheduleError, match="padded must be true or false, got 1"):
        conv().then("cache_read", "in0", "out0.c", 1)


def test_a_copy_for_one_read_of_several(right: Right) -> None:
    x, k = placeholder((8, 4), name="in0"), reduce_axis(4, "k")
    y = compute((4, 4), lambda i, j: sum_(x[i, k] * x[j + 4, k], k), name="y")
    s = Schedule(ComputeDef.build([x], [y])).cache_read("in0", "y", only=1)
    assert [r.tensor.name for r in s.state.stage("y").reads()] == ["in0", "in0.r"]
    right(s)
    row = s.state.stage("y").stage.axes[0].name
    s = s.compute_at("in0.r", "y", row)
    assert "local in0.r: f32[4, 4]" in print_program(lower(s))
    right(s)
    with pytest.raises(ScheduleError, match="none number 2"):
        Schedule(s.compute).cache_read("in0", "y", only=2)
    with pytest.raises(ScheduleError, match="leave out only"):
        Schedule(s.compute).cache_read("in0", "y", padded=True, only=0)


@pytest.mark.parametrize("padded", [True, False])
def test_a_copy_in_wider_integers(padded: bool, right: Right) -> None:
    text = "conv2d data=1,5,7,9:u8 weight=6,5,3,3:i8 pad=1,2,0,1 pad_value=9"
    s = Schedule(compute_def(parse_workload(text))).cache_write("out0")
    s = (
        s.cache_read("in0", "out0.c", padded, stored="i16")
        .cache_read("in1", "out0.c", stored="i16")
        .precompute("in1.r")
    )
    (copy,) = s.state.stage("in0.r").stage.outputs
    assert copy.dtype is DType.i16 and "u8" not in str(s.state.stage("out0.c").stage.body[0])
    right(s)
    assert Schedule.from_json(s.to_json()).key == s.key


def test_a_copy_in_wider_floats(right: Right) -> None:
    s = Schedule(compute_def(parse_workload("conv2d data=1,5,7,9:f16 weight=6,5,3,3:f16 pad=1")))
    (total,) = (x.name for x in s.state.stages if x.stage.reducer)
    s = s.cache_read("in0", total, padded=True, stored="f32")
    (copy,) = s.state.stage("in0.r").stage.outputs
    casts = [e for e in walk(s.state.stage(total).stage.body[0]) if isinstance(e, Cast)]
    assert copy.dtype is DType.f32 and len(casts) == 1  # the weight's
    right(s)


@pytest.mark.parametrize(("dtype", "stored"), [("f32", "f16"), ("f16", "bf16"), ("f16", "i32"), ("f32", "f32")])
def test_copies_hold_every_number(dtype: str, stored: str) -> None:
    x = placeholder((8,), dtype, "in0")
    s = Schedule(ComputeDef.build([x], [compute((8,), lambda i: x[i], name="y")]))
    with pytest.raises(ScheduleError, match=f"does not hold every {dtype}"):
        s.cache_read("in0", "y", stored=stored)


def test_what_is_not_widened_is_made_narrow_again(right: Right) -> None:
    x = placeholder((8,), "u8", "in0")
    s = Schedule(ComputeDef.build([x], [compute((8,), lambda i: x[i], name="y")]))
    right(s.cache_read("in0", "y", stored="i32"))


@pytest.mark.parametrize("stored", ["u8", "u32", "f32", "i8", "wide"])
def test_copies_hold_every_element(stored: str) -> None:
    x = placeholder((8,), "u8", "in0")
    s = Schedule(ComputeDef.build([x], [compute((8,), lambda i: x[i], name="y")]))
    with pytest.raises(ScheduleError, match="does not hold every u8|is no type of elements"):
        s.cache_read("in0", "y", stored=stored)
