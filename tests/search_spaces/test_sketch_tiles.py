"""Sketches of products of tiles (AMX): chosen where it pays, the definition on any CPU, and right where they run."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.codegen.jit import assembly
from autotune.codegen.kernel import generate
from autotune.lower import lower
from autotune.measure.reference import sample
from autotune.ops import parse_workload
from autotune.ops.workload import TensorType, Workload
from autotune.search_spaces import Config, lookup
from autotune.search_spaces.operators.conv2d_shape import channel_block
from autotune.search_spaces.sketch.space import SketchSpace
from autotune.target import Target
from autotune.tensor.evaluate import evaluate
from tests.lower.loop_interpreter import execute
from tests.search_spaces.matmul_cases import wrong
from tests.targets import fixed

SERVER = fixed("x86 -mcpu=graniterapids -num-cores=1")
EXTENTS = (1, 2, 5, 8, 16, 17, 33, 49, 64, 128)
DEPTHS = (3, 4, 12, 30, 64, 100, 128, 192, 256, 320)


def tile_config(workload: Workload, target: Target, rng: random.Random) -> Config | None:
    """A config with an instruction on tiles; None where none is drawn."""
    template = lookup("sketch.contraction")
    if not template.applies(workload, target):
        return None
    space = template.space(workload, target)
    assert isinstance(space, SketchSpace)
    if not any(f.dot.tiled for f in space.numbers.c.foldings):
        return None
    drawn = (space.sample(rng) for _ in range(100))
    return next((config for config in drawn if config.get_str("dot").startswith("tdp")), None)


def random_product(rng: random.Random, types: tuple[tuple[str, str], ...]) -> Workload:
    left, right = rng.choice(types)
    m, n, k, batch = rng.choice(EXTENTS), rng.choice(EXTENTS), rng.choice(DEPTHS), rng.choice(("", "", "3,"))
    b = f"const:{k},{n}" if rng.random() < 0.6 else f"var:{batch}{k},{n}"
    return parse_workload(f"matmul a={batch}{m},{k}:{left} b={b}:{right}")


def random_convolution(rng: random.Random, types: tuple[tuple[str, str], ...]) -> Workload:
    left, right = rng.choice(types)
    channels, filters = rng.choice((3, 4, 16, 24, 32, 64, 128)), rng.choice((8, 16, 20, 32, 64))
    h, w = rng.choice(((7, 7), (8, 14), (5, 28), (3, 17), (9, 33)))
    window, stride = rng.choice((1, 1, 3)), rng.choice((1, 1, 2))
    data, weight = f"{rng.choice((1, 2))},{channels},{h},{w}", f"{filters},{channels},{window},{window}"
    return parse_workload(f"conv2d data={data}:{left} weight={weight}:{right} stride={stride} pad={window // 2}")


def right(workload: Workload, seed: int) -> None:
    target, rng = Target.parse("native -num-cores=2"), random.Random(seed)
    config = tile_config(workload, target, rng)
    if config is not None:
        failure = wrong(workload, lookup("sketch.contraction").schedule(workload, config, target, None), target)
        assert failure is None, f"{workload.to_json()} {config.to_json()}: {failure}"


@pytest.mark.isa("amx-int8")
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_tilings_of_bytes(seed: int) -> None:
    rng, types = random.Random(seed), (("u8", "i8"), ("i8", "u8"), ("i8", "i8"), ("u8", "u8"))
    right(rng.choice((random_product, random_convolution))(rng, types), seed)


@pytest.mark.isa("amx-bf16")
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_tilings_of_bf16(seed: int) -> None:
    rng = random.Random(seed)
    right(rng.choice((random_product, random_convolution))(rng, (("bf16", "bf16"),)), seed)


@pytest.mark.parametrize(
    "text",
    [
        "matmul a=17,8:u8 b=const:8,20:i8",
        "matmul a=9,12:i8 b=var:12,17:i8",
        "matmul a=5,4:bf16 b=const:4,16:bf16",
        "conv2d data=1,4,3,5:u8 weight=16,4,3,3:i8 stride=1 pad=1",
        "conv2d data=1,3,2,9:i8 weight=8,3,1,1:i8 stride=2 pad=0",
        "matmul a=6,4:f16 b=const:4,9:f16",
    ],
)
def test_the_nest_means_the_definition_on_any_cpu(text: str) -> None:
    """Executed point by point; the instructions are those of a CPU that need not be here."""
    workload = parse_workload(text)
    config = tile_config(workload, SERVER, random.Random(0))
    assert config is not None
    schedule = lookup("sketch.contraction").schedule(workload, config, SERVER, None)
    rng = np.random.default_rng(0)
    inputs = {t.name: sample(TensorType(t.dtype.value, t.shape), rng) for t in schedule.compute.inputs}
    found = execute(lower(schedule), inputs)
    for name, expected in evaluate(schedule.compute, inputs).items():
        np.testing.assert_allclose(found[name].astype(np.float64), expected.astype(np.float64), rtol=1e-2, atol=1e-2)


def chosen(text: str, target: Target = SERVER) -> str:
    return lookup("sketch.contraction").default(parse_workload(text), target).get_str("dot")


def test_tiles_are_the_untuned_choice_where_there_are_rows_for_them() -> None:
    assert chosen("matmul a=128,768:u8 b=const:768,768:i8") == "tdpbusd"
    assert chosen("matmul a=128,768:i8 b=const:768,768:i8") == "tdpbssd"
    assert chosen("matmul a=128,768:bf16 b=const:768,768:bf16") == "tdpbf16ps"
    assert chosen("conv2d data=1,64,56,56:u8 weight=64,64,3,3:i8 pad=1") == "tdpbusd"
    assert not chosen("matmul a=1,768:u8 b=const:768,768:i8").startswith("tdp")
    assert (
        chosen("matmul a=128,768:u8 b=const:768,768:i8", fixed("x86 -mcpu=icelake-server -num-cores=1")) == "vpdpbusd"
    )


@pytest.mark.parametrize(
    ("types", "name"), [(("u8", "i8"), "tdpbusd"), (("i8", "u8"), "tdpbsud"), (("f16", "f16"), "tdpfp16ps")]
)
def test_the_instructions_are_in_the_code(types: tuple[str, str], name: str) -> None:
    workload = parse_workload(f"matmul a=128,256:{types[0]} b=const:256,128:{types[1]}")
    config = tile_config(workload, SERVER, random.Random(1))
    assert config is not None
    source = generate(lookup("sketch.contraction").schedule(workload, config, SERVER, None), SERVER)
    text = assembly(source.ir, cpu=SERVER.cpu, features=SERVER.llvm_features)
    assert f"\t{name}\t" in text and "\ttilerelease" in text


@pytest.mark.parametrize(
    ("channels", "dtype", "block"),
    [
        (64, "u8", 64),
        (96, "u8", 48),
        (24, "u8", 16),
        (64, "f32", 16),
    ],
)
def test_channels_lie_together_as_long_as_a_row_of_a_tile(channels: int, dtype: str, block: int) -> None:
    operand = TensorType(dtype, (1, channels, 7, 7))
    assert channel_block(operand, SERVER) == block
    assert channel_block(operand, fixed("x86 -mcpu=icelake-server -num-cores=1")) == 16
