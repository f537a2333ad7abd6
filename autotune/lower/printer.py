"""Loop IR as text, for people and golden files."""

from __future__ import annotations

from autotune.lower.ir import Barrier, For, If, LoopProgram, Once, Prefetch, Stmt, Store, show

_FOLD = {"sum": "+=", "prod": "*=", "max": "max=", "min": "min=", "largest": "largest="}


def print_program(program: LoopProgram) -> str:
    """The whole kernel: operands, scratch, then the nest."""
    lines = [f"kernel {program.name}"]
    for o in program.operands:
        lines.append(
            f"  {o.role} {o.name}: {o.dtype}{list(o.shape)} as {o.layout}" + (" constant" if o.constant else "")
        )
    for b in program.buffers[len(program.operands) :]:
        lines.append(f"  {b.scope} {b.name}: {b.dtype}{list(b.shape)}")
    return "\n".join(lines + print_body(program.body, 1)) + "\n"


def print_body(body: tuple[Stmt, ...], depth: int = 0) -> list[str]:
    """One line per statement, indented by nesting."""
    out: list[str] = []
    pad = "  " * depth
    for stmt in body:
        if isinstance(stmt, For):
            mark = f"{stmt.mark} " if stmt.mark else ""
            order = f", backwards in odd {stmt.turn}" if stmt.turn else ""
            out.append(f"{pad}{mark}for {stmt.var} in {stmt.begin}..{stmt.begin + stmt.extent}{order}:")
            out += print_body(stmt.body, depth + 1)
        elif isinstance(stmt, If):
            out.append(f"{pad}if {show(stmt.when)}:")
            out += print_body(stmt.body, depth + 1)
        elif isinstance(stmt, Once):
            out.append(f"{pad}on thread 0:")
            out += print_body(stmt.body, depth + 1)
        elif isinstance(stmt, Barrier):
            out.append(f"{pad}barrier")
        elif isinstance(stmt, Prefetch):
            into = f" to L{stmt.level}" if stmt.level > 1 else ""
            out.append(f"{pad}prefetch{into} {stmt.buffer.name}[{', '.join(map(str, stmt.indices))}]")
        elif isinstance(stmt, Store):
            # Several targets are written together, after all values are known.
            places = ", ".join(f"{buffer.name}[{', '.join(map(str, indices))}]" for buffer, indices in stmt.targets)
            operator = _FOLD[stmt.fold] if stmt.fold else "="
            out.append(f"{pad}{places} {operator} {', '.join(map(str, stmt.values))}")
    return out
