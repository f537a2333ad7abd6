"""Writing LLVM IR as text: scopes, names, and where an instruction belongs.

Text is several times faster to make than llvmlite's object IR, and compiling must not dominate tuning. Values that
depend only on loop variables (addresses) are written once at the top of the innermost loop they depend on, so no
loop-invariant code motion is needed.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from autotune.codegen.value import stored_type, suffix
from autotune.errors import CodegenError
from autotune.tensor.dtype import DType

INLINE = 1 << 30
CHAINS = 4  # of instructions that wait for each other, written in turns: more would need more registers
_NAME = re.compile(r"%[a-z0-9]+")
MOST_CLAIMED = 2**31 - 1
"""Iterations of a loop of which threads claim pieces."""
MAX_VALUES = 40_000  # a large Winograd kernel has 4,000; LLVM takes seconds for these, and minutes for twice as many


@dataclass(slots=True)
class Scope:
    """A region of code: the function, a loop body or a branch.

    Attributes:
        top: instructions that run once on entry, before `body`.
        known: values available from here inwards, by what they compute.
        loads: values read from memory in this scope and not overwritten since, by buffer and place.
        entry: of a loop, where in the body around it instructions before it belong; None where none may.
    """

    top: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    known: dict[object, str] = field(default_factory=dict)
    loads: dict[str, dict[object, object]] = field(default_factory=dict)
    entry: int | None = None


def _in_turns(pieces: list[list[str]]) -> Iterator[str]:
    """One line of each piece after the other, none before what it refers to."""
    rest = [deque((line, line.split(" = ")[0].strip()) for line in piece) for piece in pieces]
    missing = {name for piece in rest for line, name in piece if " = " in line}
    while any(rest):
        for piece in rest:
            if piece and not missing.intersection(_NAME.findall(piece[0][0].split(" = ", 1)[-1])):
                line, name = piece.popleft()
                missing.discard(name)
                yield line


class Writer:
    """Accumulates the text of one function."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = [Scope()]
        self.block = "entry"
        self.declarations: set[str] = set()
        self._numbers = 0
        self._depth: dict[str, int] = {}

    def fresh(self, prefix: str = "v") -> str:
        self._numbers += 1
        if self._numbers > MAX_VALUES:
            raise CodegenError(f"the kernel would have more than {MAX_VALUES} instructions: unroll less")
        return f"{prefix}{self._numbers}"

    def emit(self, text: str) -> None:
        """An instruction at the current place."""
        self.scopes[-1].body.append(f"  {text}")

    def value(self, text: str) -> str:
        """An instruction with a result, at the current place."""
        name = f"%{self.fresh()}"
        self.scopes[-1].body.append(f"  {name} = {text}")
        return name

    def masked_load(self, dtype: DType, lanes: int, pointer: str, align: int, mask: str, otherwise: str) -> str:
        """Those elements of a vector in memory that the mask names, the others from `otherwise`."""
        kind, bits, name = stored_type(dtype, lanes), f"<{lanes} x i1>", f"@llvm.masked.load.{suffix(dtype, lanes)}.p0"
        self.declare(f"{kind} {name}(ptr, {bits}, {kind})")
        return self.value(f"call {kind} {name}(ptr align {align} {pointer}, {bits} {mask}, {kind} {otherwise})")

    def known(self, key: object) -> str | None:
        """What `once` gives where it needs no instruction."""
        for scope in reversed(self.scopes):
            if key in scope.known:
                return scope.known[key]
        return None

    def mark(self) -> tuple[int, int]:
        """The current place, for `interleave`."""
        return len(self.scopes), len(self.scopes[-1].body)

    def interleave(self, marks: Sequence[tuple[int, int]]) -> None:
        """Instructions between successive marks in turns, some pieces at a time: each is a chain that waits for itself.

        A CPU looks ahead for what does not wait, but not over several long chains.
        """
        body = self.scopes[-1].body
        pieces = [body[a:b] for (_, a), (_, b) in itertools.pairwise(marks)]
        if len({depth for depth, _ in marks}) > 1 or any(line.endswith(":") for line in body[marks[0][1] :]):
            return
        del body[marks[0][1] :]
        for first in range(0, len(pieces), CHAINS):
            body += _in_turns(pieces[first : first + CHAINS])

    def once(self, key: object, text: str) -> str:
        """Like `value`, but reuses an equal value that is in scope."""
        found = self.known(key)
        if found is not None:
            return found
        name = self.value(text)
        self.scopes[-1].known[key] = name
        return name

    def hoisted(self, depth: int, text: str) -> str:
        """A pure instruction on entry of the scope at `depth` (here, if it is INLINE); equal ones are shared."""
        if depth == INLINE:
            return self.inline(self.value(text))
        scope = self.scopes[depth]
        if text not in scope.known:
            name = f"%{self.fresh('h')}"
            scope.top.append(f"  {name} = {text}")
            scope.known[text] = name
            self._depth[name] = depth
        return scope.known[text]

    def outside(self, names: Iterable[str]) -> bool:
        """Whether hoisted values are known before the loop of this scope, and instructions may be put there."""
        return self.scopes[-1].entry is not None and all(self.depth(name) < len(self.scopes) - 1 for name in names)

    def before(self, text: str) -> str:
        """A pure instruction before the loop of this scope (see `outside`); equal ones are shared."""
        found = self.known(text)
        if found is not None:
            return found
        scope, around = self.scopes[-1], self.scopes[-2]
        assert scope.entry is not None
        name = f"%{self.fresh('h')}"
        around.body.insert(scope.entry, f"  {name} = {text}")
        scope.entry += 1
        scope.known[text] = name
        self._depth[name] = len(self.scopes) - 2
        return name

    def inline(self, name: str) -> str:
        """Mark a value as computed in place: what depends on it cannot move outwards."""
        self._depth[name] = INLINE
        return name

    def depth(self, name: str) -> int:
        """Depth of the scope that defines a hoisted value or loop variable."""
        return self._depth.get(name, 0)

    def declare(self, text: str) -> None:
        self.declarations.add(f"declare {text}")

    def forget(self, buffer: str) -> None:
        """A store: what was read from that buffer may have changed."""
        for scope in self.scopes:
            if buffer in scope.loads:
                del scope.loads[buffer]

    def barrier(self, shared: Sequence[str]) -> None:
        """Wait for all threads; afterwards the memory at the pointers `shared` holds what they wrote."""
        self.declare("void @autotune_barrier(ptr, i64, i64)")
        for pointer in shared:  # to LLVM they are ours alone, which the call cannot touch: make it believe otherwise
            self.emit(f'call void asm sideeffect "", "r,~{{memory}}"(ptr {pointer})')
        self.emit("call void @autotune_barrier(ptr %barrier, i64 %tid, i64 %nt)")
        for scope in self.scopes:
            scope.loads.clear()

    def open_loop(self, begin: str, innermost: bool = False) -> tuple[str, str]:
        """Start a do-while loop; returns (label, variable).

        Args:
            innermost: no loop is in it, so that what is computed `before` it stays in registers for its turns alone.
        """
        label, variable = self.fresh("loop"), f"%{self.fresh('i')}"
        scope = Scope(entry=len(self.scopes[-1].body) if innermost else None)
        self.emit(f"br label %{label}")
        scope.top.append(f"{label}:")
        scope.top.append(f"  {variable} = phi i64 [ {begin}, %{self.block} ], [ {variable}.next, %{label}.latch ]")
        self.scopes.append(scope)
        self.block = label
        self._depth[variable] = len(self.scopes) - 1
        return label, variable

    def in_turn(self, variable: str, first: str, last: str, turn: object) -> str:
        """The position of a round of the loop just opened: counted from `last` where the number `turn` is odd.

        Without a number in a register (there is only one turn) loops run forwards.
        """
        if not isinstance(turn, str):
            return variable
        odd = self.hoisted(self.depth(turn), f"and i64 {turn}, 1")
        mask = self.hoisted(self.depth(turn), f"sub i64 0, {odd}")
        ends = self.hoisted(max(self.depth(first), self.depth(last)), f"add i64 {first}, {last}")
        both = self.hoisted(max(self.depth(turn), self.depth(ends)), f"and i64 {ends}, {mask}")
        # first + last - 1 - i = first + last + ~i
        flipped = self.hoisted(self.depth(variable), f"xor i64 {variable}, {mask}")
        return self.hoisted(self.depth(variable), f"add i64 {flipped}, {both}")

    def close_loop(self, label: str, variable: str, end: str) -> None:
        """Finish the loop of `open_loop`; it runs at least once."""
        self._close(label, variable, f"icmp slt i64 {variable}.next, {end}")

    def open_claims(self, extent: int) -> tuple[tuple[str, str], str]:
        """Start a loop whose every turn claims iterations of one of `extent` for this thread.

        Returns the loop, for `close_claims`, and what was claimed: the first iteration, and 2^32 times the last's
        successor; 0 where none was left, in the last turn.
        """
        self.declare("i64 @autotune_claim(ptr, i64, i64, i64, i64)")
        label, turn = self.open_loop("0")
        return (label, turn), self.value(
            f"call i64 @autotune_claim(ptr %barrier, i64 %tid, i64 %nt, i64 {extent}, i64 {turn})"
        )

    def close_claims(self, loop: tuple[str, str], claimed: str) -> None:
        """Finish the loop of `open_claims`, where nothing was claimed."""
        self._close(*loop, f"icmp ne i64 {claimed}, 0")

    def _close(self, label: str, variable: str, again: str) -> None:
        self._append(self.scopes.pop())
        self.emit(f"br label %{label}.latch")
        self._label(f"{label}.latch")
        self.emit(f"{variable}.next = add nuw nsw i64 {variable}, 1")
        self.emit(f"br i1 {self.value(again)}, label %{label}, label %{label}.exit")
        self._label(f"{label}.exit")

    def open_branch(self, condition: str) -> str:
        """Start code that runs where the i1 holds; returns its label."""
        label = self.fresh("if")
        self.emit(f"br i1 {condition}, label %{label}, label %{label}.end")
        self.scopes.append(Scope(top=[f"{label}:"]))
        self.block = label
        return label

    def close_branch(self, label: str) -> None:
        self._append(self.scopes.pop())
        self.emit(f"br label %{label}.end")
        self._label(f"{label}.end")

    def text(self) -> list[str]:
        """All instructions of the function."""
        assert len(self.scopes) == 1
        return self.scopes[0].top + self.scopes[0].body

    def _append(self, scope: Scope) -> None:
        self.scopes[-1].body += scope.top
        self.scopes[-1].body += scope.body

    def _label(self, name: str) -> None:
        self.scopes[-1].body.append(f"{name}:")
        self.block = name
