"""Strength reduction: cheaper operators for the same values, where nobody asks for exact ones.

requires: a verified graph.
ensures: no power by a small number that products and roots express; no division by constants, unless its result is
rounded or compared; no root of a square; no negated operand of a sum.
A negative infinity to the power of 0.5 becomes NaN, as in other engines that take the root.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autotune.graph.infer import is_elementwise
from autotune.graph.ir import Array, Graph, Node
from autotune.graph.passes.match import beside_number, is_not_negative, made_by, number
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.ops.registry import has_trait
from autotune.ops.traits import Trait
from autotune.tensor import DType

WIDE = frozenset({"f32", "f64"})  # dtypes in which a second rounding is no matter
STEPS = frozenset(  # a last bit decides what these give
    {
        "ceil", "equal", "floor", "greater", "greater_or_equal", "less", "less_or_equal", "mod", "quantize", "round",
        "sign",
    }
)  # fmt: skip


def reduce_strength(graph: Graph) -> Graph:
    """`x ** 2` --> `x * x`;  `x / 3` --> `x * (1 / 3)`;  `sqrt(x * x)` --> `abs(x)`;  `x + neg(y)` --> `x - y`."""
    exact = _decided_by_a_bit(graph)

    def cheaper(sweep: Sweep, node: Node) -> str | None:
        return _RULES[node.op](sweep, node, node.name in exact) if _is_float(node) else None

    return rewrite(graph, cheaper, _RULES)


def _is_float(node: Node) -> bool:
    return DType(node.output.dtype).is_float


def _decided_by_a_bit(graph: Graph) -> frozenset[str]:
    """Values from which elementwise operators and movement lead to a step."""
    found: set[str] = set()
    for node in reversed(graph.nodes):
        steps = node.op in STEPS or (node.op == "cast" and not _is_float(node))
        if steps or (node.name in found and (is_elementwise(node.op) or has_trait(node.op, Trait.MOVES))):
            found.update(node.inputs)
    return frozenset(found)


def _power(sweep: Sweep, node: Node, exact: bool) -> str | None:
    scaled = beside_number(sweep, node)
    if scaled is None:
        return None
    x, exponent = scaled
    emit = {
        2.0: lambda: _times(sweep, node, x, x),
        3.0: lambda: _times(sweep, node, x, _times(sweep, node, x, x)),
        0.5: lambda: sweep.emit(node, "sqrt", (x,)),
        -0.5: lambda: sweep.emit(node, "reciprocal", (sweep.emit(node, "sqrt", (x,)),)),
        -1.0: lambda: sweep.emit(node, "reciprocal", (x,)),
        -2.0: lambda: sweep.emit(node, "reciprocal", (_times(sweep, node, x, x),)),
    }.get(exponent)
    return emit() if emit is not None else None


def _times(sweep: Sweep, like: Node, a: str, b: str) -> str:
    return sweep.emit(like, "mul", (a, b))


def _quotient(sweep: Sweep, node: Node, exact: bool) -> str | None:
    a, b = node.inputs
    if number(sweep, a) == 1.0 and sweep.array(b) is None and sweep.values[b].shape == node.output.shape:
        return sweep.emit(node, "reciprocal", (b,))
    divisor = sweep.array(b)
    if divisor is None or sweep.array(a) is not None or not divisor.size:
        return None
    with np.errstate(all="ignore"):  # zeros and infinities are the model's: they stay
        inverse = (1.0 / divisor.astype(np.float64)).astype(divisor.dtype)
    if not _is_normal(divisor) or not _is_normal(inverse):
        return None
    rounds = bool(np.any(np.abs(np.frexp(divisor.astype(np.float64))[0]) != 0.5))  # unless powers of two
    if rounds and (exact or node.output.dtype not in WIDE):
        return None
    return sweep.emit(node, "mul", (a, sweep.constant(inverse, b)))


def _is_normal(array: Array) -> bool:
    least = float(np.finfo(array.dtype).tiny) if array.dtype.kind == "f" else 2.0**-126  # bfloat16
    size = np.abs(array.astype(np.float64))
    return bool(np.all(np.isfinite(size)) and np.all(size >= least))


def _product(sweep: Sweep, node: Node, exact: bool) -> str | None:
    """A square of a root; a product with a reciprocal that only this reads."""
    a, b = node.inputs
    root = made_by(sweep, a, "sqrt")
    if a == b and root is not None and is_not_negative(sweep, root.inputs[0]):
        return root.inputs[0]
    for x, inverse in ((a, b), (b, a)):
        under = made_by(sweep, inverse, "reciprocal")
        if under is None or exact or not sweep.sole_use(inverse) or sweep.values[x].shape != node.output.shape:
            continue
        if under.output.shape == node.output.shape:  # a smaller one is a division per row, not per element
            return sweep.emit(node, "div", (x, under.inputs[0]))
    return None


def _root(sweep: Sweep, node: Node, exact: bool) -> str | None:
    square = made_by(sweep, node.inputs[0], "mul")
    same = square is not None and square.inputs[0] == square.inputs[1]
    return sweep.emit(node, "abs", square.inputs[:1]) if square is not None and same else None


def _sum(sweep: Sweep, node: Node, exact: bool) -> str | None:
    a, b = node.inputs
    if a == b and node.op == "sub":  # zero, or NaN; a difference of two products would be a rounding error
        zero = sweep.constant(np.zeros((), DType(node.output.dtype).numpy), node.name)
        return sweep.emit(node, "mul", (a, zero))
    right = made_by(sweep, b, "neg")
    if right is not None:
        return sweep.emit(node, "sub" if node.op == "add" else "add", (a, right.inputs[0]))
    left = made_by(sweep, a, "neg") if node.op == "add" else None
    return sweep.emit(node, "sub", (b, left.inputs[0])) if left is not None else None


_Rule = Callable[[Sweep, Node, bool], "str | None"]
_RULES: dict[str, _Rule] = {
    "pow": _power, "div": _quotient, "mul": _product, "sqrt": _root, "add": _sum, "sub": _sum,
}  # fmt: skip
