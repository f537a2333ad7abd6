"""What a model computes from extents before it makes shapes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.graph.frontend.buckets.facts import Extent, Fact, Shifted


def computed(op: str, operands: Sequence[Fact], integers: bool = False) -> tuple[Extent, ...] | None:
    """The elements of an elementwise result of lists; None where they are not known by their symbols.

    Args:
        op: of ONNX.
        integers: whether the operands are known to be of integer types.
    """
    rule = _OF_INTEGERS.get(op) if integers and op in _OF_INTEGERS else _RULES.get(op)
    lists = [fact.elements for fact in operands if fact.elements is not None and len(fact.dims or ()) <= 1]
    if rule is None or len(lists) != len(operands):
        return None
    length = max(map(len, lists))
    if any(len(found) not in (1, length) for found in lists):
        return None
    results = [rule([found[n % len(found)] for found in lists]) for n in range(length)]
    return None if None in results else tuple(results)


def plus(extent: Extent, number: int) -> Extent:
    """extent + number"""
    return _sum(extent, number, 1)


def difference(one: Extent, other: Extent) -> Extent:
    """one - other"""
    return _sum(one, other, -1)


def _sum(one: Extent, other: Extent, sign: int) -> Extent:
    """one + sign * other"""
    (a, first), (b, second) = _parts(one), _parts(other)
    symbols = [symbol for symbol in (a, b) if symbol is not None]
    if None in (one, other) or (b is not None and sign < 0 and a != b) or (sign > 0 and len(symbols) > 1):
        return None
    number = first + sign * second
    if not symbols or len(symbols) > 1:  # those of a difference are the same
        return number
    return Shifted(symbols[0], number) if number else symbols[0]


def _parts(extent: Extent) -> tuple[str | None, int]:
    """A symbol and what is added to it."""
    if isinstance(extent, Shifted):
        return extent.symbol, extent.by
    return (extent, 0) if isinstance(extent, str) else (None, extent or 0)


def _product(operands: Sequence[Extent]) -> Extent:
    one, other = operands
    if isinstance(one, int) and isinstance(other, int):
        return one * other
    return other if one == 1 else one if other == 1 else None


def _quotient(operands: Sequence[Extent]) -> Extent:
    """Where none is left over: else integers and the floats that they may have been cast to divide in two ways."""
    one, other = operands
    if isinstance(one, int) and isinstance(other, int):
        return one // other if other and one % other == 0 else None
    return one if other == 1 else None


def _whole_quotient(operands: Sequence[Extent]) -> Extent:
    """Of integers; towards which side what is left over is rounded matters where one is negative."""
    one, other = operands
    if isinstance(one, int) and isinstance(other, int) and one >= 0 and other > 0:
        return one // other
    return _quotient(operands)


def _equal(operands: Sequence[Extent]) -> Extent:
    """1 where two extents are the same, whatever they are; 0 where they cannot be."""
    one, other = operands
    difference = _sum(one, other, -1)
    if isinstance(difference, int):
        return int(difference == 0)
    number = other if isinstance(other, int) else one
    return 0 if isinstance(number, int) and number < 0 and any(isinstance(e, str) for e in operands) else None


def _chosen(operands: Sequence[Extent]) -> Extent:
    condition, one, other = operands
    return (one if condition else other) if isinstance(condition, int) else None


_OF_INTEGERS: dict[str, Callable[[Sequence[Extent]], Extent]] = {"Div": _whole_quotient}
_RULES: dict[str, Callable[[Sequence[Extent]], Extent]] = {
    "Add": lambda operands: _sum(operands[0], operands[1], 1),
    "Sub": lambda operands: _sum(operands[0], operands[1], -1),
    "Mul": _product,
    "Div": _quotient,
    "Equal": _equal,
    "Where": _chosen,
}
