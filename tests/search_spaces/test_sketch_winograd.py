"""Winograd's products of matrices: right for any sizes, blocks and tilings, rounded only where that is allowed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.lower import lower
from autotune.lower.printer import print_program
from autotune.ops import parse_workload, winograd
from autotune.ops.workload import Workload
from autotune.search_spaces import lookup, make_schedule, templates_for
from autotune.search_spaces.operators.conv2d_shape import sizes
from autotune.search_spaces.sketch.winograd import Block, block_of
from autotune.search_spaces.space import registry
from autotune.target import Target
from tests.search_spaces.conv_cases import check
from tests.search_spaces.volume_cases import random_volume
from tests.targets import fixed

TARGETS = ("native -num-cores=1", "native -num-cores=2", "x86 -mcpu=haswell -num-cores=2")
TILES = ("f2", "f4x2", "f4", "f5", "f6")
ZEN4 = fixed("x86 -mcpu=znver4 -num-cores=1")


def conv(c: int, k: int, h: int, w: int, rest: str = "pad=1", batch: int = 1) -> Workload:
    return parse_workload(f"conv2d data={batch},{c},{h},{w} weight={k},{c},3,3 {rest}")


def checked(workload: Workload, name: str, target: Target, rng: random.Random) -> bool:
    """Whether the template applies, whose default and a random config then compute the workload."""
    entry = lookup(name)
    if not entry.applies(workload, target):
        return False
    for config in (entry.default(workload, target), entry.space(workload, target).sample(rng)):
        check(workload, config.replace(template=name), target)
    return True


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_sizes(seed: int) -> None:
    rng = random.Random(seed)
    target, form = Target.parse(rng.choice(TARGETS)), rng.choice(("matrices", "bf16"))
    rest = rng.choice(("", "+ bias", "+ bias + relu", "+ bias + residual + relu"))
    pad = rng.choice(("0", "1", "0,1,1,0", "2", "0,0,2,1"))
    rounded = "rounded=8" if form == "bf16" else ""
    h, w = rng.choice((3, 4, 5, 7, 8, 11, 13, 14)), rng.choice((3, 4, 6, 7, 9, 13, 16))
    channels = (rng.choice((16, 32, 48)), rng.choice((16, 32, 64)))
    workload = conv(*channels, h, w, f"pad={pad} {rounded} {rest}", rng.choice((1, 1, 2, 3)))
    checked(workload, f"conv2d.winograd_{rng.choice(TILES)}_{form}", target, rng)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_volumes(seed: int) -> None:
    rng = random.Random(seed)
    target = Target.parse(rng.choice(TARGETS))
    form = rng.choice(("matrices", "bf16"))
    workload = random_volume(rng, False, "rounded=8" if form == "bf16" else "")
    checked(workload, f"conv3d.winograd_{rng.choice(TILES)}_{form}", target, rng)


@pytest.mark.parametrize("window", ["64,32,5,5 pad=2", "64,32,5,5 pad=2 stride=2", "64,32,3,3 pad=1 stride=2"])
@pytest.mark.parametrize("target", TARGETS)
def test_other_windows_and_strides(window: str, target: str) -> None:
    workload = parse_workload(f"conv2d data=1,32,17,19 weight={window}")
    assert checked(workload, "conv2d.winograd_f4_matrices", Target.parse(target), random.Random(0))


@pytest.mark.parametrize(
    ("image", "block"),
    [
        ("1,64,112,112", Block(1, 1)),  # rows of tiles of an image whose transformed tiles fill no cache
        ("16,64,28,28", Block(1, 5)),  # one image of many after the other
        ("1,64,12,12", None),
    ],
)
def test_what_caches_hold_goes_through_all_steps_at_once(image: str, block: Block | None) -> None:
    workload = parse_workload(f"conv2d data={image} weight=64,64,3,3 pad=1")
    assert block_of(sizes(workload), winograd.TILES["winograd_f6"], None, ZEN4) == block


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", ["matrices", "bf16"])
@pytest.mark.parametrize(("batch", "side"), [(1, 114), (6, 40)])
def test_blocks_of_rows_and_of_images(batch: int, side: int, form: str, target: str) -> None:
    rounded = "rounded=6" if form == "bf16" else ""
    workload, parsed = conv(64, 64, side, side, f"pad=1 {rounded} + bias + relu", batch), Target.parse(target)
    applies = checked(workload, f"conv2d.winograd_f4_{form}", parsed, random.Random(side))
    assert applies or form == "bf16"


def test_blocks_have_no_code_for_the_rest_of_a_tile() -> None:
    """Where a block ends is another place in each turn."""
    workload = conv(64, 64, 224, 224)
    entry = lookup("conv2d.winograd_f4_matrices")
    config = entry.default(workload, ZEN4).replace(template=entry.name)
    text = print_program(lower(make_schedule(workload, config, ZEN4)))
    assert "local wino_m" in text and " if " not in text


@pytest.mark.parametrize("filters", [192, 224, 256])
def test_filters_leave_no_vector_over(filters: int) -> None:
    """It would be a panel of its own for each point."""
    space = lookup("conv2d.winograd_f5_matrices").space(conv(256, filters, 14, 14), ZEN4)
    (tiles,) = (knob.values for knob in space.knobs if knob.name == "tile")
    widths = {tile[-1] for tile in tiles if isinstance(tile, tuple)}
    assert len(widths) > 2 and all(filters % (16 * width) == 0 for width in widths)


def test_it_is_rounded_only_where_a_convolution_allows_it() -> None:
    names = [entry.name for entry in templates_for(conv(64, 64, 56, 56), ZEN4)]
    assert not any(name.endswith("_bf16") for name in names)
    few = {entry.name for entry in templates_for(conv(64, 64, 56, 56, "pad=1 rounded=4"), ZEN4)}
    assert {name for name in few if name.endswith("_bf16")} == {"conv2d.winograd_f2_bf16"}
    more = [entry.name for entry in templates_for(conv(64, 64, 56, 56, "pad=1 rounded=6"), ZEN4)]
    assert more[0] == "conv2d.winograd_f4_bf16"
    strict = templates_for(conv(64, 64, 56, 56, "pad=1 rounded=6"), ZEN4, strict_fp=True)
    assert not any("winograd" in entry.name for entry in strict)


def test_cpus_without_an_instruction_for_bf16_round_nothing() -> None:
    zen3 = fixed("x86 -mcpu=znver3 -num-cores=1")
    names = [entry.name for entry in templates_for(conv(64, 64, 56, 56, "pad=1 rounded=6"), zen3)]
    assert not any(name.endswith("_bf16") for name in names)


def test_without_templates_of_its_own_a_convolution_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are such, which are faster so far, neither untuned kernels nor the search look at it."""
    names = [entry.name for entry in templates_for(conv(64, 64, 56, 56), ZEN4)]
    assert not any(name.endswith("_matrices") for name in names)
    own = {"conv2d.direct", *(f"conv2d.winograd_{tile}" for tile in TILES)}
    assert own <= set(names)
    left = {name: lookup(name) for name in registry.names() if name not in own}
    monkeypatch.setattr(registry, "_TEMPLATES", left)
    assert templates_for(conv(256, 256, 14, 14), ZEN4)[0].name.endswith("_matrices")
    assert templates_for(conv(64, 64, 56, 56), ZEN4)[0].name.endswith("_matrices")
