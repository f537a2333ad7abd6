"""The generic template: any workload, any layouts, any knobs, both vector widths."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.codegen import emit
from autotune.codegen.kernel import build_kernel
from autotune.lower import lower, print_program
from autotune.ops import parse_workload
from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode
from autotune.runtime.function import KernelFunction
from autotune.search_spaces import Config, Interface, lookup, make_schedule
from autotune.search_spaces.library.nests import Options
from autotune.search_spaces.operators.generic import generic_schedule, options_of
from autotune.target import Target
from autotune.tensor.layout import Layout
from tests.search_spaces.generic_cases import random_interface, random_workload
from tests.search_spaces.matmul_cases import wrong
from tests.targets import fixed

TARGETS = ("native -num-cores=2", "x86 -mcpu=haswell -num-cores=2")
BLOCKED = Layout.blocked(4, [(1, 16)])
HALO = BLOCKED.with_halo(((0, 0), (0, 0), (1, 1), (1, 1)))
ROWS = Layout.row_major(4)
ROW_OPERATORS: dict[str, tuple[int, dict[str, float]]] = {  # number of weights, attributes besides the axis
    "softmax": (0, {}), "log_softmax": (0, {}), "lp_norm": (0, {"p": 2}),
    "layer_norm": (2, {"epsilon": 1e-5, "result": 0}), "rms_norm": (1, {"epsilon": 1e-5}),
}  # fmt: skip


def check(workload: Workload, config: Config, target: Target, interface: Interface | None) -> None:
    schedule = generic_schedule(workload, target, options_of(config), interface)
    failure = wrong(workload, schedule, target)
    assert failure is None, f"{workload.to_json()} {config.to_json()} {interface and interface.to_json()}: {failure}"


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_workloads_layouts_and_knobs(seed: int) -> None:
    rng = random.Random(seed)
    workload, target = random_workload(rng), Target.parse(rng.choice(TARGETS))
    space = lookup("generic").space(workload, target)
    check(workload, space.sample(rng), target, random_interface(workload, rng))


def test_points_to_sample_are_looked_up_only_where_there_are_some() -> None:
    """Rows in pieces that overhang the image, whose sums skip what the place that was looked up does not weigh."""
    workload = parse_workload("grid_sample data=2,1,8,3 grid=2,3,11,2 mode=cubic")
    target = Target.parse("x86 -mcpu=haswell -num-cores=2")
    config = Config.of(grain=16, half=False, partials=2, rows=2, unroll=8)
    layout = Layout.blocked(4, [(3, 8)]).with_halo(((0, 0), (1, 2), (0, 0), (0, 0)))
    check(workload, config, target, Interface((layout,) * 3))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("text", "layouts"),
    [
        ("layout data=1,40,9,7", (ROWS, HALO)),
        ("layout data=1,40,9,7", (HALO, ROWS)),
        ("max_pool data=1,32,15,15 kernel=3 stride=2 pad=1", (BLOCKED, HALO)),
        ("avg_pool data=1,32,9,9 kernel=3 stride=1 pad=1", (HALO, BLOCKED)),
        ("reduce_mean data=1,64,7,7 axes=2,3", (BLOCKED, BLOCKED)),
        ("resize data=1,32,9,8 sizes=1,32,18,16", (BLOCKED, HALO)),
        ("resize data=1,3,9,8 sizes=1,3,18,16 mode=linear", None),
        ("resize data=1,32,9,8 sizes=1,32,5,13 mode=cubic", (HALO, BLOCKED)),
        ("lrn data=1,40,6,5 size=5", (BLOCKED, BLOCKED)),
        ("softmax data=33,1000", None),
        ("argmax data=5,70 axis=1", None),
        ("cumsum data=9,40 axis=0", None),
    ],
)
def test_defaults_of_common_layers(text: str, layouts: tuple[Layout, ...] | None, target: str) -> None:
    workload, chosen = parse_workload(text), Target.parse(target)
    interface = Interface(layouts) if layouts else None
    check(workload, lookup("generic").default(workload, chosen), chosen, interface)


def test_loops_of_more_rounds_than_a_claim_numbers_have_fixed_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit, "MOST_CLAIMED", 1)
    target = Target.parse("native -num-cores=3")
    workload = parse_workload("softmax data=34,100")
    program = lower(
        make_schedule(workload, lookup("generic").default(workload, target).replace(template="generic"), target)
    )
    assert "autotune_claim" not in emit.emit(program, target.vector_bits)
    check(workload, lookup("generic").default(workload, target), target, None)


def loops(text: str, *layouts: Layout, target: str = "x86 -mcpu=haswell -num-cores=2") -> str:
    workload, chosen = parse_workload(text), fixed(target)
    config = lookup("generic").default(workload, chosen).replace(template="generic")
    return print_program(lower(make_schedule(workload, config, chosen, Interface(layouts) if layouts else None)))


def test_softmax_is_one_loop_over_rows() -> None:
    text = loops("softmax data=64,128")
    assert text.count("parallel for") == 1
    assert "barrier" not in text and "shared" not in text
    assert text.count("exp2(") == 1


def test_several_rows_are_folded_before_they_are_used() -> None:
    """So that the fold across lanes of one row overlaps the sums of the next."""
    text = loops("softmax data=12,197,197")
    assert "local softmax_max: f32[1, 4, 1]" in text
    assert "for softmax_max.i1 in 0..4" in text.split("for out0.i1.0 in 0..49")[1].split("softmax_exp.i1")[0]


def test_short_rows_stay_in_registers() -> None:
    text = loops("softmax data=12,128,128", target="x86 -mcpu=x86-64-v4 -num-cores=2")
    assert "register softmax_exp: f32[1, 2, 128]" in text
    assert "local" not in text
    assert text.count("for") == text.count("unroll for") + text.count("vectorize for") + 2  # heads, pairs of rows


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_short_rows_of_any_length(seed: int) -> None:
    rng = random.Random(seed)
    shape, target = (
        (rng.choice((1, 3, 8)), rng.randint(1, 12), rng.choice((rng.randint(1, 330), rng.randint(330, 900)))),
        Target.parse(rng.choice(TARGETS)),
    )
    kind, dtype = rng.choice(tuple(ROW_OPERATORS)), rng.choice(("f32", "f16"))
    weights, attrs = ROW_OPERATORS[kind]
    inputs = [WorkloadInput(TensorType(dtype, shape))]
    inputs += [WorkloadInput(TensorType(dtype, shape[-1:]), True)] * weights
    node = WorkloadNode.make(kind, tuple(range(len(inputs))), axis=-1, **attrs)
    workload = Workload(tuple(inputs), (node,), (len(inputs),))
    config = lookup("generic").space(workload, target).sample(rng)
    check(workload, config, target, random_interface(workload, rng))


def test_a_row_is_resized_along_one_axis_then_along_the_other() -> None:
    resize = "resize data=1,32,32,32 sizes=1,32,64,64 mode=linear"
    assert "local resize_2: f32[1, 1, 1, 32]" in loops(resize)
    assert "resize_2: f32" not in loops(resize, BLOCKED, BLOCKED)  # four loads of whole vectors
    assert "resize_2: f32" in loops(f"{resize[:-6]}cubic", BLOCKED, BLOCKED)


def test_places_from_tables_are_known_in_rows_that_are_written_out() -> None:
    text = loops("resize data=1,32,33,33 sizes=1,32,65,60 mode=linear coordinates=align_corners")
    assert "unroll for out0.i3.0.1 in 0..8" in text


def test_a_scan_down_columns_walks_along_rows() -> None:
    text = loops("cumsum data=64,512 axis=0")
    assert "parallel for out0.i1.0.0 in 0..2" in text
    assert "for out0.i1.0.1 in 0..32" in text.split("for out0.i0 in 1..64")[1]


def test_a_scan_along_rows_takes_as_many_at_once_as_the_cache_holds_apart() -> None:
    assert "unroll for out0.i0.1 in 0..16" in loops("cumsum data=64,1000 axis=1")
    assert "unroll for out0.i0.1 in 0..4" in loops("cumsum data=64,1024 axis=1")


def test_rows_abreast_share_the_vectors_of_weights() -> None:
    text = _normalised(128, 768)
    assert "unroll for out0.i0.1 in 0..4" in text.split("for out0.i1.0.0 in")[1]
    assert "out0.i0.1" not in _normalised(128, 1024)  # rows that lie 4 KiB apart push each other out
    assert "parallel for out0.i0.0 in 49..50" in _normalised(197, 768)  # the last row, alone


@pytest.mark.parametrize("text", ["layer_norm data=4,4 scale=4 bias=4", "rms_norm data=5,7 scale=7"])
@pytest.mark.parametrize("target", TARGETS)
def test_rows_too_short_for_vectors_are_computed_in_turns(text: str, target: str) -> None:
    workload, on = parse_workload(text), Target.parse(target)
    check(workload, lookup("generic").default(workload, on), on, None)


def _normalised(rows: int, columns: int) -> str:
    weight = WorkloadInput(TensorType("f32", (columns,)), True)
    node = WorkloadNode.make("layer_norm", (0, 1, 2), axis=-1, epsilon=1e-5, result=0)
    workload = Workload((WorkloadInput(TensorType("f32", (rows, columns))), weight, weight), (node,), (3,))
    target = fixed("x86 -mcpu=x86-64-v4 -num-cores=2")
    return print_program(lower(generic_schedule(workload, target, Options(), None)))


def test_rows_that_fill_the_cache_are_folded_one_at_a_time() -> None:
    assert "register softmax_max: f32[1, 1]" in loops("softmax data=64,4096")


def test_pooling_tests_for_edges_only_at_edges() -> None:
    text = loops("max_pool data=1,64,57,57 kernel=3 stride=2 pad=1", BLOCKED, BLOCKED)
    interior = text.split("for out0.ow in 1..28")[1].split("unroll for out0.c.1.0.1")[0]
    row, taps = interior.split("unroll for out0.c.kw in 0..3")
    assert row.count("if ") == 1  # one test per row of the window, none per tap
    assert "max= in0[" in taps and "if " not in taps


def test_sums_of_rows_that_do_not_fill_vectors_stay_in_registers() -> None:
    """The tile of sums is whole vectors: stores into it need no mask, which would keep it in memory."""
    text = loops("max_pool data=1,4,28,28 kernel=3 stride=1 pad=1")
    assert "register out0.c: f32[1, 1, 1, 32]" in text
    tile = [line.strip() for line in text.splitlines() if "out0.c[" in line and "=" in line and "out0[" not in line]
    guarded = [line.strip() for line in text.splitlines() if line.strip().startswith("if")]
    assert len(tile) > len(guarded)


def test_rows_that_do_not_fill_vectors_are_fused() -> None:
    assert "if" not in loops("relu data=1,64,7,7").replace("kernel", "")


@pytest.mark.parametrize("text", ["reduce_max data=40,37 axes=1", "reduce_min data=37,40 axes=0"])
def test_extremes_of_rows_with_nan_are_nan(text: str) -> None:
    workload, target = parse_workload(text), Target.parse("native -num-cores=1")
    schedule = generic_schedule(workload, target, Options(), None)
    x = np.random.default_rng(0).standard_normal(workload.types()[0].shape).astype(np.float32)
    x[tuple(np.arange(37) if extent == 37 else np.full(37, 3) for extent in x.shape)] = np.nan
    with KernelFunction(schedule.compute.inputs, build_kernel(schedule, target), target) as function:
        (got,) = function(x)
    fold, axis = (np.max, 1) if "max" in text else (np.min, 0)
    assert np.array_equal(got.ravel(), fold(x, axis=axis), equal_nan=True)


@pytest.mark.parametrize(
    "text",
    [
        "add a=1,32,96 b=1,32,96 + until end=scalar:i64 axis=1",
        "layer_norm data=1,32,96 scale=96 bias=96 epsilon=1e-5 + until end=scalar:i64 axis=1",
        "softmax data=1,32,96 axis=-1 + until end=scalar:i64 axis=2",
    ],
)
def test_the_end_of_a_run_makes_no_vector_narrower(text: str) -> None:
    """It is a number of 64 bits, and nothing but positions is compared with it."""
    assert set(re.findall(r"vectorize for \S+ in 0\.\.(\d+)", loops(text))) == {"8"}


def test_one_query_reads_rows_of_values_once() -> None:
    """In one pass over as many vectors of sums as half of the registers hold."""
    text = (
        "attention q=1,1,3,64 k=1,3,48,64 v=1,3,48,64 lengths=1:i64 empty_zero=false extras=lengths kv_heads=3 "
        "order=bshd,bhsd,bhsd,bhsd q_heads=3"
    )
    assert "register attention_values: f32[1, 1, 1, 64]" in loops(text)
