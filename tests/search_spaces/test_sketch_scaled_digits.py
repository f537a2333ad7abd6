"""Sketches of products with coded weights in digits: any tile of any such product, and the instructions they are."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.codegen.jit import assembly
from autotune.codegen.kernel import generate
from autotune.search_spaces import lookup, make_schedule, task_space
from autotune.search_spaces.sketch.scaled_digits import instruction
from autotune.target import Target
from tests.search_spaces.coded_cases import coded, random_coded
from tests.search_spaces.matmul_cases import check, wrong
from tests.targets import fixed

NAME = "sketch.scaled_digits"


@pytest.mark.isa("avx512vnni")
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_tiles_of_random_products(seed: int) -> None:
    rng, target = random.Random(seed), Target.parse(f"native -num-cores={1 + seed % 3}")
    template, workload = lookup(NAME), random_coded(rng)
    if not template.applies(workload, target):
        return
    config = template.space(workload, target).sample(rng)
    failure = wrong(workload, template.schedule(workload, config, target, None), target)
    assert failure is None, f"{workload.to_json()} {config.to_json()}: {failure}"


@pytest.mark.isa("avx512vnni")
@pytest.mark.parametrize("form", ["i4", "u4", "i2", "u2"])
@pytest.mark.parametrize(("rows", "depth", "block"), [(1, 200, 32), (3, 200, 32), (17, 512, 512), (2, 96, 16)])
def test_untuned_choices_are_right(rows: int, depth: int, block: int, form: str) -> None:
    target = Target.parse("native -num-cores=2")
    for zero, columns in (("u8", 70), ("", 64)):
        workload = coded(rows, columns, depth, block, form, zero=zero)
        check(workload, lookup(NAME).default(workload, target).replace(template=NAME), target)


@pytest.mark.parametrize(("cpu", "names"), [("znver4", "zmm"), ("alderlake", "ymm"), ("sapphirerapids", "zmm")])
def test_codes_are_masked_and_nothing_else(cpu: str, names: str) -> None:
    """Of a word of a vector: two masks, a shift, three products for each; the instruction as the CPU has it."""
    target = fixed(f"x86 -mcpu={cpu}")
    workload = coded(1, 256, 256, 32, "i4")
    config = lookup(NAME).default(workload, target).replace(template=NAME)
    text = assembly(
        generate(make_schedule(workload, config, target), target).ir, cpu=target.cpu, features=target.llvm_features
    )
    tile = config.get_int("vectors") * config.get_int("unroll")
    assert len(re.findall(rf"^\t(?:{{vex}} ?)?\t?vpdpbusd\t.*%{names}", text, re.MULTILINE)) == 6 * tile
    assert not re.findall(r"^\tvperm(?:ps|d)\t", text, re.MULTILINE)


def test_where_there_is_no_such_instruction() -> None:
    """Neither for words that stand for no integers, nor for CPUs that widen bytes before they multiply."""
    haswell, vnni = fixed("x86 -mcpu=haswell"), fixed("x86 -mcpu=icelake-server")
    assert instruction(haswell) is None and instruction(vnni) is not None
    assert not lookup(NAME).applies(coded(1, 64, 64, 32, "i4"), haswell)
    for form in ("nf4", "f4e2m1", "i8"):
        assert not lookup(NAME).applies(coded(1, 64, 64, 32, form), vnni)


def test_what_an_untuned_token_takes() -> None:
    """On a core that multiplies four bytes in the time of a float."""
    target, workload = fixed("x86 -mcpu=znver4"), coded(1, 768, 768, 32, "i4")
    assert task_space(workload, target).default().template == NAME
    assert task_space(workload, target, strict_fp=True).default().template == "sketch.scaled"
