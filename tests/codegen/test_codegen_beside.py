"""Work in processes of its own: the same objects and the same refusals, whoever compiles, and whatever dies."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import ANY

import pytest

from autotune import machine
from autotune.codegen import beside as module
from autotune.codegen.beside import AHEAD, EARLY, FEW, MOST, Beside
from autotune.codegen.compiled_object import CompiledObject
from autotune.codegen.helper import Helper
from autotune.codegen.jit import compile_uncounted
from autotune.errors import CodegenError
from autotune.target import Target

TARGET = Target.parse("x86 -mcpu=haswell")
CPU, FEATURES = TARGET.cpu, TARGET.llvm_features


def function(number: int) -> str:
    return f"define i32 @kernel() {{ ret i32 {number} }}"


def compiled(number: int) -> Callable[[Helper | None], CompiledObject]:
    def work(helper: Helper | None) -> CompiledObject:
        return (compile_uncounted if helper is None else helper.compile)(function(number), cpu=CPU, features=FEATURES)

    return work


def test_a_process_compiles_and_refuses_as_one_does_here() -> None:
    process = Helper()
    try:
        here = compile_uncounted(function(7), cpu=CPU, features=FEATURES)
        assert process.compile(function(7), cpu=CPU, features=FEATURES) == here
        with pytest.raises(CodegenError, match="LLVM refused the IR"):
            process.compile("nonsense", cpu=CPU, features=FEATURES)
        process._process.kill()
        assert process.compile(function(7), cpu=CPU, features=FEATURES) == here
    finally:
        process.close()


@pytest.mark.parametrize("cores", [1, 4])
def test_all_is_done_when_finish_returns(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "allowed_cores", lambda: cores)
    count = FEW + 2

    def bug(helper: Helper | None) -> CompiledObject:
        raise ZeroDivisionError

    with Beside() as beside:
        beside.expect(count)
        wrong = beside.submit(bug)
        found = [beside.submit(compiled(number)) for number in range(count)]
        beside.finish()
        objects = [one.result() for one in found]
        with pytest.raises(ZeroDivisionError):
            wrong.result()
    assert objects == [compile_uncounted(function(number), cpu=CPU, features=FEATURES) for number in range(count)]


def test_what_may_be_needed_is_done_behind_all_else_and_by_processes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "allowed_cores", lambda: 2)
    order: list[str] = []

    def work(name: str) -> Callable[[Helper | None], None]:
        def done(helper: Helper | None) -> None:
            assert (helper is None) == (name == "here")
            order.append(name)

        return done

    with Beside() as beside:
        beside.submit(work("here"))
        perhaps = beside.perhaps(work("perhaps"))
        beside.finish()
        assert order == ["here"] and not perhaps.done()
        sure = beside.submit(work("sure"))
        beside.start()
        perhaps.result(), sure.result()
        assert Counter(order) == Counter(["here", "sure", "perhaps"])
    with Beside() as beside:
        never = beside.perhaps(work("never"))
        beside.settle()
        assert never.cancelled() and "never" not in order


def test_few_pieces_and_embedded_pythons_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(imports: Sequence[str]) -> Helper:
        raise AssertionError("started a process")

    monkeypatch.setattr(machine, "allowed_cores", lambda: 4)
    monkeypatch.setattr(module, "Helper", never)
    for count, executable in ((FEW, "/usr/bin/python3"), (FEW + 1, "/usr/sbin/uwsgi"), (FEW + 1, "")):
        monkeypatch.setattr(sys, "executable", executable)
        with Beside() as beside:
            beside.expect(count)
            found = beside.submit(compiled(1))
            beside.finish()
            assert found.result() == compile_uncounted(function(1), cpu=CPU, features=FEATURES)


def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(imports: Sequence[str]) -> Helper:
        raise OSError("no more processes")

    monkeypatch.setattr(machine, "allowed_cores", lambda: 4)
    monkeypatch.setattr(module, "Helper", full)
    with Beside() as beside:
        beside.expect(FEW + 1)
        found = [beside.submit(compiled(number)) for number in range(FEW + 1)]
        beside.finish()
        assert all(one.result(60) for one in found)


def test_as_many_start_as_there_is_work_and_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "allowed_cores", lambda: 64)
    with Beside() as beside:
        beside.start()
        assert len(beside._helpers) == EARLY
        beside.expect(FEW + 1)
        assert len(beside._helpers) == EARLY
        beside.expect(FEW * (EARLY + 1))
        assert len(beside._helpers) == EARLY + 1
        beside.expect(1000)
        assert len(beside._helpers) == MOST
        together = threading.Barrier(AHEAD * MOST)  # of as many threads as there are
        used: list[Helper | None] = []

        def wait_for_all(helper: Helper | None) -> None:
            used.append(helper)
            together.wait(60)

        for one in [beside.submit(wait_for_all) for _ in range(AHEAD * MOST)]:
            one.result(60)
    assert Counter(used) == dict.fromkeys(beside._helpers, AHEAD)


def test_a_helper_says_what_was_wrong_and_goes_on() -> None:
    helper = Helper()
    try:
        asked = "autotune.compiler.asked:default"
        assert helper.call(asked, "{}", TARGET.to_json(), False, False) == ({"error": ANY}, b"")
        assert helper.call("autotune.codegen.helper:compiled", function(1), CPU, FEATURES) is not None
        helper._process.kill()
        helper._process.wait()
        assert helper.call("autotune.codegen.helper:compiled", function(1), CPU, FEATURES) is None
    finally:
        helper.close()


def test_threads_that_share_a_process_get_their_own_answers() -> None:
    helper = Helper(["json"])

    def asked(number: int) -> CompiledObject:
        return helper.compile(function(number), cpu=CPU, features=FEATURES)

    try:
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(asked, range(12)))
        assert found == [compile_uncounted(function(number), cpu=CPU, features=FEATURES) for number in range(12)]
    finally:
        helper.close()


def test_one_that_nobody_needs_any_more_is_not_waited_for() -> None:
    with Beside(["time", "nothing.of.this.name"]) as beside:
        beside.start()
    assert all(helper._process.returncode is not None for helper in beside._helpers)


def test_work_goes_on_without_a_process_that_cannot_load_its_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "allowed_cores", lambda: 2)
    with Beside(["nothing.of.this.name"]) as beside:
        beside.expect(FEW + 1)
        found = [beside.submit(compiled(number)) for number in range(FEW + 1)]
        assert all(one.result(60) for one in found)
