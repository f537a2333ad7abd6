"""Sketches of sums of scaled parts: every format, any tile, on both vector widths."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.codegen.jit import assembly
from autotune.codegen.kernel import generate
from autotune.ops import parse_workload
from autotune.ops.coded import BYTES, WORDS
from autotune.search_spaces import lookup, make_schedule
from autotune.search_spaces.sketch.scaled import scaled_sum
from autotune.target import Target
from tests.search_spaces.coded_cases import coded, random_coded
from tests.search_spaces.matmul_cases import check, wrong
from tests.targets import fixed

TARGETS = ("native -num-cores=2", "x86 -mcpu=haswell -num-cores=2")
WIDE = fixed("x86 -mcpu=x86-64-v4")
NAME = "sketch.scaled"


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_tiles_of_random_products(seed: int) -> None:
    rng = random.Random(seed)
    workload, target = random_coded(rng), Target.parse(rng.choice(TARGETS))
    template = lookup(NAME)
    config = template.space(workload, target).sample(rng)
    failure = wrong(workload, template.schedule(workload, config, target, None), target)
    assert failure is None, f"{workload.to_json()} {config.to_json()}: {failure}"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", [*WORDS, *BYTES])
def test_untuned_choices_are_right(form: str, target: str) -> None:
    workload, chosen = coded(3, 70, 200, 32, form, zero="u8"), Target.parse(target)
    check(workload, lookup(NAME).default(workload, chosen).replace(template=NAME), chosen)


def test_one_row_is_decoded_once_and_loaded_whole() -> None:
    """Of a word of sixteen columns: a load, shifts and permutations in place of masks, conversions and differences."""
    workload = coded(1, 256, 256, 32, "i4")
    config = lookup(NAME).default(workload, WIDE).replace(template=NAME)
    text = assembly(generate(make_schedule(workload, config, WIDE), WIDE).ir, cpu=WIDE.cpu, features=WIDE.llvm_features)
    counts = {name: len(re.findall(rf"^\t{name}\t", text, re.MULTILINE))
              for name in ("vperm(?:ps|d)", "vpsrld", "vpandd", "vcvtdq2ps", "vgatherdps")}  # fmt: skip
    tile = config.get_int("vectors") * config.get_int("unroll") * 8
    shifted = tile - tile // 8  # the first code of a word lies lowest
    assert counts == {"vperm(?:ps|d)": tile, "vpsrld": shifted, "vpandd": 0, "vcvtdq2ps": 0, "vgatherdps": 0}


def test_a_tile_reads_on_at_as_many_places_as_it_has_vectors() -> None:
    workload = coded(1, 256, 256, 32, "i8")
    found = scaled_sum(workload)
    assert found is not None
    for name in found.panels:
        tensor = found.schedule.state.tensor(name)
        rows, columns = tensor.shape[:-1], tensor.shape[-1]
        assert found.panel(tensor, 16, 4).physical_shape(tensor.shape) == (4, columns // 64, *rows, 16)
        assert found.panel(tensor, 16, 1).physical_shape(tensor.shape) == (columns // 16, *rows, 16)


def test_what_is_no_sum_of_scaled_parts() -> None:
    for text in ("matmul a=4,64 b=64,32", "softmax data=8,16", "conv2d data=1,8,9,9 weight=8,8,3,3"):
        assert scaled_sum(parse_workload(text)) is None
