"""Tables of 256 bytes: two permutations where the CPU has them, the right bytes everywhere."""

from __future__ import annotations

import pytest

from autotune.codegen.jit import assembly
from autotune.codegen.kernel import generate
from autotune.ops import parse_workload
from autotune.search_spaces import make_schedule, templates_for
from autotune.target import Target
from tests.search_spaces.conv_cases import check

TARGETS = ("native", "x86 -mcpu=haswell", "x86 -mcpu=skylake-avx512")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "line",
    [
        "lookup data=3,5,64:u8 table=256:u8",
        "lookup data=7,97:u8 table=256:i8",
        "lookup data=31:u8 table=256:u8",
        "lookup data=4,40:u8 table=256:f32",
        "lookup data=4,40:u8 table=256:i8 + cast to=f32",
        "lookup data=2,33:u8 table=256:u8 + dequantize scale=const:scalar:f32 zero_point=const:scalar:u8",
    ],
)
def test_every_place_has_its_entry(line: str, target: str) -> None:
    workload, on = parse_workload(line), Target.parse(target)
    if not on.runs_on_host():
        pytest.skip(f"this CPU does not run {target}")
    for template in templates_for(workload, on):
        config = template.default(workload, on).replace(template=template.name)
        check(workload, config, on)


@pytest.mark.parametrize(("cpu", "found"), [("icelake-server", True), ("skylake-avx512", False)])
def test_bytes_are_permuted_where_there_is_an_instruction(cpu: str, found: bool) -> None:
    workload, target = parse_workload("lookup data=8,128:u8 table=256:u8"), Target.parse(f"x86 -mcpu={cpu}")
    template = templates_for(workload, target)[0]
    config = template.default(workload, target).replace(template=template.name)
    text = generate(make_schedule(workload, config, target), target).ir
    assert ("vpermt2b" in assembly(text, cpu=target.cpu, features=target.llvm_features)) is found
