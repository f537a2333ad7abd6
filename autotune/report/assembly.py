"""The loop of a kernel's assembly with the most arithmetic in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LABEL = re.compile(r"^(\.L\w+):")
_JUMP = re.compile(r"^\tj\w+\t(\.L\w+)")
_ARITHMETIC = re.compile(r"^\tv(?:fn?m(?:add|sub)\w+|pdp\w+|dpbf16ps|pmaddwd)\t|^\ttdp\w+\t")
_VECTOR = re.compile(r"^\tv\w+\t.*%[xyz]mm")
_STACK = re.compile(r"^\tv\w+\t.*\(%rsp[,)]")
_DIRECTIVE = re.compile(r"^\t\.")


@dataclass(frozen=True, slots=True)
class HotLoop:
    """A loop without loops in it.

    Attributes:
        begin, end: its lines in the text, the first and the one behind the last.
        instructions: in a turn; `arithmetic`: multiply-adds and dot products among them; `vector`: all that work on
            vectors; `stack`: vectors that are kept on the stack.
    """

    begin: int
    end: int
    instructions: int
    arithmetic: int
    vector: int
    stack: int


def hot_loop(assembly: str) -> HotLoop | None:
    """The innermost loop with the most multiply-adds, without any the most vector instructions; None without one."""
    lines = assembly.splitlines()
    place: dict[str, int] = {}
    found: list[HotLoop] = []
    for number, line in enumerate(lines):
        label = _LABEL.match(line)
        if label:
            place[label[1]] = number
        jump = _JUMP.match(line)
        if jump and jump[1] in place:
            found.append(_counted(lines, place[jump[1]], number + 1))
    inner = [a for a in found if not any(a.begin <= b.begin and b.end <= a.end and a != b for b in found)]
    return max(inner, key=lambda one: (one.arithmetic, one.vector), default=None)


def marked(assembly: str, loop: HotLoop | None) -> list[str]:
    """The lines of code, directives left out, with a bar beside the loop."""
    out = []
    for number, line in enumerate(assembly.splitlines()):
        if not line.strip() or _DIRECTIVE.match(line) or line.startswith(".LCPI") or line.lstrip().startswith("#"):
            continue
        inside = loop is not None and loop.begin <= number < loop.end
        out.append(f"{'|' if inside else ' '} {line.expandtabs(8)}")
    return out


def _counted(lines: list[str], begin: int, end: int) -> HotLoop:
    code = [line for line in lines[begin:end] if line.startswith("\t") and not _DIRECTIVE.match(line)]
    count = [sum(1 for line in code if kind.match(line)) for kind in (_ARITHMETIC, _VECTOR, _STACK)]
    return HotLoop(begin, end, len(code), *count)
