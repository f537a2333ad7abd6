"""The writer: code that LLVM would take minutes for is refused, chains are written in turns."""

from __future__ import annotations

import pytest

from autotune.codegen.writer import MAX_VALUES, Writer
from autotune.errors import CodegenError


def test_code_without_end_is_refused() -> None:
    writer = Writer()
    for _ in range(MAX_VALUES):
        writer.value("add i64 1, 1")
    with pytest.raises(CodegenError, match="unroll less"):
        writer.value("add i64 1, 1")


def test_chains_are_written_in_turns() -> None:
    w = Writer()
    marks = [w.mark()]
    shared = ""
    for n in range(3):
        shared = shared or w.value("load float, ptr %p")
        first = w.value(f"fadd float {shared}, {n}.0")
        w.emit(f"store float {first}, ptr %q{n}")
        marks.append(w.mark())
    w.interleave(marks)
    assert [line.split(" = ")[-1].split()[0] for line in w.text()] == ["load", *["fadd"] * 3, *["store"] * 3]


def test_chains_with_branches_stay_apart() -> None:
    w = Writer()
    marks = [w.mark()]
    for _ in range(2):
        label = w.open_branch("%c")
        w.emit("call void @f()")
        w.close_branch(label)
        marks.append(w.mark())
    before = list(w.text())
    w.interleave(marks)
    assert w.text() == before
