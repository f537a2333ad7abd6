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
from autotune.compiler.choose import Choice, Chooser
from autotune.compiler.kernels import Kernels, key_of
from autotune.compiler.slots import KernelStep
from autotune.compiler.wishes import Wishes
from autotune.errors import LoweringError
from autotune.graph.partition import Group
from autotune.ops import parse_workload
from autotune.search_spaces import Interface
from autotune.search_spaces.space.replay import Recorded
from autotune.target import Target
from autotune.tensor import Layout

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


def test_what_is_foreseen_is_built_by_a_free_process_alone_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    chooser = Chooser(TARGET, None)
    here, *more = steps(chooser)
    other = replace(here, interface=Interface((*here.interface.layouts[:-1], Layout.blocked(2, [(1, 16)]))))
    with Beside() as beside:
        alone = [kernel for _, kernel in Kernels(TARGET, None, chooser, beside).build([here, *more])]
    monkeypatch.setattr(machine, "allowed_cores", lambda: 2)
    with Beside([asked.MODULE]) as beside:
        found = Kernels(TARGET, None, chooser, beside)
        for step in (here, here, other):
            found.foresee(step)
        beside.finish()
        begun = dict(found._built)
        assert len(begun) == 2 and not any(future.done() for future in begun.values())  # there is no process
        beside.start()
        assert begun[key_of(here)].result() == alone[0] and begun[key_of(other)].result() != alone[0]
        assert [kernel for _, kernel in found.build([here, *more])] == alone and found._built[key_of(here)].done()
        assert found._built[key_of(here)] is begun[key_of(here)]


def test_what_nobody_could_begin_is_built_as_all_else() -> None:
    chooser = Chooser(TARGET, None)
    first, *_ = steps(chooser)
    with Beside() as beside:
        found = Kernels(TARGET, None, chooser, beside)
        found.foresee(first)
        foreseen = found._built[key_of(first)]
        (built,) = (kernel for _, kernel in found.build([first]))
        assert foreseen.cancelled() and built == Kernels(TARGET, None, chooser, beside).build([first])[0][1]


def test_what_the_cache_has_is_not_foreseen(tmp_path: Path) -> None:
    chooser, cache = Chooser(TARGET, None), ObjectCache(tmp_path)
    first, *_ = steps(chooser)
    with Beside() as beside:
        Kernels(TARGET, cache, chooser, beside).build([first])
        again = Kernels(TARGET, cache, chooser, beside)
        again.foresee(first)
        assert not again._built


def test_layouts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chooser, cache = Chooser(TARGET, None), ObjectCache(tmp_path)
    groups = [Group(workload, ("a", "b"), ("c",)) for workload in WORKLOADS]
    found = [Wishes(chooser, cache).of(group) for group in groups]
    assert found == [Wishes(chooser, None).of(group) for group in groups]

    def never(*given: object) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr(Choice, "schedule", never)
    assert [Wishes(chooser, cache).of(group) for group in groups] == found


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
