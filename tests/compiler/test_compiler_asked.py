"""What helper processes answer is what is found here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune import machine
from autotune.codegen.beside import Beside
from autotune.codegen.compiled_object import CompiledObject, ir_hash
from autotune.codegen.helper import Helper, Reply
from autotune.codegen.jit import compile_uncounted
from autotune.codegen.kernel import generate
from autotune.codegen.object_cache import ObjectCache
from autotune.compiler import asked, kernels
from autotune.compiler.choose import Chooser
from autotune.compiler.kernels import Kernels
from autotune.compiler.slots import KernelStep
from autotune.compiler.wishes import Wishes
from autotune.errors import LoweringError
from autotune.graph.partition import Group
from autotune.ops import parse_workload
from autotune.ops.workload import Workload
from autotune.search_spaces import Interface
from autotune.search_spaces.space.replay import Recorded
from autotune.target import Target

TARGET = Target.parse("x86 -mcpu=haswell -num-cores=1")
WORKLOADS = [parse_workload(f"matmul a={rows},64 b={64},32 + relu") for rows in range(8, 16)]


def steps(chooser: Chooser) -> list[KernelStep]:
    found = []
    for workload in WORKLOADS:
        choice = chooser(workload)
        interface = Interface(choice.schedule(workload, TARGET).layouts)
        found.append(KernelStep(workload, choice, interface, (0, "b"), (1,), None))
    return found


@pytest.mark.parametrize("cores", [1, 3])
def test_kernels_are_the_same_wherever_they_are_built(
    cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chooser = Chooser(TARGET, None)
    with Beside() as beside:
        alone = [kernel for _, kernel in Kernels(TARGET, None, chooser, beside).build(steps(chooser))]
    monkeypatch.setattr(machine, "allowed_cores", lambda: cores)
    cache = ObjectCache(tmp_path)
    with Beside([asked.MODULE]) as beside:
        beside.start()
        for helper in beside._helpers:
            helper.wait()
        found = [kernel for _, kernel in Kernels(TARGET, cache, chooser, beside).build(steps(chooser))]
    assert found == alone

    def never(*given: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(kernels, "kernel_of", never)
    with Beside() as beside:
        assert [k for _, k in Kernels(TARGET, cache, chooser, beside).build(steps(chooser))] == alone


def test_a_helper_builds_a_kernel_and_keeps_it(tmp_path: Path) -> None:
    chooser = Chooser(TARGET, None)
    step, helper = steps(chooser)[0], Helper([asked.MODULE])
    try:
        with Beside() as beside:
            found = Kernels(TARGET, ObjectCache(tmp_path), chooser, beside)
            kernel = found._asked(step, helper)
            assert kernel is not None and found._made(step, None) == kernel
            assert found._name(step) in {path.name for path in tmp_path.iterdir()}
    finally:
        helper.close()


def recorded_steps() -> list[KernelStep]:
    """Kernels whose stored steps say how they are made."""
    found = []
    for step in steps(Chooser(TARGET, None)):
        made = step.choice.schedule(step.workload, TARGET)
        stored = Recorded(made.steps_json(), step.choice.algorithm, generate(made, TARGET).ir_hash)
        found.append(replace(step, choice=replace(step.choice, recorded=stored)))
    return found


def test_a_helper_builds_kernels_of_stored_steps_too() -> None:
    step, helper = recorded_steps()[0], Helper([asked.MODULE])
    try:
        with Beside() as beside:
            found = Kernels(TARGET, None, Chooser(TARGET, None), beside)
            kernel = found._asked(step, helper)
            assert kernel is not None and found._made(step, None) == kernel
            assert step.choice.recorded is not None and kernel.ir_hash == step.choice.recorded.ir_hash
            own = Wishes(found.chooser, None)._find(step.workload, step.choice, helper)
            assert own == step.choice.schedule(step.workload, TARGET).layouts
    finally:
        helper.close()


def test_of_code_that_is_known_a_helper_does_what_is_left(tmp_path: Path) -> None:
    """Where a record had to be lowered to see what it means, nobody does that again."""
    chooser, compiled = Chooser(TARGET, None), list[str]()
    (step, *_), cache = recorded_steps(), ObjectCache(tmp_path)

    class Compiling(Helper):
        def __init__(self) -> None:
            pass

        def compile(self, ir_text: str, *, cpu: str, features: str) -> CompiledObject:
            compiled.append(ir_text)
            return compile_uncounted(ir_text, cpu=cpu, features=features)

        def call(self, function: str, *arguments: object) -> Reply | None:
            raise AssertionError("generated again")

    stored = step.choice.recorded
    assert stored is not None and chooser._hash(stored.schedule(step.workload), stored.ir_hash) == stored.ir_hash
    with Beside() as beside:
        found = Kernels(TARGET, cache, chooser, beside)
        assert found._made(step, Compiling()).ir_hash == stored.ir_hash
        assert [ir_hash(text) for text in compiled] == [stored.ir_hash] and not chooser.has_generated


def group_of(workload: Workload) -> Group:
    return Group(workload, ("a", "b"), ("c",))


def test_layouts_are_found_by_whoever_is_free_and_kept(tmp_path: Path) -> None:
    chooser, cache = Chooser(TARGET, None), ObjectCache(tmp_path)
    groups = [group_of(workload) for workload in WORKLOADS]
    alone = [Wishes(chooser, None).of(group) for group in groups]
    with Beside([asked.MODULE]) as beside:
        beside.start()
        for helper in beside._helpers:
            helper.wait()
        wishes = Wishes(chooser, cache, beside)
        wishes.ahead(groups)
        assert [wishes.of(group) for group in groups] == alone
    with Beside() as beside:
        again = Wishes(chooser, cache, beside)
        again.ahead(groups)
        assert not again._begun and [again.of(group) for group in groups] == alone


def test_a_helper_answers_with_the_layouts_that_are_found_here() -> None:
    chooser, helper = Chooser(TARGET, None), Helper([asked.MODULE])
    try:
        wishes = Wishes(chooser, None)
        choice = chooser(WORKLOADS[0])
        assert wishes._find(WORKLOADS[0], choice, helper) == wishes._find(WORKLOADS[0], choice, None)
        facts = WORKLOADS[0].to_json(), choice.origin, False, TARGET.to_json()
        reply = helper.call(f"{asked.MODULE}:layouts", *facts)
        assert reply is not None and "layouts" in reply[0]
    finally:
        helper.close()


def test_a_refusal_is_that_of_who_builds_it_here(monkeypatch: pytest.MonkeyPatch) -> None:
    chooser = Chooser(TARGET, None)
    wrong = steps(chooser)[0]

    def refuse(*given: object) -> None:
        raise LoweringError("not like this")

    class Refusing(Helper):
        def __init__(self) -> None:
            pass

        def call(self, function: str, *arguments: object) -> tuple[dict[str, str], bytes]:
            return {"error": "not like this"}, b""

    monkeypatch.setattr(kernels, "kernel_of", refuse)
    with Beside() as beside, pytest.raises(LoweringError, match="not like this"):
        Kernels(TARGET, None, chooser, beside)._made(wrong, Refusing())
