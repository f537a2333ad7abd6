"""LLVM in processes of its own: the same objects and the same refusals, whoever compiles, and whatever dies."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from autotune import machine
from autotune.codegen import compilers
from autotune.codegen.compilers import FEW, Compilers
from autotune.codegen.jit import CompiledObject, compile_ir
from autotune.codegen.kernel import CompileIr
from autotune.codegen.llvm_process import LlvmProcess
from autotune.errors import CodegenError
from autotune.target import Target

TARGET = Target.parse("x86 -mcpu=haswell")
CPU, FEATURES = TARGET.cpu, TARGET.llvm_features


def function(number: int) -> str:
    return f"define i32 @kernel() {{ ret i32 {number} }}"


def compiled(number: int) -> Callable[[CompileIr], CompiledObject]:
    return lambda by: by(function(number), cpu=CPU, features=FEATURES)


def test_a_process_compiles_and_refuses_as_one_does_here() -> None:
    process = LlvmProcess()
    try:
        here = compile_ir(function(7), cpu=CPU, features=FEATURES)
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

    def bug(by: CompileIr) -> CompiledObject:
        raise ZeroDivisionError

    with Compilers(count) as beside:
        wrong = beside.submit(bug)
        found = [beside.submit(compiled(number)) for number in range(count)]
        beside.finish()
        objects = [one.result() for one in found]
        with pytest.raises(ZeroDivisionError):
            wrong.result()
    assert objects == [compile_ir(function(number), cpu=CPU, features=FEATURES) for number in range(count)]


def test_few_pieces_and_embedded_pythons_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> LlvmProcess:
        raise AssertionError("started a process")

    monkeypatch.setattr(machine, "allowed_cores", lambda: 4)
    monkeypatch.setattr(compilers, "LlvmProcess", never)
    for count, executable in ((FEW, "/usr/bin/python3"), (FEW + 1, "/usr/sbin/uwsgi"), (FEW + 1, "")):
        monkeypatch.setattr(sys, "executable", executable)
        with Compilers(count) as beside:
            found = beside.submit(compiled(1))
            beside.finish()
            assert found.result() == compile_ir(function(1), cpu=CPU, features=FEATURES)


def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> LlvmProcess:
        raise OSError("no more processes")

    monkeypatch.setattr(machine, "allowed_cores", lambda: 4)
    monkeypatch.setattr(compilers, "LlvmProcess", full)
    with Compilers(FEW + 1) as beside:
        found = [beside.submit(compiled(number)) for number in range(FEW + 1)]
        assert all(one.result(60) for one in found)
