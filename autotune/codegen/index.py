"""Addresses: quasi-affine indices under an environment of constants, loop variables and the vector lane."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Union

from autotune.codegen.writer import INLINE, Writer
from autotune.lower.ir import OPERAND, Buffer
from autotune.tensor.expr import Expr
from autotune.tensor.linear import Div, Linear, Mod


class Lane:
    """Marks the vectorized loop's variable in the environment."""


LANE = Lane()
Binding = Union[int, str, Lane]


class Offset(NamedTuple):
    """const + sum(coefficient * i64 value) + lane * (number of the SIMD lane)."""

    const: int
    terms: tuple[tuple[str, int], ...]
    lane: int


class _Part(NamedTuple):
    """An `Offset` without what `numbers`, the variables of unrolled loops, add to its constant."""

    const: int
    terms: tuple[tuple[str, int], ...]
    lane: int
    numbers: tuple[tuple[str, int], ...]


class PerLane(Exception):
    """The index is not affine in the lane: the caller evaluates it lane by lane."""


class Indexer:
    """Evaluates `Linear` forms and addresses of buffers."""

    def __init__(self, writer: Writer, evaluate: Callable[[Expr], str | int]) -> None:
        self.writer = writer
        self.bases: dict[str, str] = {}
        self._env: dict[str, Binding] = {}
        self._evaluate = evaluate
        self._flat: dict[int, tuple[object, Linear]] = {}
        self._offsets: dict[int, tuple[Linear, Offset]] = {}
        self._kinds: dict[str, str | Lane | None] = {}  # what variables were when last bound, None for any number
        self._parts: dict[int, tuple[Linear, _Part | None]] = {}  # as long as no variable is of another kind
        self._pointers: dict[tuple[str, tuple[tuple[str, int], ...], str], str] = {}

    def bind(self, variable: str, value: Binding) -> None:
        """What a loop variable is from now on."""
        kind = None if isinstance(value, int) else value
        if variable not in self._kinds or self._kinds[variable] != kind:
            self._kinds[variable] = kind
            self._parts.clear()
        self._env[variable] = value
        self._offsets.clear()

    def bound(self, variable: str) -> Binding | None:
        """What a loop variable is now."""
        return self._env.get(variable)

    def release(self, variable: str) -> None:
        """The end of a variable's loop."""
        del self._env[variable]
        self._offsets.clear()

    def forget(self) -> None:
        """A new statement: what is read from memory for an index may have changed."""
        self._offsets.clear()

    def offset(self, value: Linear) -> Offset:
        """The value under the current environment; a statement that reads and writes one place asks twice.

        Raises:
            PerLane: when the lane occurs inside a division, a remainder or an indirect read.
        """
        kept = self._offsets.get(id(value))
        if kept is None:
            kept = self._offsets[id(value)] = (value, self._offset(value))
        return kept[1]

    def _offset(self, value: Linear) -> Offset:
        kept = self._parts.get(id(value))
        if kept is None:
            kept = self._parts[id(value)] = (value, self._part(value))
        part, env = kept[1], self._env
        if part is None:
            return self._whole(value)
        const, terms, lane, numbers = part
        for name, c in numbers:
            const += c * env[name]  # type: ignore[operator]  # they are numbers
        return Offset(const, terms, lane)

    def _part(self, value: Linear) -> _Part | None:
        """The form but for its numbers, which change from turn to turn of unrolled loops; None of divisions and reads,
        which are instructions."""
        plain = {term: c for term, c in value.terms.items() if isinstance(term, str)}
        if len(plain) != len(value.terms):
            return None
        numbers = tuple((name, c) for name, c in plain.items() if self._kinds[name] is None)
        const, terms, lane = self._whole(Linear(value.const, {t: c for t, c in plain.items() if self._kinds[t]}))
        return _Part(const, terms, lane, numbers)

    def _whole(self, value: Linear) -> Offset:
        const, lane = value.const, 0
        terms: dict[str, int] = {}
        for term, c in value.terms.items():
            bound: Binding
            if isinstance(term, str):
                bound = self._env[term]
            elif isinstance(term, (Div, Mod)):
                bound = self._quotient(term)
            else:
                bound = self._evaluate(term)
            if isinstance(bound, int):
                const += c * bound
            elif isinstance(bound, Lane):
                lane += c
            else:
                terms[bound] = terms.get(bound, 0) + c
        return Offset(const, tuple(sorted(terms.items())) if terms else (), lane)

    def _quotient(self, term: Div | Mod) -> Binding:
        inner = self._offset(term.arg)
        if inner.lane:
            raise PerLane
        if not inner.terms:
            return inner.const // term.divisor if isinstance(term, Div) else inner.const % term.divisor
        numerator = self.materialise(inner)
        depth = self.writer.depth(numerator)
        hoist = self.writer.hoisted
        power = term.divisor & (term.divisor - 1) == 0
        if power:
            if isinstance(term, Mod):
                return hoist(depth, f"and i64 {numerator}, {term.divisor - 1}")
            return hoist(depth, f"ashr i64 {numerator}, {term.divisor.bit_length() - 1}")
        # Floor semantics for negative numerators: sdiv rounds to zero.
        quotient = hoist(depth, f"sdiv i64 {numerator}, {term.divisor}")
        back = hoist(depth, f"mul i64 {quotient}, {term.divisor}")
        rest = hoist(depth, f"sub i64 {numerator}, {back}")
        negative = hoist(depth, f"ashr i64 {rest}, 63")
        if isinstance(term, Div):
            return hoist(depth, f"add i64 {quotient}, {negative}")
        correction = hoist(depth, f"and i64 {negative}, {term.divisor}")
        return hoist(depth, f"add i64 {rest}, {correction}")

    def materialise(self, offset: Offset) -> str:
        """An i64 operand holding the offset (its lane part left out)."""
        if not offset.terms:
            return str(offset.const)
        depth = max(self.writer.depth(name) for name, _ in offset.terms)
        total = self._sum(depth, offset.terms)
        return self.writer.hoisted(depth, f"add i64 {total}, {offset.const}") if offset.const else total

    def _sum(self, depth: int, terms: tuple[tuple[str, int], ...]) -> str:
        total = ""
        for name, c in terms:
            part = name if c == 1 else self.writer.hoisted(depth, f"mul i64 {name}, {c}")
            total = part if not total else self.writer.hoisted(depth, f"add i64 {total}, {part}")
        return total

    def flat(self, buffer: Buffer, indices: tuple[Linear, ...]) -> Linear:
        """Element offset of a position in a buffer."""
        kept = self._flat.get(id(indices))
        if kept is None:
            total = buffer.place(indices).joined()
            # The tuple is kept alive with the result, so its id stays its own.
            kept = self._flat[id(indices)] = (indices, total)
        return kept[1]

    def pointer(self, buffer: Buffer, offset: Offset, element: str, *, inside: bool = True) -> str:
        """Address of an element; parts that change in outer loops are added outside the inner ones.

        Args:
            inside: the element exists; else the address may lie beyond the buffer.
        """
        pointer, step = self.bases[buffer.name], "getelementptr inbounds" if inside else "getelementptr"
        if offset.terms:
            key = pointer, offset.terms, f"{step} {element}"
            pointer = self._pointers.get(key) or self._moved(*key)
        if offset.const:
            text = f"{step} {element}, ptr {pointer}, i64 {offset.const}"
            pointer = self.writer.once(text, text)
        return pointer

    def _moved(self, pointer: str, terms: tuple[tuple[str, int], ...], step: str) -> str:
        by_depth: dict[int, list[tuple[str, int]]] = {}
        for name, c in terms:
            by_depth.setdefault(self.writer.depth(name), []).append((name, c))
        key = pointer, terms, step
        for depth in sorted(by_depth):
            index = self._sum(depth, tuple(by_depth[depth]))
            pointer = self.writer.hoisted(depth, f"{step}, ptr {pointer}, i64 {index}")
        if INLINE not in by_depth:  # a name is of one loop, so that what follows from it holds where the name does
            self._pointers[key] = pointer
        return pointer

    @staticmethod
    def alignment(buffer: Buffer, offset: Offset) -> int:
        """Bytes to which the address is surely aligned.

        Scratch starts at multiples of 64. Operands may be a user's arrays, which need not: with VEX and EVEX encodings
        an unaligned instruction costs nothing when the address happens to be aligned.
        """
        size = buffer.dtype.bytes
        if buffer.scope == OPERAND:
            return size
        return math.gcd(64, offset.const * size, *(c * size for _, c in offset.terms))
