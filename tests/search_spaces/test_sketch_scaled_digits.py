"""Sketches of products with coded weights in digits: any tile of any such product, and the instructions they are."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.codegen.jit import assembly
from autotune.codegen.kernel import generate
from autotune.ops import parse_workload
from autotune.search_spaces import default_config, lookup, make_schedule, task_space
from autotune.search_spaces.sketch.scaled_digits import instruction
from autotune.target import Target
from tests.search_spaces.coded_cases import coded, random_coded
from tests.search_spaces.matmul_cases import check, wrong
from tests.targets import fixed

NAME = "sketch.scaled_digits"


@pytest.mark.isa("avx2")
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


@pytest.mark.isa("avx2")
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


@pytest.mark.parametrize("ahead", [0, 32, 128])
def test_scales_lie_behind_the_words_of_their_block(ahead: int) -> None:
    """One constant is read, and where lines of it are asked for, no row of a block is left out."""
    target, workload = fixed("x86 -mcpu=znver4 -num-cores=2"), coded(1, 256, 256, 32, "i4")
    config = lookup(NAME).default(workload, target).replace(template=NAME)
    assert config.get_int("ahead") == 0
    schedule = make_schedule(workload, config.replace(ahead=ahead), target)
    program = generate(schedule, target).program
    (panel,) = (o for o in program.operands if o.constant)
    assert panel.shape == (8, 5, 256) and panel.prepared is not None
    blocks = {s.name: [f.distance for f in s.prefetch] for s in schedule.state.stages if s.prefetch}
    rows, unroll = 5, config.get_int("unroll")
    assert blocks == ({} if not ahead else blocks) and len(blocks) == (2 if ahead else 0)
    if ahead:
        part, total = sorted(blocks.values(), reverse=True)
        assert [d * unroll for d in part] == [d * rows for d in total]


@pytest.mark.parametrize(("depth", "block", "scale"), [(512, 512, "f32"), (256, 32, "f16")])
def test_other_scales_lie_apart(depth: int, block: int, scale: str) -> None:
    """One for a whole column is read once; those of 16 bits would grow."""
    target = fixed("x86 -mcpu=znver4")
    text = (
        f"matmul_coded a=1,{depth} codes={depth // 8},64:u32 scale={depth // block},64:{scale} block={block} format=i4"
    )
    workload = parse_workload(text)
    config = lookup(NAME).default(workload, target).replace(template=NAME)
    program = generate(make_schedule(workload, config, target), target).program
    assert len([o for o in program.operands if o.constant]) == 2


def test_where_there_is_no_such_instruction() -> None:
    """Not for words that stand for no integers."""
    haswell, vnni = fixed("x86 -mcpu=haswell"), fixed("x86 -mcpu=icelake-server")
    assert [instruction(target).name for target in (haswell, vnni)] == ["vpmaddubsw", "vpdpbusd"]
    for form in ("nf4", "f4e2m1", "i8"):
        assert not lookup(NAME).applies(coded(1, 64, 64, 32, form), vnni)


@pytest.mark.parametrize("cpu", ["haswell", "znver3"])
def test_pairs_are_added_up_once_a_block(cpu: str) -> None:
    """AVX2: of each digit and vector, all products of pairs in a turn: 16 bits hold 8 of them."""
    target, workload = fixed(f"x86 -mcpu={cpu}"), coded(1, 256, 256, 32, "i4")
    assert default_config(workload, target).template == NAME
    config = lookup(NAME).default(workload, target).replace(template=NAME)
    text = assembly(
        generate(make_schedule(workload, config, target), target).ir, cpu=target.cpu, features=target.llvm_features
    )
    sums = 3 * config.get_int("vectors")
    assert text.count("\tvpmaddubsw\t") == 2 * config.get_int("unroll") * sums and text.count("\tvpmaddwd\t") == sums


def test_what_an_untuned_token_takes() -> None:
    """On a core that multiplies four bytes in the time of a float."""
    target, workload = fixed("x86 -mcpu=znver4"), coded(1, 768, 768, 32, "i4")
    assert task_space(workload, target).default().template == NAME
    assert task_space(workload, target, strict_fp=True).default().template == "sketch.scaled"
