"""What a model computes from extents before it makes shapes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.graph.frontend.buckets.facts import Extent, Fact, number_of, terms_of, total


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
    if one is None or other is None:
        return None
    terms = terms_of(one)
    for symbol, factor in terms_of(other).items():
        terms[symbol] = terms.get(symbol, 0) + sign * factor
    return total(terms, number_of(one) + sign * number_of(other))


def _product(operands: Sequence[Extent]) -> Extent:
    one, other = operands
    if isinstance(one, int):
        one, other = other, one
    if one is None or not isinstance(other, int):
        return None
    return total({symbol: factor * other for symbol, factor in terms_of(one).items()}, number_of(one) * other)


def _quotient(operands: Sequence[Extent]) -> Extent:
    """Where none is left over: else integers and the floats that they may have been cast to divide in two ways."""
    one, other = operands
    if one is None or not isinstance(other, int) or not other:
        return None
    terms, number = terms_of(one), number_of(one)
    if any(factor % other for factor in (*terms.values(), number)):
        return None
    return total({symbol: factor // other for symbol, factor in terms.items()}, number // other)


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
