"""Sketches of contractions: what they see, what they choose from, and that all of it computes the definition."""

from __future__ import annotations

import math
import random
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import CodegenError, LoweringError
from autotune.lower import lower, print_program
from autotune.ops import parse_workload
from autotune.search_spaces import Config, lookup, make_schedule, task_space, templates_for
from autotune.search_spaces.library.afar import turns_ahead
from autotune.search_spaces.library.register_tile import Steps
from autotune.search_spaces.sketch.batch import Batch, Decoder
from autotune.search_spaces.sketch.contraction import Contraction, contraction
from autotune.search_spaces.sketch.panels import of_single_vectors
from autotune.search_spaces.sketch.space import SketchSpace, tiling
from autotune.search_spaces.sketch.tiling import NO
from autotune.target import Target
from autotune.tensor.layout import Layout
from tests.conftest import Golden
from tests.search_spaces.contraction_cases import mixture, random_contraction
from tests.search_spaces.generic_cases import random_interface
from tests.search_spaces.matmul_cases import wrong
from tests.targets import fixed

TARGETS = ("native -num-cores=2", "x86 -mcpu=haswell -num-cores=2")
FIXED = fixed("x86 -mcpu=x86-64-v4 -num-cores=2")
PRODUCT = "einsum data=var:64,48 data=var:48,64 equation=ik,kj->ij"
DEPTHWISE = "conv2d data=1,40,14,14 weight=40,1,3,3 pad=1 groups=40"
EXPERTS = "gather data=const:4,48,20 indices=6 + matmul b=var:6,20,1"
SCORES = "einsum data=var:1,19,3,8 data=var:1,21,3,8 equation=bqhd,bkhd->bhqk"


def space_of(text: str, target: Target = FIXED) -> SketchSpace:
    space = lookup("sketch.contraction").space(parse_workload(text), target)
    assert isinstance(space, SketchSpace)
    return space


def contraction_of(text: str) -> Contraction:
    found = contraction(parse_workload(text), FIXED)
    assert found is not None
    return found


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_tilings_of_random_contractions(seed: int) -> None:
    rng = random.Random(seed)
    kind = mixture if rng.random() < 0.1 else random_contraction
    workload, target = kind(rng), Target.parse(rng.choice(TARGETS))
    template = lookup("sketch.contraction")
    if not template.applies(workload, target):
        return
    config = template.space(workload, target).sample(rng)
    interface = random_interface(workload, rng) if rng.random() < 0.4 else None
    where = f"{workload.to_json()} {config.to_json()} {interface and interface.to_json()}"
    try:
        failure = wrong(workload, template.schedule(workload, config, target, interface), target)
    except (CodegenError, LoweringError):  # layouts in which what is folded lies apart
        assert interface is not None and "dot" in config, where
        return
    assert failure is None, f"{where}: {failure}"


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), packed=st.booleans())
def test_windows_that_do_not_overlap_are_packed_with_any_turns(seed: int, packed: bool) -> None:
    """Where a window begins and where it reads are one index, of which the last turns need not be whole."""
    rng = random.Random(seed)
    workload, target = parse_workload("conv2d data=1,3,15,24 weight=24,3,3,3 stride=3"), Target.parse(TARGETS[0])
    template = lookup("sketch.contraction")
    config = template.space(workload, target).sample(rng)
    if packed:
        config = config.replace(**{"pack.in0": "block", "unroll": 2})
        template.space(workload, target).validate(config)
    assert wrong(workload, template.schedule(workload, config, target), target) is None, config.to_json()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "text",
    [
        PRODUCT,
        SCORES,
        EXPERTS,
        "einsum data=var:6,8,5,4 data=var:4,8,20 equation=abcd,dbe->ace",
        "matmul a=16,16:u8 b=const:16,48:i8",
        "matmul a=21,34:bf16 b=const:34,33:bf16",
        "conv2d data=1,32,9,20 weight=32,16,3,3 pad=1 groups=2",
        "conv2d data=1,8,9,20 weight=20,8,3,3 pad=1 + add b=1,20,1,1 + relu",
        "conv2d data=1,24,9,20 weight=24,1,3,5 pad=1 groups=24 stride=2 + bias + sigmoid",
    ],
)
def test_untuned_choices_are_right(text: str, target: str) -> None:
    workload, chosen = parse_workload(text), Target.parse(target)
    config = lookup("sketch.contraction").default(workload, chosen).replace(template="sketch.contraction")
    assert wrong(workload, make_schedule(workload, config, chosen), chosen) is None


@pytest.mark.parametrize("vector", ["k", "ow"])
def test_vectors_of_partial_sums_lie_whole_in_memory(vector: str) -> None:
    workload = parse_workload("conv2d data=1,256,8,32 weight=64,256,1,1")
    space = lookup("sketch.contraction").space(workload, FIXED)
    tile = (1, 2, 1, 4) if vector == "k" else (1, 4, 1, 2)
    config = space.default().replace(vector=vector, lanes=16, tile=tile, depth=128)
    state = lookup("sketch.contraction").schedule(workload, config, FIXED, None).state
    total = contraction_of(workload.describe()).total
    (sums,) = state.stage(total).stage.outputs
    assert state.layout(sums).order[-1] == (1 if vector == "k" else 3, 32)


def test_what_a_contraction_is() -> None:
    scores = contraction(parse_workload(SCORES), FIXED)
    assert scores is not None
    assert [a.name for a in scores.spatial] == ["b", "h", "q", "k"] and [a.name for a in scores.reduce] == ["d"]
    assert [f.stride("q") for f in scores.factors] == [24, 0]
    assert scores.points == 19 * 21 * 3 * 8
    for text in ("softmax data=4,8 axis=1", "max_pool data=1,4,8,8 kernel=2 stride=2", "reduce_sum data=8,9 axes=0"):
        assert contraction(parse_workload(text), FIXED) is None


def test_channels_of_a_group_are_not_torn_apart() -> None:
    workload = parse_workload("conv2d data=1,32,9,20 weight=32,16,3,3 pad=1 groups=2")
    c = contraction(workload, FIXED)
    assert c is not None and c.spatial[1].period == 16
    space, rng = space_of("conv2d data=1,32,9,20 weight=32,16,3,3 pad=1 groups=2"), random.Random(0)
    for _ in range(50):
        assert 16 % space.tiling(space.sample(rng)).elements(1) == 0


def test_dot_products_are_chosen_where_the_cpu_has_them() -> None:
    text = "matmul a=64,64:u8 b=const:64,64:i8"
    with_dots = Target.parse("x86 -mcpu=icelake-server -num-cores=1")
    assert space_of(text, with_dots).default().get_str("dot") == "vpdpbusd"
    assert space_of(text, FIXED).knob("dot").values == ("vpmaddwd", NO)
    assert "dot" not in space_of(PRODUCT, with_dots).default()
    vex = space_of(text, Target.parse("x86 -mcpu=alderlake -num-cores=1"))
    assert vex.knob("dot").values == ("vpdpbusd", "vpmaddwd", NO)
    assert {t.lanes for t in (vex.tiling(vex.sample(random.Random(n))) for n in range(50)) if t.dot != NO} <= {4, 8}


def test_every_config_is_valid_and_says_one_nest_in_one_way() -> None:
    space, rng = space_of(SCORES), random.Random(1)
    config = space.sample(rng)
    for _ in range(200):
        space.validate(config)
        assert space.canonical(config) == config
        t = space.tiling(config)
        assert math.prod(t.tile) <= FIXED.num_vector_registers
        config = space.mutate(config, rng) if rng.random() < 0.7 else space.crossover(config, space.sample(rng), rng)


def test_one_thread_shares_no_loops() -> None:
    """Of loops that are one, none sees which part of its weights comes next."""
    workload, target = parse_workload("matmul a=var:64,256 b=const:256,128"), fixed("x86 -mcpu=x86-64-v4 -num-cores=1")
    space, template = space_of("matmul a=var:64,256 b=const:256,128", target), lookup("sketch.contraction")
    config = space.default().replace(shared=2, tile=(8, 1), outer=(1, 0), **{"block.i": 2, "block.j": 1})
    assert space.canonical(config).get("shared") == 1
    nest = print_program(lower(template.schedule(workload, config, target)))
    assert "*" not in next(line for line in nest.splitlines() if "parallel for" in line)


def test_untuned_kernels_suit_runs_that_end_anywhere() -> None:
    product, ends = "matmul a=4,24,64 b=64,48", "until end=scalar:i64 axis="
    assert contraction_of(product).ended == [] and contraction_of(f"{product} + {ends}1").ended == [1]
    space = space_of(f"{product} + {ends}0 + {ends}1")
    assert space.numbers.c.ended == [0, 1]
    assert [a.extent for a in space.usual.c.spatial] == [2, 12, 48]
    config = space.foreseen(1)[0].replace(tile=(2, 6, 1), **{"block.b0": 2, "block.i": 4})
    wasted, ragged = (space.feature_names.index(name) for name in ("wasted", "ragged"))
    (usual,) = space.usual.of(Batch.of(space.numbers.c, [space.tiling(config)]))
    assert usual[wasted] == pytest.approx((2.5 / 2) * (14.5 / 12)) and usual[ragged] == 0
    assert space.encode(config)[wasted] == 1  # the search measures them with the largest extents


def test_what_is_promising_begins_with_the_default_and_gets_no_better() -> None:
    workload = parse_workload(PRODUCT)
    space = task_space(workload, FIXED)
    found = space.promising(8 * len(space.members))
    own = [config for config in found if config.template == "sketch.contraction"]
    assert 1 < len(own) == len(set(own))
    assert own[0].without("template") == space.members["sketch.contraction"].default
    sketch = space_of(PRODUCT)
    costs = sketch.expected(Batch.of(sketch.numbers.c, [sketch.tiling(config.without("template")) for config in own]))
    assert all(np.diff(costs) > -0.01)
    for config in found:
        space.validate(config)


def test_what_ends_nowhere_is_judged_as_it_is() -> None:
    space = space_of(PRODUCT)
    batch = Batch.of(space.numbers.c, [space.tiling(space.sample(random.Random(n))) for n in range(20)])
    np.testing.assert_array_equal(space.usual.of(batch), space.numbers.of(batch))


def test_near_tiles_differ_by_one_size() -> None:
    knob = space_of(PRODUCT).knob("tile")
    for near in knob.near((8, 2)):
        assert isinstance(near, tuple) and sum(a != b for a, b in zip(near, (8, 2))) <= 2


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("matmul a=var:32,32 b=const:32,32", ["sketch.contraction", "generic"]),
        ("conv2d data=1,32,8,8 weight=32,32,3,3 pad=1",
         ["conv2d.direct", "sketch.contraction", "generic"]),
        ("conv2d data=1,32,8,8 weight=32,4,3,3 pad=1 groups=8",
         ["conv2d.grouped_across", "sketch.contraction", "generic"]),
        ("conv2d data=1,32,8,8 weight=32,1,3,3 pad=1 groups=32",
         ["sketch.contraction", "conv2d.grouped_across", "generic"]),
        (PRODUCT, ["sketch.contraction", "generic"]),
        # Matrices of the run times a vector: vectors along the sum need no panels. With weights these are made before.
        ("matmul a=64,128,256 b=var:64,256,1", ["generic", "sketch.contraction"]),
        ("matmul a=1,32,1,64 b=var:1,32,512,64 trans_b=true", ["generic", "sketch.contraction"]),
        ("matmul a=8,128,256 b=var:8,256,8", ["sketch.contraction", "generic"]),
        ("matmul a=1,256 b=const:256,512", ["sketch.contraction", "generic"]),
    ],
)  # fmt: skip
def test_where_sketches_stand_among_the_templates(text: str, order: list[str]) -> None:
    names = [t.name for t in templates_for(parse_workload(text), FIXED)]
    assert sorted(order, key=names.index) == order


def test_a_task_of_sketches_begins_with_their_choice() -> None:
    space = task_space(parse_workload(PRODUCT), FIXED)
    assert space.default().template == "sketch.contraction"
    assert len(space.encode(space.default())) == len(space.feature_names)


def test_a_tiling_as_a_nest(golden: Golden) -> None:
    workload = parse_workload(PRODUCT)
    config = Config.of(
        {"vector": "j", "lanes": 16, "tile": (6, 2), "block.i": 4, "block.j": 2, "outer": (1, 0), "inner": (1, 0),
         "unroll": 2, "pack.in0": NO, "pack.in1": "block", "shared": 1}
    )  # fmt: skip
    schedule = lookup("sketch.contraction").schedule(workload, config, FIXED)
    golden(print_program(lower(schedule)))


def test_chosen_matrices_are_multiplied_where_they_are(golden: Golden) -> None:
    """Constant ones lie in panels, of which an index says which is read; nothing is copied, and no tile has several."""
    c = contraction(parse_workload(EXPERTS), FIXED)
    assert c is not None and [a.period for a in c.spatial] == [1, 0, 0]
    assert [(f.stride(c.spatial[0].name), f.plain) for f in c.factors] == [(None, True), (20, True)]
    config = Config.of(
        {"vector": "i", "lanes": 16, "tile": (1, 3, 1), "block.b0": 2, "block.i": 0, "outer": (0, 1), "inner": (0, 1),
         "unroll": 1, "shared": 1}
    )  # fmt: skip
    golden(print_program(lower(lookup("sketch.contraction").schedule(parse_workload(EXPERTS), config, FIXED))))
    given = contraction(parse_workload(EXPERTS.replace("const:", "")), FIXED)
    assert given is None  # they would be copied into panels again and again


@pytest.mark.parametrize("text", [PRODUCT, SCORES, "conv2d data=1,32,9,20 weight=32,16,3,3 pad=1 groups=2", DEPTHWISE])
def test_many_tilings_as_arrays_are_the_same_tilings(text: str) -> None:
    space, rng = space_of(text), np.random.default_rng(0)
    decoder = Decoder(space.numbers.c, space.knobs, FIXED)
    numbers = rng.integers(0, decoder.sizes, (300, len(decoder.sizes)))
    configs = [Config.of((k.name, k.values[n]) for k, n in zip(space.knobs, row)) for row in numbers]
    batch = decoder.batch(numbers)
    for name, column in asdict(Batch.of(space.numbers.c, [tiling(space.numbers.c, x) for x in configs])).items():
        assert (column == getattr(batch, name)).all(), name
    assert decoder.valid(batch).tolist() == [space.satisfies(config) for config in configs]


def test_numbers_of_a_nest_are_finite_and_follow_it() -> None:
    space = space_of(PRODUCT)
    values = space.encode_all([space.sample(random.Random(n)) for n in range(100)])
    assert np.isfinite(values).all() and values.shape == (100, len(space.feature_names))
    config = Config.of(
        {"vector": "j", "lanes": 16, "tile": (6, 2), "block.i": 0, "block.j": 0, "outer": (0, 1), "inner": (0, 1),
         "unroll": 2, "pack.in0": NO, "pack.in1": "once", "shared": 1}
    )  # fmt: skip
    row = dict(zip(space.feature_names, space.encode(config).tolist()))
    assert (row["rows"], row["vectors"], row["width"]) == (6, 2, 1)
    assert row["registers"] == pytest.approx((6 * 2 + 2 + 1) / 32)
    assert row["balance"] == 0.5  # one block in all, two threads
    unpacked = dict(zip(space.feature_names, space.encode(config.replace(**{"pack.in1": NO})).tolist()))
    assert row["copying"] > 0 == unpacked["copying"]


def test_one_thread_always_has_work_wherever_data_ends_the_rows() -> None:
    """There are one and a half blocks on average, which two threads share worse than one does."""
    text = "matmul a=1,320,64 b=64,48 + until end=scalar:i64 axis=1 rest=any"
    one, two = (space_of(text, fixed(f"x86 -mcpu=znver3 -num-cores={threads}")) for threads in (1, 2))
    config = Config.of(
        {"vector": "j", "lanes": 8, "tile": (1, 6, 2), "block.i": 32, "block.j": 0, "outer": (1, 2), "inner": (1, 2),
         "depth": 0, "unroll": 1, "pack.in0": NO, "shared": 1}
    )  # fmt: skip
    found = [space.usual.of(Batch.of(space.numbers.c, [space.tiling(config)]))[0] for space in (one, two)]
    at = one.feature_names.index("balance")
    assert found[0][at] == 1.0 and 0.5 < found[1][at] < 1.0


def test_numbers_tell_parts_of_sums_prefetching_and_the_innermost_loop_apart() -> None:
    space = space_of("matmul a=var:4,1024 b=const:1024,4096")
    plain = space.default().replace(depth=0, ahead=0)

    def number(name: str, config: Config) -> float:
        return float(space.encode(config)[space.feature_names.index(name)])

    assert [number("parts", plain.replace(depth=d)) for d in (0, 256)] == [0, 2]
    assert number("ahead", plain) == 0 < number("ahead", plain.replace(ahead=8)) < number(
        "ahead", plain.replace(ahead=16)
    )  # fmt: skip
    windows = space_of("conv2d data=1,8,12,40 weight=8,8,3,3")
    config = windows.default()
    assert windows.numbers.c.product and set(windows.knob("terms").values) >= {(1, 2, 0), (0, 1, 2)}
    near, far = (
        windows.encode(config.replace(terms=terms))[windows.feature_names.index("step")]
        for terms in ((0, 1, 2), (0, 2, 1))
    )
    assert near == 1 < far


def test_rows_that_lie_in_order_are_read_once_and_seldom_worth_a_copy() -> None:
    """A line holds the terms of sixteen turns, unless more rows than a cache has ways want its place."""
    space = space_of("matmul a=var:96,2048 b=const:2048,512")

    def numbers(config: Config) -> dict[str, float]:
        return dict(zip(space.feature_names, space.encode(config).tolist()))

    plain = space.default().replace(**{"depth": 0, "tile": (8, 3), "pack.in0": NO})
    few, many = (numbers(plain.replace(tile=tile)) for tile in ((8, 3), (9, 3)))
    assert few["aliasing"] <= 1 < many["aliasing"]
    assert 2 * few["l1"] < many["l1"]
    narrow = space_of("matmul a=var:96,2048:bf16 b=const:2048,512:bf16", fixed("x86 -mcpu=cooperlake -num-cores=1"))
    copied = narrow.default().replace(**{"tile": (8, 3), "pack.in0": "once", "dot": "vdpbf16ps"})
    at = narrow.feature_names.index("copying")
    assert 0 < narrow.encode(copied)[at] < narrow.encode(copied.replace(dot=NO))[at]  # pairs, or one by one


TWICE, OFTEN = (Steps.of(FIXED), 2), (Steps.of(FIXED), 9)


def test_panels_are_asked_for_as_far_ahead_as_the_nearest_cache_has_room() -> None:
    assert [turns_ahead(8, vectors, False, FIXED, *TWICE) for vectors in (1, 2, 4, 7)] == [64, 64, 32, 16]
    assert turns_ahead(1, 8, False, FIXED, *TWICE) == 0


def test_panels_that_one_tile_reads_are_left_to_the_cpu() -> None:
    assert turns_ahead(8, 3, False, FIXED, Steps.of(FIXED), 1) == 0
    assert space_of("matmul a=var:8,1024 b=const:1024,4096").default().get("ahead") == 0


def test_panels_that_are_streamed_into_the_second_cache_are_asked_for_from_there() -> None:
    assert [turns_ahead(8, vectors, True, FIXED, *OFTEN) for vectors in (4, 7)] == [8, 4]
    assert [turns_ahead(8, vectors, True, FIXED, *TWICE) for vectors in (1, 2, 4, 7)] == [64, 32, 16, 8], "on their way"
    narrow = fixed("x86 -mcpu=znver3 -num-cores=1")
    assert [turns_ahead(3, 4, True, narrow, Steps.of(narrow), times) for times in (2, 8)] == [8, 8]
    space = space_of("matmul a=var:128,768 b=const:768,768")
    config = space.default()
    assert config.get("stream") and config.get("ahead") == 32 // space.tiling(config).tile[1]


def test_panels_that_are_read_once_lie_apart() -> None:
    once, more, again = (space_of(f"matmul a=var:{rows},1024 b=const:1024,4096").default() for rows in (1, 8, 128))
    assert once.get("apart") is True and again.get("apart") is False
    assert more.get("apart") is False, "work enough for one place to come in time"
    assert "apart" not in space_of("matmul a=var:1,64 b=const:64,64").default(), "which caches hold"
    space = space_of("matmul a=var:1,1024 b=const:1024,4096")
    single = once.replace(tile=(*once.get_ints("tile")[:-1], 1))
    assert space.canonical(single).get("apart") is False, "of one vector there is one place"


@pytest.mark.parametrize(
    ("rows", "dtype", "alone"), [(9, "f32", True), (12, "f32", False), (12, "bf16", True), (14, "bf16", False)]
)
def test_no_tall_tile_alone_reads_panels_from_memory(rows: int, dtype: str, alone: bool) -> None:
    space = space_of(
        f"matmul a=var:{rows},768:{dtype} b=const:768,3072:{dtype}", fixed("x86 -mcpu=znver4 -num-cores=1")
    )
    height = space.tiling(space.default()).tile[0]
    assert (height == rows) is alone
    assert "ahead" not in space_of(f"matmul a=var:{rows},64:{dtype} b=const:64,64:{dtype}").default(), (
        "caches hold them"
    )


def test_nor_does_one_read_several_matrices_from_memory() -> None:
    """Each of twenty rows has a matrix of its own, whose panels no other tile could read."""
    space = space_of("einsum data=var:20,256 data=const:20,256,512 equation=bk,bkj->bj")
    assert space.tiling(space.default()).tile[0] <= 9


def test_what_tiles_read_first_lies_together() -> None:
    """Columns in panels of 32 of two vectors: (which of two, panel, row, column)."""
    form = of_single_vectors(Layout.blocked(2, [(1, 32)], order=(1, 0)), 1, 16)
    assert form.order == ((1, 32), (1, 0), (0, 0), (1, 16))
    assert form.physical_shape((5, 96)) == (2, 3, 5, 16)
    array = np.arange(5 * 96).reshape(5, 96)
    np.testing.assert_array_equal(form.pack(array)[1, 2], array[:, 80:96])
    np.testing.assert_array_equal(form.unpack(form.pack(array), (5, 96)), array)
    alone = Layout.blocked(2, [(1, 16)], order=(1, 0))
    assert of_single_vectors(alone, 1, 16) == alone


def test_what_is_read_often_is_asked_for_only_where_loads_leave_room() -> None:
    """16 registers hold small tiles, which load nearly as often as a core can; a request would be one more load."""
    small, large = Steps.of(fixed("x86 -mcpu=znver3 -num-cores=1")), Steps.of(FIXED)
    assert turns_ahead(3, 4, True, FIXED, small, 9) == 0 == turns_ahead(3, 4, False, FIXED, small, 9)
    assert 0 < turns_ahead(7, 4, True, FIXED, large, 9) < turns_ahead(7, 4, True, FIXED, *TWICE)
    assert turns_ahead(3, 4, True, FIXED, small, 8) > 0  # few tiles: the first waits longer
    often, seldom = (f"matmul a=var:{rows},768 b=const:768,768" for rows in (128, 16))
    target = fixed("x86 -mcpu=znver3 -num-cores=1")
    configs = [space_of(line, target).default() for line in (often, seldom)]
    assert [(c.get("stream"), c.get("ahead", 0) != 0) for c in configs] == [(True, False), (True, True)]


def test_tiles_ask_for_the_next_panels_alone() -> None:
    """From the second cache lines come fast enough; from memory, where no panel is read again, they are asked for."""
    target = fixed("x86 -mcpu=sapphirerapids -num-cores=1")
    workload = parse_workload("matmul a=var:128,768:u8 b=const:768,3072:i8")
    space = space_of("matmul a=var:128,768:u8 b=const:768,3072:i8", target)
    config = space.default()
    assert space.tiling(config).upright >= 0 and config.get("stream") and config.get("ahead") == 0
    program = print_program(lower(make_schedule(workload, config.replace(template="sketch.contraction"), target)))
    assert "prefetch to L2 in1" in program and "prefetch in1" not in program
    once = space_of("matmul a=var:16,768:u8 b=const:768,3072:i8", target).default()
    assert not once.get("stream") and once.get("ahead") == 4


def test_no_configs_have_no_numbers() -> None:
    space = space_of(PRODUCT)
    assert space.encode_all([]).shape == (0, len(space.feature_names))
