"""Winograd templates: any size, any config, both vector widths, with and without a given interface."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.codegen.jit import assembly
from autotune.codegen.kernel import build_kernel, generate
from autotune.lower import lower, print_program
from autotune.measure.bench import Bench, TaskData
from autotune.measure.builder import algorithm_of
from autotune.measure.failure import Failure
from autotune.measure.reference import allowance, make_reference
from autotune.measure.verify import verify
from autotune.ops import parse_workload, winograd, winograd_exact
from autotune.ops.workload import Workload
from autotune.runtime.threads import ThreadPool
from autotune.search_spaces import Config, Interface, lookup, make_schedule, templates_for
from autotune.search_spaces.operators.conv2d_shape import sizes
from autotune.search_spaces.operators.conv2d_winograd import cheapest
from autotune.search_spaces.operators.conv2d_winograd_cost import Blocking, Cost
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout
from tests.search_spaces import bytes_cases
from tests.search_spaces.volume_cases import random_volume
from tests.targets import fixed

TARGETS = ("native -num-cores=2", "x86 -mcpu=haswell -num-cores=2")
ALGORITHMS = tuple(winograd.TILES)
ZEN4 = fixed("x86 -mcpu=znver4 -num-cores=1")


def conv(c: int, k: int, h: int, w: int, pad: str, batch: int = 1, epilogue: str = "") -> Workload:
    return parse_workload(f"conv2d data={batch},{c},{h},{w} weight={k},{c},3,3 pad={pad} {epilogue}")


def check(
    workload: Workload, algorithm: str, config: Config | None, target: Target, interface: Interface | None = None
) -> None:
    """A kernel of the config, None for the default, against the definition."""
    assert workload.anchor is not None
    entry = lookup(f"{workload.anchor.op}.{algorithm}")
    config = config or entry.default(workload, target)
    schedule = make_schedule(workload, config.replace(template=entry.name), target, interface)
    pools = [ThreadPool(1), ThreadPool(2)]
    with Bench(build_kernel(schedule, target), TaskData(make_reference(workload)), 2) as bench:
        found = verify(bench, pools, allowance(workload, algorithm_of(workload, schedule)))
    for pool in pools:
        pool.close()
    assert not isinstance(found, Failure), f"{workload.describe()} {config.to_json()} {target}: {found}"


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_configs_of_random_sizes(seed: int) -> None:
    rng = random.Random(seed)
    target = Target.parse(rng.choice(TARGETS))
    pad = rng.choice(["0", "1", "1,1,1,1", "0,1,1,0", "2", "0,0,2,1"])
    h, w = rng.choice((3, 4, 5, 7, 8, 11, 13, 14)), rng.choice((3, 4, 6, 7, 9, 13, 16))
    workload = conv(rng.choice((16, 32, 48)), rng.choice((16, 32, 64)), h, w, pad, rng.choice((1, 1, 2)),
                    rng.choice(("", "+ bias", "+ bias + relu", "+ bias + residual + relu")))  # fmt: skip
    algorithm = rng.choice(ALGORITHMS)
    entry = lookup(f"conv2d.{algorithm}")
    if entry.applies(workload, target):
        check(workload, algorithm, entry.space(workload, target).sample(rng), target)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_configs_of_volumes(seed: int) -> None:
    """Images one behind the other: with and without taps along the depth."""
    rng = random.Random(seed)
    target = Target.parse(rng.choice(TARGETS))
    exact = rng.random() < 0.3
    workload, names = random_volume(rng, exact), winograd_exact.TILES if exact else winograd.TILES
    algorithm = rng.choice(list(names))
    entry = lookup(f"conv3d.{algorithm}")
    if entry.applies(workload, target):
        check(workload, algorithm, rng.choice((entry.space(workload, target).sample(rng), None)), target)


@pytest.mark.parametrize(
    "text",
    [
        "data=1,64,16,32,32 weight=144,64,1,3,3 pad=0,1,1",  # of R(2+1)D
        "data=1,64,16,32,32 weight=64,64,3,3,3 pad=1",  # of R3D
    ],
)
def test_winograd_is_the_default_of_volumes(text: str) -> None:
    found = templates_for(parse_workload(f"conv3d {text}"), fixed("x86 -mcpu=znver3 -num-cores=1"))
    assert found[0].name.startswith("conv3d.winograd_")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_defaults(algorithm: str, target: str) -> None:
    parsed = Target.parse(target)
    for workload in (conv(32, 32, 28, 28, "1", epilogue="+ bias + relu"), conv(64, 32, 7, 7, "1")):
        check(workload, algorithm, lookup(f"conv2d.{algorithm}").default(workload, parsed), parsed)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_configs_of_bytes_are_exact(seed: int) -> None:
    rng = random.Random(seed)
    target = Target.parse(rng.choice(TARGETS))
    workload = bytes_cases.random_windows_of_three(rng)
    algorithm = rng.choice(list(winograd_exact.TILES))
    entry = lookup(f"conv2d.{algorithm}")
    if entry.applies(workload, target):
        check(workload, algorithm, rng.choice((entry.space(workload, target).sample(rng), None)), target)


@pytest.mark.parametrize(
    "text",
    [
        "data=1,64,14,14:u8 weight=var:64,64,3,3:i8 pad=1",  # weights that are not known before
        "data=1,64,14,14:u8 weight=64,64,3,3:i8 pad=1 stride=2",
        "data=1,64,14,14:u8 weight=64,64,5,5:i8 pad=2",
        "data=1,64,14,14:u8 weight=64,4,3,3:i8 pad=1 groups=16",
        "data=1,20,14,14:u8 weight=64,20,3,3:i8 pad=1",  # no whole vectors of channels
        "data=1,64,14,14 weight=64,64,3,3 pad=1",
    ],
)
def test_other_convolutions_are_not_of_bytes(text: str) -> None:
    workload, target = parse_workload(f"conv2d {text}"), fixed("x86 -mcpu=znver3 -num-cores=1")
    assert not any(lookup(f"conv2d.{name}").applies(workload, target) for name in winograd_exact.TILES)


@pytest.mark.parametrize("mcpu, instruction", [("znver3", "vpmaddwd"), ("cascadelake", "vpdpwssd")])
def test_pairs_are_multiplied_by_what_the_cpu_has(mcpu: str, instruction: str) -> None:
    target = fixed(f"x86 -mcpu={mcpu} -num-cores=1")
    workload = parse_workload("conv2d data=1,64,28,28:u8 weight=64,64,3,3:i8 pad=1")
    entry = lookup("conv2d.winograd_exact_f4")
    assert entry.strict and (instruction != "vpmaddwd" or templates_for(workload, target)[0] is entry)
    source = generate(
        make_schedule(workload, entry.default(workload, target).replace(template=entry.name), target), target
    )
    assert instruction in assembly(source.ir, cpu=target.cpu, features=target.llvm_features)


STRIDED = "data=1,32,21,26 weight=32,32,5,5 stride=2 pad=2,1,2,3 + bias + relu"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("algorithm", "text"),
    [
        ("winograd_f4", "data=1,32,13,18 weight=32,32,5,5 pad=2 + bias + relu"),
        ("winograd_f2", STRIDED), ("winograd_f4", STRIDED), ("winograd_f6", STRIDED),
        ("winograd_f6", "data=2,16,15,28 weight=16,16,3,3 stride=2 pad=1 + residual"),
    ],
)  # fmt: skip
def test_strides_and_larger_windows(algorithm: str, text: str, target: str) -> None:
    parsed, workload = Target.parse(target), parse_workload(f"conv2d {text}")
    check(workload, algorithm, lookup(f"conv2d.{algorithm}").default(workload, parsed), parsed)


@pytest.mark.parametrize("algorithm", ["winograd_f4", "winograd_f5", "winograd_f6"])
@pytest.mark.parametrize("size, channels, results", [(112, 128, 128), (128, 64, 64), (256, 32, 32), (128, 128, 64)])
def test_blocks_of_a_large_image_stay_in_the_second_cache(
    algorithm: str, size: int, channels: int, results: int
) -> None:
    """What transforms write and read a plane apart comes slowly from behind it: blocks of all rows took 1.5 times as
    long (docs/adr/0014)."""
    text = f"conv2d data=1,{channels},{size},{size} weight={results},{channels},3,3 pad=1"
    workload, target = parse_workload(text), fixed("x86 -mcpu=znver4 -num-cores=1")
    config = lookup(f"conv2d.{algorithm}").default(workload, target)
    edge = winograd.TILES[algorithm].rows + 2
    tiles = config.get_int("rows") * -(-size // (edge - 2))
    image = tiles * edge**2 * channels * DType.f32.bytes
    assert config.get_str("transform") == "block" and image <= target.l2_bytes


@pytest.mark.parametrize(("cpu", "vectors"), [("haswell", 2), ("znver4", 1)])
def test_narrow_panels_that_come_from_memory_are_read_again_or_are_none(cpu: str, vectors: int) -> None:
    """Read once, half a line at a time, they came at a third of what memory gives: kernels took twice as long."""
    workload = parse_workload("conv2d data=1,256,14,14 weight=256,256,3,3 pad=1 + relu")
    config = lookup("conv2d.winograd_f6").default(workload, fixed(f"x86 -mcpu={cpu} -num-cores=1"))
    tiles = config.get_int("rows") // config.get_int("th_tile") * -(-3 // config.get_int("tw_tile"))
    assert config.get_int("oc_vectors") >= vectors and (tiles > 1 or config.get_int("oc_vectors") > vectors)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("channels", "size"), [(48, 13), (32, 160)])
def test_factors_of_half_floats_are_widened_on_the_way(channels: int, size: int, target: str) -> None:
    """A large image is asked for in advance where it lies, not where it is widened."""
    factors = f"cast data=1,{channels},{size},{size}:f16 to=f32 + cast data=const:32,{channels},3,3:f16 to=f32"
    workload = parse_workload(f"{factors} + conv2d data=step1 weight=step2 pad=1 + relu + cast to=f16")
    parsed = Target.parse(target)
    check(workload, "winograd_f4", lookup("conv2d.winograd_f4").default(workload, parsed), parsed)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("algorithm", "text"),
    [
        ("winograd_f4", "relu data=1,32,13,9 + conv2d data=step1 weight=32,32,3,3 pad=1"),
        ("winograd_exact_f4", "relu data=1,32,13,9:u8 + conv2d data=step1 weight=32,32,3,3:i8 pad=1"),
    ],
)
def test_images_that_are_made_on_the_way(algorithm: str, text: str, target: str) -> None:
    check(parse_workload(text), algorithm, None, Target.parse(target))


def test_weights_that_are_made_on_the_way_are_not_known_before() -> None:
    workload = parse_workload("relu data=64,64,3,3:i8 + conv2d data=1,64,14,14:u8 weight=step1 pad=1")
    target = fixed("x86 -mcpu=znver3 -num-cores=1")
    assert not lookup("conv2d.winograd_exact_f4").applies(workload, target)


def test_a_strided_convolution_in_given_layouts() -> None:
    target = Target.parse(TARGETS[0])
    workload = parse_workload(f"conv2d {STRIDED}")
    blocked = Layout.blocked(4, [(1, target.lanes(4))])
    for border in ((0, 0), (4, 7)):
        image = blocked.with_halo([(0, 0), (0, 0), border, border])
        interface = Interface((image, Layout.row_major(4), Layout.row_major(4), blocked))
        check(workload, "winograd_f4", lookup("conv2d.winograd_f4").default(workload, target), target, interface)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("data=1,64,27,27 weight=192,64,5,5 pad=2", "conv2d.winograd_"),
        ("data=1,256,14,14 weight=512,256,3,3 pad=1 stride=2", ("sketch.contraction", "conv2d.direct")),
        ("data=1,96,54,54 weight=256,96,5,5 pad=1 stride=2", "conv2d.winograd_"),
    ],
)
def test_winograd_is_the_default_where_it_pays(text: str, first: str | tuple[str, ...]) -> None:
    workload = parse_workload(f"conv2d {text}")
    assert templates_for(workload, fixed("x86 -mcpu=znver4 -num-cores=2"))[0].name.startswith(first)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("data=1,64,56,56{} weight=64,64,3,3{} pad=1", "conv2d.winograd_"),
        ("data=1,512,7,7{} weight=512,512,3,3{} pad=1", "sketch.contraction"),
    ],
)
def test_products_of_16_bits_are_preferred_unless_winograd_is_clearly_faster(text: str, first: str) -> None:
    """Transforms, and weights in f32 that are larger, cost what multiplications save."""
    target = fixed("x86 -mcpu=znver4 -num-cores=1")
    x, w = (part.split("=")[1] for part in text.format(":bf16", ":bf16").split()[:2])
    chain = f"cast data={x} to=f32 + cast data=const:{w} to=f32 + conv2d data=step1 weight=step2 pad=1"
    assert templates_for(parse_workload(chain), target)[0].name.startswith(first)


def test_wider_halos_than_needed_and_a_halo_on_the_output() -> None:
    target = Target.parse(TARGETS[0])
    workload = conv(32, 32, 10, 9, "1", epilogue="+ residual")
    lanes = target.lanes(4)
    blocked = Layout.blocked(4, [(1, lanes)])
    wide = blocked.with_halo([(0, 0), (0, 0), (2, 5), (3, 6)])
    out = blocked.with_halo([(0, 0), (0, 0), (1, 3), (1, 2)])
    interface = Interface((wide, Layout.row_major(4), out, out))
    for algorithm in ALGORITHMS:
        check(workload, algorithm, lookup(f"conv2d.{algorithm}").default(workload, target), target, interface)


def first_layer(text: str) -> Workload:
    return parse_workload(f"conv2d {text}")


FIRST_LAYERS = (
    "data=1,3,40,65 weight=32,3,7,7 stride=2 pad=3 + bias + relu",
    "data=2,1,23,20 weight=16,1,5,5 stride=2 pad=0,1,2,0 + residual",
    "data=1,3,47,47 weight=64,3,11,11 stride=4 pad=2",
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", FIRST_LAYERS)
def test_first_layers(text: str, target: str) -> None:
    parsed, entry = Target.parse(target), lookup("conv2d.winograd_image")
    workload = first_layer(text)
    for image in ("whole", "row"):
        check(workload, "winograd_image", entry.default(workload, parsed).replace(image=image), parsed)


def test_a_large_image_is_taken_apart_row_by_row() -> None:
    target, entry = fixed("x86 -mcpu=znver4 -num-cores=2"), lookup("conv2d.winograd_image")
    small, large = (first_layer(f"data=1,3,{n},{n} weight=32,3,6,6 stride=2 pad=2") for n in (224, 640))
    assert [entry.default(w, target).get_str("image") for w in (small, large)] == ["whole", "row"]


def test_a_first_layer_in_given_layouts() -> None:
    target, entry = Target.parse(TARGETS[0]), lookup("conv2d.winograd_image")
    workload = first_layer(FIRST_LAYERS[0])
    image = Layout.row_major(4).with_halo([(0, 0), (0, 0), (3, 4), (5, 3)])
    out = Layout.blocked(4, [(1, target.lanes(4))]).with_halo([(0, 0), (0, 0), (1, 1), (1, 2)])
    interface = Interface((image, Layout.row_major(4), Layout.row_major(4), out))
    check(workload, "winograd_image", entry.default(workload, target), target, interface)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("data=1,3,224,224 weight=64,3,7,7 stride=2 pad=3", "conv2d.winograd_image"),
        ("data=1,3,224,224 weight=32,3,3,3 stride=2 pad=1", "conv2d.direct"),
        ("data=1,3,224,224 weight=64,3,3,3 pad=1", "conv2d.direct"),
    ],
)
def test_first_layers_are_winograd_where_it_pays(text: str, first: str) -> None:
    assert templates_for(first_layer(text), Target.parse("x86 -mcpu=znver4 -num-cores=2"))[0].name.startswith(first)


def test_an_empty_batch_is_no_case_for_it() -> None:
    on = Target.parse("x86 -mcpu=znver4 -num-cores=2")
    empty = parse_workload("conv2d data=0,16,5,5 weight=16,16,3,3 pad=1")
    assert not any("winograd" in t.name for t in templates_for(empty, on))


@pytest.mark.parametrize(
    ("text", "threads", "algorithm"),
    [
        ("512,7,7 weight=512,512", 1, "winograd_f2"),  # whose weights are the fewest bytes: memory decides
        ("64,56,56 weight=64,64", 1, "winograd_f6"),
        ("512,32,32 weight=256,512", 1, "winograd_f4"),
    ],
)
def test_the_default_tile_follows_from_image_and_weights(text: str, threads: int, algorithm: str) -> None:
    on = Target.parse(f"x86 -mcpu=znver4 -num-cores={threads}")
    first = templates_for(parse_workload(f"conv2d data=1,{text},3,3 pad=1"), on)[0]
    assert first.name == f"conv2d.{algorithm}"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_best_blocking_is_chosen(algorithm: str) -> None:
    target = Target.parse("x86 -mcpu=znver4 -num-cores=8")
    workload = conv(512, 512, 7, 7, "1")
    tile = winograd.TILES[algorithm]
    cost = Cost(sizes(workload), tile, target)
    best = cheapest(cost)
    for config in lookup(f"conv2d.{algorithm}").space(workload, target).enumerate():
        vectors, width, height, rows = (config.get_int(k) for k in ("oc_vectors", "tw_tile", "th_tile", "rows"))
        if vectors * (width * height + 1) < target.num_vector_registers:
            other = Blocking(vectors, width, height, rows, config.get_str("transform") == "once")
            assert cost.cycles(best) <= cost.cycles(other)


def test_two_steps_of_a_tile_that_fills_the_registers_write_sums_to_memory() -> None:
    """What `unrolled_steps` goes by; where LLVM does better one day, the rule can go."""
    target = Target.parse("x86 -mcpu=haswell -num-cores=1")
    workload, rules = parse_workload("conv2d data=1,32,14,14 weight=32,32,3,3 pad=1"), lookup("conv2d.winograd_f4x2")
    config = rules.default(workload, target).replace(oc_vectors=1, th_tile=2, tw_tile=7)
    one, two = (
        build_kernel(rules.schedule(workload, config.replace(ic_unroll=n), target), target).spills for n in (1, 2)
    )
    assert two >= one + 20


@pytest.mark.parametrize(
    ("name", "cpu", "inputs", "outputs"),
    [
        ("winograd_f2", "znver4", True, True),  # 4 x 4 points, and 2 x 4 when half is done
        ("winograd_f4", "znver4", False, True),  # 6 x 6 of 32 registers, then 4 x 6
        ("winograd_f6", "znver4", False, False),
        ("winograd_f2", "haswell", True, True),
        ("winograd_f4", "haswell", False, False),  # of 16
        ("winograd_f4_matrices", "znver4", False, True),
        ("winograd_f6_matrices", "znver4", False, False),
    ],
)
def test_transforms_are_written_out_where_registers_hold_a_tile(
    name: str, cpu: str, inputs: bool, outputs: bool
) -> None:
    workload, target = conv(64, 64, 28, 28, "1"), fixed(f"x86 -mcpu={cpu} -num-cores=1")
    config = lookup(f"conv2d.{name}").default(workload, target).replace(template=f"conv2d.{name}")
    text = print_program(lower(make_schedule(workload, config, target)))
    for stage, held in (("wino_t", inputs), ("wino_s", outputs)):
        assert f"{'register' if held else 'local'} {stage}: " in text
        assert (f"unroll for {stage}.nu in" in text) == held
        assert (f"  for {stage}.nu in" in text) != held


def test_rows_of_a_first_layer_store_no_part_of_a_vector_that_is_read_back() -> None:
    """A CPU forwards no such store to the load behind it."""
    workload = parse_workload("conv2d data=1,3,224,224 weight=32,3,3,3 pad=1 stride=2")
    name = "conv2d.winograd_image"
    config = lookup(name).default(workload, ZEN4).replace(template=name)
    lines = print_program(lower(make_schedule(workload, config, ZEN4))).splitlines()
    stores = [n for n, line in enumerate(lines) if line.lstrip().startswith("wino_t[")]
    assert stores
    assert not [lines[n - 1] for n in stores if lines[n - 1].lstrip().startswith("if ")]
