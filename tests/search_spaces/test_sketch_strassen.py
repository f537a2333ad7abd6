"""Strassen's products: right for any sizes that can be cut, and chosen where they save more than they move."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.lower import lower
from autotune.lower.printer import print_program
from autotune.ops import parse_workload
from autotune.ops.strassen import OPERATORS
from autotune.search_spaces import lookup, templates_for
from autotune.search_spaces.sketch.batch import Batch
from autotune.search_spaces.sketch.space import SketchSpace
from autotune.target import Target
from tests.search_spaces.matmul_cases import TARGETS, check_drawn
from tests.search_spaces.strassen_cases import random_halves
from tests.targets import fixed

FLOATS, EXACT = "matmul.strassen", "matmul.strassen_exact"
ZEN3 = fixed("x86 -mcpu=znver3 -num-cores=1")
ZEN4 = fixed("x86 -mcpu=znver4 -num-cores=1")
LAYER = "matmul a=1,128,768 b=768,3072 + add b=const:3072"
SMALL_IMAGE = "conv2d data=1,512,7,7 weight=2048,512,1,1"
OF_BYTES = "matmul a=1,128,768:u8 b=768,3072:i8"


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_products(seed: int) -> None:
    rng = random.Random(seed)
    exact = rng.random() < 0.5
    op = rng.choice(OPERATORS)
    workload, target = random_halves(rng, op, exact=exact), Target.parse(rng.choice(TARGETS))
    check_drawn(f"{op}.strassen{'_exact' if exact else ''}", workload, target, rng)


@pytest.mark.parametrize("target", [ZEN3, ZEN4])
def test_layers_of_transformers_are_multiplied_so(target: Target) -> None:
    ranked = [entry.name for entry in templates_for(parse_workload(LAYER), target)]
    assert ranked[:2] == [FLOATS, "sketch.contraction"]
    strict = [entry.name for entry in templates_for(parse_workload(LAYER), target, strict_fp=True)]
    assert FLOATS not in strict and strict[0] == "sketch.contraction"


def test_bytes_are_where_pairs_of_16_bits_are_all_there_is() -> None:
    workload = parse_workload(OF_BYTES)
    assert templates_for(workload, ZEN3, strict_fp=True)[0].name == EXACT
    assert not lookup(EXACT).applies(workload, ZEN4), "which multiplies bytes by fours"


@pytest.mark.parametrize(
    "text",
    [
        "matmul a=128,768 b=var:768,768",  # sums of quarters would be made in each run
        "matmul a=1,768 b=768,768",  # one row
        "matmul a=128,767 b=767,768",
        "matmul a=128,64 b=64,768",  # sums of a few terms
        "matmul a=128,768 b=768,770",  # half of it has no whole vectors
        "matmul a=128,128:f64 b=128,128:f64",
        "matmul a=3,128,128 b=const:3,128,128",  # a matrix for each
    ],
)
def test_others_are_multiplied_as_they_are(text: str) -> None:
    assert not lookup(FLOATS).applies(parse_workload(text), ZEN3)


def test_few_columns_are_multiplied_as_they_are() -> None:
    """What moves in between takes longer than an eighth of the products."""
    assert templates_for(parse_workload("matmul a=512,64 b=64,64"), ZEN3)[0].name == "sketch.contraction"


def test_sums_of_quarters_are_made_in_registers_and_rows_are_shared() -> None:
    workload, target = parse_workload(LAYER), fixed("x86 -mcpu=znver3 -num-cores=4")
    template = lookup(FLOATS)
    text = print_program(
        lower(template.schedule(workload, template.default(workload, target), target, None), check=False)
    )
    assert "input strassen_u: f32[7, 384, 1536]" in text and "constant" in text
    assert "register strassen_v.c: f32[7, 1, 1, 1, 8]" in text and "register strassen_y: f32[4, 1, 1, 1, 8]" in text
    assert text.count("  barrier") == 2 and "parallel for strassen_v.b0*i in 0..64" in text


def test_loops_of_one_turn_do_not_count_among_those_that_threads_share() -> None:
    """The one name of a nest keeps what was said of it: seven products alone would leave a thread without its half."""
    target = fixed("x86 -mcpu=znver3 -num-cores=2")
    space = lookup(FLOATS).space(parse_workload(LAYER), target)
    assert isinstance(space, SketchSpace)
    config = space.default().replace(outer=(0, 3, 2), shared=2, **{"block.i": 0})
    named = space.canonical(config)
    assert named.get("outer") == (2, 0, 3) and named.get("shared") == 3
    tilings = [space.tiling(one) for one in (config, named)]
    plain, same = space.numbers.of(Batch.of(space.numbers.c, tilings))
    np.testing.assert_allclose(plain, same)


def test_weights_that_come_slowly_are_not_made_more() -> None:
    """Seven quarters in place of four, of a product that takes no longer than to read them: 4 bytes a cycle."""
    server = fixed("x86 -mcpu=icelake-server -num-cores=1")
    assert not templates_for(parse_workload(SMALL_IMAGE), server)[0].name.endswith("strassen")
    slow = replace(server, core=replace(server.core, dram=server.core.dram / 4))
    assert not templates_for(parse_workload(LAYER), slow)[0].name.endswith("strassen")


def test_whole_tiles_of_small_images_count_for_it() -> None:
    """Rows of 7 pixels leave tiles of the plain sum short, 49 pixels hardly do: 1.3 times as fast, measured (Zen 3)."""
    for text in ("conv2d data=1,992,7,7 weight=128,992,1,1", SMALL_IMAGE):
        assert templates_for(parse_workload(text), ZEN3)[0].name == "conv2d.strassen"
    large = parse_workload("conv2d data=1,256,56,56 weight=64,256,1,1")  # where the passes take more than it saves
    assert templates_for(large, ZEN3)[0].name != "conv2d.strassen"


@pytest.mark.parametrize("whole", [True, False])
def test_panels_lie_as_they_are_read(whole: bool) -> None:
    """All panels of a product one behind the other where a block has all columns, else a panel of all products."""
    workload = parse_workload("matmul a=128,768 b=768,768")
    knobs = {"block.p": 1, "block.i": 0, "block.j": 0 if whole else 1, "outer": (2, 1, 0), "inner": (0, 1, 2)}
    config = lookup(FLOATS).default(workload, ZEN4).replace(**knobs)
    state = lookup(FLOATS).schedule(workload, config, ZEN4).state
    order = [dimension for dimension, _ in state.layout(state.tensor("strassen_u")).order]
    product, column = order.index(0), order.index(2)
    assert product < column if whole else column < product
