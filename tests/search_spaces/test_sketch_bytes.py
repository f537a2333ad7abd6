"""Sketches of products of bytes: exact for any sizes, instructions and layouts."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.codegen.jit import assembly
from autotune.codegen.kernel import build_kernel, generate
from autotune.errors import CodegenError, LoweringError
from autotune.lower import lower
from autotune.ops import parse_workload
from autotune.runtime.function import KernelFunction
from autotune.search_spaces import lookup, templates_for
from autotune.search_spaces.sketch.contraction import contraction
from autotune.search_spaces.sketch.instructions import turns
from autotune.search_spaces.sketch.layouts import usual_layouts
from autotune.search_spaces.sketch.space import SketchSpace
from autotune.search_spaces.sketch.tiling import BLOCK, NO, ONCE
from autotune.search_spaces.space.config import Config
from autotune.target import Target
from autotune.tensor.dtype import DType
from tests.search_spaces.bytes_cases import TARGETS, random_bytes
from tests.search_spaces.generic_cases import random_interface
from tests.search_spaces.matmul_cases import wrong
from tests.targets import fixed

VNNI = Target.parse("x86 -mcpu=icelake-server -num-cores=1")


def folding(space: SketchSpace, rng: random.Random) -> Config:
    """A random config, one that folds neighbours where chance finds it."""
    found = [space.sample(rng) for _ in range(6)]
    return next((c for c in found if "dot" in c and c.get_str("dot") != NO), found[0])


def space_of(text: str) -> SketchSpace:
    space = lookup("sketch.contraction").space(parse_workload(text), VNNI)
    assert isinstance(space, SketchSpace)
    return space


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_products_of_bytes(seed: int) -> None:
    rng = random.Random(seed)
    workload, target = random_bytes(rng), Target.parse(rng.choice(TARGETS))
    template = lookup(rng.choice(("sketch.contraction", "sketch.widened")))
    if not target.runs_on_host() or not template.applies(workload, target):
        return
    space = template.space(workload, target)
    assert isinstance(space, SketchSpace)
    config = folding(space, rng)
    interface = random_interface(workload, rng) if rng.random() < 0.2 else None
    where = f"{workload.to_json()} {config.to_json()} {target} {interface and interface.to_json()}"
    try:
        failure = wrong(workload, template.schedule(workload, config, target, interface), target)
    except (CodegenError, LoweringError):  # layouts in which what is folded lies apart, or has no room for zeros
        assert interface is not None, where
        return
    assert failure is None, f"{where}: {failure}"


@pytest.mark.parametrize("types", [("u8", "i8"), ("i8", "i8"), ("u8", "u8")])
@pytest.mark.parametrize("text", TARGETS)
def test_nothing_saturates_on_the_way_to_a_sum(text: str, types: tuple[str, str]) -> None:
    """Of two products of the largest and the smallest bytes, hardly any sum fits into 16 bits."""
    if not (target := Target.parse(text)).runs_on_host():
        pytest.skip("this CPU runs no such code")
    workload = parse_workload(f"matmul a=4,64:{types[0]} b=const:64,32:{types[1]}")
    rows = np.array([[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0], [1, 0, 1, 0]])  # which end of its type a byte is
    kinds = [DType(kind).numpy for kind in types]
    a, b = (np.tile(np.array([np.iinfo(kind).min, np.iinfo(kind).max], kind)[rows], 16) for kind in kinds)
    b = np.tile(b.T, 8)
    for name in ("sketch.contraction", "sketch.widened"):
        template = lookup(name)
        if not template.applies(workload, target):
            continue
        config = template.default(workload, target)
        for dot in template.space(workload, target).knob("dot").values:
            schedule = template.schedule(workload, config.replace(dot=dot), target, None)
            function = KernelFunction(schedule.compute.inputs, build_kernel(schedule, target), target)
            np.testing.assert_array_equal(function(a, b)[0], a.astype(np.int32) @ b.astype(np.int32), f"{name} {dot}")


@pytest.mark.parametrize(
    ("text", "extent"),
    [
        ("matmul a=8,62:u8 b=62,32:i8", 64),
        ("matmul a=8,62:u8 b=var:62,32:i8", 64),
        ("matmul a=8,64:u8 b=64,32:i8", 64),
        ("conv2d data=1,3,32,32:u8 weight=32,3,7,7:i8 stride=2 pad=3", 8),
        ("conv2d data=1,3,32,32:u8 weight=32,3,5,5:i8 stride=2 pad=2", 4),
        ("conv2d data=1,18,9,9:u8 weight=32,18,3,3:i8 pad=1", 20),
        ("conv2d data=1,32,9,9:u8 weight=32,8,3,3:i8 groups=4", 8),
    ],
)
def test_what_is_no_multiple_of_four_is_filled_up_with_zeros(text: str, extent: int) -> None:
    c = contraction(parse_workload(text), VNNI)
    assert c is not None and {(f.dot.name, f.extent) for f in c.foldings} >= {("vpdpbusd", extent)}
    assert space_of(text).default().get_str("dot") == "vpdpbusd"


@pytest.mark.parametrize(
    ("channels", "taps", "rows"),
    [(3, 7, True), (3, 3, True), (1, 5, True), (2, 3, True), (3, 5, False), (3, 1, False), (4, 4, False)],
)
def test_few_channels_stay_in_rows_where_taps_fill_the_instruction_better(channels: int, taps: int, rows: bool) -> None:
    workload = parse_workload(f"conv2d data=1,{channels},20,20:u8 weight=32,{channels},{taps},{taps}:i8 pad=1")
    layout = usual_layouts(workload, VNNI)["in0"]
    assert (layout.block(1) == 1) == rows
    before, after = layout.halo[3]
    needed = -taps % 4 if rows else 0
    assert before == 1 and after - needed in (0, 1)
    template = lookup("sketch.contraction")
    if VNNI.runs_on_host():
        config = template.default(workload, VNNI)
        assert wrong(workload, template.schedule(workload, config, VNNI, None), VNNI) is None


def test_taps_of_a_row_are_folded_where_each_channel_is_on_its_own() -> None:
    text = "conv2d data=1,32,16,16:u8 weight=32,1,3,3:i8 groups=32 pad=1"
    c = contraction(parse_workload(text), VNNI)
    assert c is not None and {c.reduce[f.axis].name for f in c.foldings} == {"s"}
    schedule = lookup("sketch.contraction").schedule(parse_workload(text), space_of(text).default(), VNNI)
    source = generate(schedule, VNNI)
    code = assembly(source.ir, cpu=VNNI.cpu, features=VNNI.llvm_features)
    assert 0 < code.count("vpermb") <= code.count("vpdpbusd") and "vpinsr" not in code


@pytest.mark.parametrize("where", [ONCE, BLOCK])
def test_rows_of_bytes_go_to_panels_by_whole_vectors(where: str) -> None:
    """Four rows make a vector in which an instruction finds its neighbours: no byte is moved alone."""
    workload = parse_workload("matmul a=2,24,64:u8 b=var:2,64,96:i8")
    space = space_of("matmul a=2,24,64:u8 b=var:2,64,96:i8")
    config = space.default().replace(dot="vpdpbusd", tile=(1, 12, 2), lanes=16, vector="j")
    config = space.canonical(config.replace(**{"pack.in0": NO, "pack.in1": where}))
    schedule = lookup("sketch.contraction").schedule(workload, config, VNNI)
    code = assembly(generate(schedule, VNNI).ir, cpu=VNNI.cpu, features=VNNI.llvm_features)
    assert "vpdpbusd" in code and "vpinsrb" not in code and "movb" not in code
    if VNNI.runs_on_host():
        assert wrong(workload, schedule, VNNI) is None


def test_rows_that_are_turned_in_registers_need_some() -> None:
    space = space_of("matmul a=2,26,64:u8 b=var:2,64,96:i8")
    config = space.default().replace(dot="vpdpbusd", tile=(1, 13, 2), lanes=16, vector="j", unroll=1)
    rules = {rule.name: rule for rule in space.constraints}
    assert rules["registers"].holds(config.replace(**{"pack.in1": ONCE}))
    assert not rules["registers"].holds(config.replace(**{"pack.in1": NO}))
    assert rules["registers"].holds(config.replace(**{"pack.in1": NO, "tile": (1, 12, 2)}))


@pytest.mark.parametrize(
    ("mcpu", "types", "names"),
    [
        ("haswell", ("u8", "i8"), ["vpmaddwd"]),
        ("alderlake", ("u8", "i8"), ["vpdpbusd", "vpmaddwd"]),
        ("icelake-server", ("i8", "i8"), ["vpdpwssd", "vpmaddwd"]),
        ("sierraforest", ("u8", "u8"), ["vpdpbuud", "vpdpwssd", "vpmaddwd"]),
        ("sierraforest", ("i8", "i8"), ["vpdpbssd", "vpdpwssd", "vpmaddwd"]),
    ],
)
def test_every_instruction_for_the_types_is_a_choice(mcpu: str, types: tuple[str, str], names: list[str]) -> None:
    target = Target.parse(f"x86 -mcpu={mcpu} -num-cores=1")
    workload = parse_workload(f"matmul a=64,64:{types[0]} b=const:64,64:{types[1]}")
    space = lookup("sketch.contraction").space(workload, target)
    assert [name for name in space.knob("dot").values if name != NO] == names
    assert space.default().get_str("dot") == names[0]


def test_the_untuned_choice_is_the_fastest_instruction_also_where_memory_is_waited_for() -> None:
    text = "matmul a=1,1024:u8 b=const:1024,50257:i8"
    space = space_of(text)
    assert {config.get_str("dot") for config in space.foreseen(40)} == {"vpdpbusd"}
    assert "vpmaddwd" in space.knob("dot").values  # which a record may still say is faster


def test_a_border_of_zero_points_is_read_without_tests() -> None:
    text = "conv2d data=1,32,16,16:u8 weight=32,32,3,3:i8 pad=1 pad_value=7"
    schedule = lookup("sketch.contraction").schedule(parse_workload(text), space_of(text).default(), VNNI)
    source = generate(schedule, VNNI)
    assert "masked.load" not in source.ir and source.program.operands[0].layout.fill == 7


@pytest.mark.parametrize(
    "text",
    [
        "matmul a=8,64:u8 b=64,32:i8",
        "matmul a=8,64:i8 b=var:64,32:i8",
        "conv2d data=1,32,9,9:u8 weight=16,32,3,3:i8",
        "conv2d data=1,32,9,9:u8 weight=32,1,3,3:i8 groups=32",
        "conv3d data=1,3,9,9,9:u8 weight=16,3,3,3,3:i8",
    ],
)
@pytest.mark.parametrize("mcpu", ["icelake-server", "haswell", "sapphirerapids"])
def test_sketches_are_the_first_choice_for_bytes(text: str, mcpu: str) -> None:
    first = templates_for(parse_workload(text), Target.parse(f"x86 -mcpu={mcpu}"))[0].name
    assert first in ("sketch.contraction", "sketch.widened")


def test_where_no_instruction_multiplies_bytes_pairs_of_wider_integers_are_read_as_they_lie() -> None:
    workload = parse_workload("conv2d data=1,64,14,14:u8 weight=64,64,3,3:i8 pad=1 pad_value=7 stride=2 + requantize "
                              "multiplier=const:1,64,1,1:f32 zero_point=const:scalar:u8")  # fmt: skip
    old, template = fixed("x86 -mcpu=haswell -num-cores=1"), lookup("sketch.widened")
    assert not template.applies(workload, VNNI) and templates_for(workload, old)[0].name == template.name
    source = generate(template.schedule(workload, template.default(workload, old), old), old)
    code = assembly(source.ir, cpu=old.cpu, features=old.llvm_features)
    assert "vpmaddwd" in code and "vpsraw" not in code
    (kept,) = (o for o in source.program.operands if o.constant and o.dtype is DType.i16)
    assert kept.prepared is not None


@pytest.mark.parametrize("mcpu", ["znver3", "haswell"])
def test_tiles_of_pairs_load_no_longer_than_they_multiply(mcpu: str) -> None:
    target, workload = fixed(f"x86 -mcpu={mcpu} -num-cores=1"), parse_workload("matmul a=128,3072:u8 b=3072,768:i8")
    space = lookup("sketch.widened").space(workload, target)
    assert isinstance(space, SketchSpace)
    t, pipe = space.tiling(space.default()), target.core.pipe("fma.f32", 256)
    assert pipe is not None
    alone = 1 if target.core.adds_beside_multiplies else 2  # sums take turns of the units that multiply
    assert t.stream and bool(t.ahead) == (alone > 1)  # or loads leave no room for requests
    loads = sum(t.tile) + t.tile[t.vector]  # and what is asked for, if it is
    assert loads / target.core.loads <= alone * math.prod(t.tile) / pipe.per_cycle
    assert {turns(f.dot, target) for f in space.numbers.c.foldings} == {alone}


@pytest.mark.parametrize(
    "text",
    ["matmul a=8,64 b=64,32", "matmul a=61,8:u8 b=var:61,32:i8 trans_a=1", "matmul a=13,3:i8 b=var:3,16:i8"],
)
def test_what_has_no_pairs_of_bytes_is_not_widened(text: str) -> None:
    assert not lookup("sketch.widened").applies(parse_workload(text), Target.parse("x86 -mcpu=haswell -num-cores=1"))


def test_nothing_is_filled_up_where_no_factor_has_zeros() -> None:
    c = contraction(parse_workload("matmul a=62,8:u8 b=var:62,32:i8 trans_a=1"), VNNI)
    assert c is not None and not c.foldings


def test_copies_have_no_zeros_behind_their_ends() -> None:
    """The first factor comes with zeros behind its rows. Who copies it copies the rows alone."""
    space = space_of("matmul a=8,62:u8 b=var:62,32:i8")
    config = space.default()
    assert config.get_str("dot") == "vpdpbusd" and config.get_str("pack.in0") == NO and config.get_str("pack.in1") != NO
    rules = {rule.name: rule for rule in space.constraints}
    assert not rules["regular"].holds(config.replace(**{"pack.in0": ONCE}))


@pytest.mark.parametrize(
    ("terms", "order"),
    [
        ((0, 2, 3, 1), [(0, 0), (1, 0), (2, 0), (3, 0), (1, 16), (0, 32), (1, 4)]),
        ((0, 3, 2, 1), [(0, 0), (1, 0), (3, 0), (2, 0), (1, 16), (0, 32), (1, 4)]),
        ((2, 3, 0, 1), [(0, 0), (2, 0), (3, 0), (1, 0), (0, 32), (1, 4)]),
    ],
)
def test_panels_lie_in_the_order_in_which_they_are_read(terms: tuple[int, ...], order: list[tuple[int, int]]) -> None:
    """Groups of four channels stand in the blocks of the image where taps come between the two."""
    workload = parse_workload("conv2d data=1,40,6,6:u8 weight=const:48,40,3,3:i8 pad=1")
    template = lookup("sketch.contraction")
    knobs = {"terms": terms, "vector": "k", "lanes": 16, "tile": (1, 2, 1, 6), "unroll": 1}
    config = space_of("conv2d data=1,40,6,6:u8 weight=const:48,40,3,3:i8 pad=1").default().replace(**knobs)
    panels = lower(template.schedule(workload, config, VNNI, None), "kernel").operands[1].layout
    assert list(panels.order) == order
    if VNNI.runs_on_host():
        assert wrong(workload, template.schedule(workload, config, VNNI, None), VNNI) is None
