"""Products of f32 in pieces of bf16: right for any sizes, on tiles alone, and chosen where they are faster."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.codegen.jit import assembly
from autotune.codegen.kernel import generate
from autotune.lower import lower
from autotune.lower.printer import print_program
from autotune.measure.reference import sample
from autotune.ops import parse_workload
from autotune.ops.pieces import NAME, OPERATORS
from autotune.ops.workload import TensorType
from autotune.search_spaces import lookup, templates_for
from autotune.search_spaces.sketch.batch import Batch
from autotune.search_spaces.sketch.space import SketchSpace
from autotune.search_spaces.sketch.windows import Windows
from autotune.target import Target
from autotune.tensor import DType
from autotune.tensor.evaluate import evaluate
from tests.lower.loop_interpreter import execute
from tests.search_spaces.matmul_cases import check_drawn
from tests.search_spaces.pieces_cases import random_product
from tests.targets import fixed

SERVER = fixed("x86 -mcpu=graniterapids -num-cores=1")
ZEN5 = fixed("x86 -mcpu=znver5 -num-cores=1")
LAYER = "matmul a=1,128,768 b=768,3072 + add b=const:3072"
WINDOWS = "conv2d data=1,256,14,14 weight=256,256,1,1 + bias + relu"


@pytest.mark.isa("amx-bf16")
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_products(seed: int) -> None:
    rng = random.Random(seed)
    op = rng.choice(OPERATORS)
    workload, target = random_product(rng, op), Target.parse(f"native -num-cores={rng.choice((1, 2))}")
    check_drawn(f"{op}.{NAME}", workload, target, rng)


@pytest.mark.parametrize(
    "text",
    [
        "matmul a=17,24 b=const:24,20",
        "matmul a=2,5,33 b=const:2,33,8 + bias",
        "conv2d data=1,9,2,3 weight=16,9,2,2 pad=1 + relu",
        "conv1d data=1,40,9 weight=8,40,2 stride=2",
    ],
)
def test_the_nest_means_the_definition_on_any_cpu(text: str) -> None:
    """Executed point by point; the instructions are those of a CPU that need not be here."""
    workload = parse_workload(text)
    template = lookup(f"{text.split()[0]}.{NAME}")
    schedule = template.schedule(workload, template.default(workload, SERVER), SERVER, None)
    rng = np.random.default_rng(0)
    inputs = {t.name: sample(TensorType(t.dtype.value, t.shape), rng) for t in schedule.compute.inputs}
    found = execute(lower(schedule), inputs)
    plain = lookup("plain").schedule(workload, lookup("plain").default(workload, SERVER), SERVER, None).compute
    for name, expected in evaluate(plain, inputs, DType.f64).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("text", [LAYER, WINDOWS])
def test_they_are_the_untuned_choice_where_tiles_multiply_bf16(text: str) -> None:
    workload, name = parse_workload(text), f"{text.split()[0]}.{NAME}"
    assert templates_for(workload, SERVER)[0].name == name
    assert name not in [entry.name for entry in templates_for(workload, SERVER, strict_fp=True)]
    assert not lookup(name).applies(workload, ZEN5), "which multiplies bf16 no more than twice as fast"


@pytest.mark.parametrize(
    "text",
    [
        "matmul a=128,768 b=var:768,768",  # a weight of the run
        "matmul a=128,768:f64 b=768,768:f64",
        "matmul a=128,768:bf16 b=768,768:bf16",
        "conv2d data=1,64,14,14 weight=64,1,3,3 groups=64 pad=1",
        "matmul a=1,768 b=768,768",  # no rows for tiles
        "cast data=128,768:bf16 to=f32 + cast data=const:768,768:bf16 to=f32 + matmul a=step1 b=step2",  # as it is
    ],
)
def test_others_are_multiplied_as_they_are(text: str) -> None:
    workload = parse_workload(text)
    assert workload.anchor is not None
    assert not lookup(f"{workload.anchor.op}.{NAME}").applies(workload, SERVER)


def test_six_products_of_nine_are_made_and_nothing_but_tiles_is_tried() -> None:
    workload, template = parse_workload(LAYER), lookup(f"matmul.{NAME}")
    space = template.space(workload, SERVER)
    assert isinstance(space, SketchSpace)
    rng = random.Random(0)
    drawn = [space.sample(rng) for _ in range(50)]
    assert {config.get("dot") for config in drawn} == {"tdpbf16ps"} and {config.get("skip") for config in drawn} == {1}
    batch = Batch.of(space.numbers.c, [space.tiling(config) for config in drawn])
    np.testing.assert_allclose(Windows(space.numbers.c, batch).kept(), 6 / 9)


def test_pieces_are_made_once_and_weights_before_any_run() -> None:
    workload, template = parse_workload(LAYER), lookup(f"matmul.{NAME}")
    config = template.default(workload, SERVER).replace(terms=(2, 1, 0, 3))
    schedule = template.schedule(workload, config, SERVER, None)
    text = print_program(lower(schedule, check=False))
    assert "input pieces_u: bf16[3, 768, 3072]" in text and "constant" in text
    assert "shared pieces_v: bf16[1, 24, 3, 128, 32]" in text and text.count("  barrier") == 1
    source = generate(schedule, SERVER)
    code = assembly(source.ir, cpu=SERVER.cpu, features=SERVER.llvm_features)
    assert "\ttdpbf16ps\t" in code and "\tvcvtneps2bf16\t" in code


def test_the_next_panels_of_weights_are_asked_for_not_the_next_pieces() -> None:
    """All rows read a panel again: what the loops over pieces come to next is there by then."""
    workload, template, server = parse_workload(LAYER), lookup(f"matmul.{NAME}"), replace(SERVER, l2_bytes=1 << 21)
    known = {"tile": (1, 2, 2), "terms": (2, 0, 1, 3), "block.i": 0, "block.j": 1, "outer": (1, 2)}
    config = template.default(workload, server).replace(**known, stream=True, ahead=0)
    text = print_program(lower(template.schedule(workload, config, server, None), check=False))
    asked = [line for line in text.splitlines() if "prefetch to L2 pieces_u" in line]
    assert asked and f"+ {3 * 768 * 32}]" in asked[0], asked[:1]
