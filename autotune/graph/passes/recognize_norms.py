"""Layer and root-mean-square normalisation written in primitive nodes become one node each.

requires: constants folded and common subexpressions merged; powers are products and roots (reduce-strength).
ensures: none of these over the last axes is left in the forms that exporters write; scales and shifts behind a
normalisation are its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.match import beside_number, made_by
from autotune.graph.passes.moments import centred, mean_of, under_root, variance_of
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.ops.broadcast import broadcast_shapes
from autotune.tensor import DType


def recognize_norms(graph: Graph) -> Graph:
    """`(x - mean(x)) / sqrt(mean((x - mean(x))²) + e) * s + b` --> `layer_norm(x, s, b)`, and so on."""
    return rewrite(graph, _norm, ("add", "div", "mul"))


def _norm(sweep: Sweep, node: Node) -> str | None:
    if not DType(node.output.dtype).is_float:
        return None
    found = _distributed(sweep, node) if node.op == "add" else _normalised(sweep, node)
    return found if found is not None or node.op == "div" else _with_affine(sweep, node)


def _over_root(sweep: Sweep, node: Node) -> Iterator[tuple[str, str]]:
    """(a, v) where the node is a over the root of v."""
    if node.op == "div":
        root = made_by(sweep, node.inputs[1], "sqrt")
        if root is not None:
            yield node.inputs[0], root.inputs[0]
        return
    for a, inverse in (node.inputs, node.inputs[::-1]):
        v = under_root(sweep, inverse)
        if v is not None:
            yield a, v


def _scaled(sweep: Sweep, name: str) -> Iterator[tuple[str, str | None]]:
    """(x, s) where the value is x times s; s None for one."""
    yield name, None
    node = made_by(sweep, name, "mul")
    if node is not None:
        yield node.inputs[0], node.inputs[1]
        yield node.inputs[1], node.inputs[0]


def _normalised(sweep: Sweep, node: Node) -> str | None:
    """x less its mean (or x itself), over the root of the mean of its squares plus epsilon; perhaps scaled before."""
    for above, below in _over_root(sweep, node):
        shifted = made_by(sweep, below, "add")
        beside = beside_number(sweep, shifted) if shifted is not None else None
        if beside is None:
            continue
        variance, squares = variance_of(sweep, beside[0]), mean_of(sweep, beside[0], squares=True)
        for x, scale in _scaled(sweep, above):
            if sweep.values[x].shape != node.output.shape:
                continue
            if variance is not None and centred(sweep, x) == variance:
                found = _layer_norm(sweep, node, variance.value, variance.axis, beside[1], scale, None)
            elif squares is not None and squares.value == x and _fits(sweep, scale, node, squares.axis):
                weight = scale or _filled(sweep, node, squares.axis, 1.0)
                found = sweep.emit(node, "rms_norm", (x, weight), axis=squares.axis, epsilon=beside[1])
            else:
                found = None
            if found is not None:
                return found
    return None


def _distributed(sweep: Sweep, node: Node) -> str | None:
    """x g + (b - mean(x) g), where g is a scale over the root of the variance of x plus epsilon."""
    for left, right in (node.inputs, node.inputs[::-1]):
        minus, whole = made_by(sweep, right, "sub"), made_by(sweep, left, "mul")
        part = made_by(sweep, minus.inputs[1], "mul") if minus is not None else None
        if minus is None or whole is None or part is None:
            continue
        for x, gain in (whole.inputs, whole.inputs[::-1]):
            mean = next((m for m, g in (part.inputs, part.inputs[::-1]) if g == gain), None)
            if mean is None:
                continue
            for inverse, scale in _scaled(sweep, gain):
                below = under_root(sweep, inverse)
                shifted = made_by(sweep, below, "add") if below is not None else None
                beside = beside_number(sweep, shifted) if shifted is not None else None
                variance = variance_of(sweep, beside[0]) if beside is not None else None
                if beside is None or variance is None or variance.value != x or mean_of(sweep, mean) != variance:
                    continue
                return _layer_norm(sweep, node, x, variance.axis, beside[1], scale, minus.inputs[0])
    return None


def _layer_norm(
    sweep: Sweep, node: Node, x: str, axis: int, epsilon: float, scale: str | None, bias: str | None
) -> str | None:
    if not all(_fits(sweep, operand, node, axis) for operand in (scale, bias)):
        return None
    operands = (x, scale or _filled(sweep, node, axis, 1.0), bias or _filled(sweep, node, axis, 0.0))
    return sweep.emit(node, "layer_norm", operands, axis=axis, epsilon=epsilon, result=0)


def _filled(sweep: Sweep, node: Node, axis: int, value: float) -> str:
    shape, dtype = node.output.shape[axis:], DType(node.output.dtype).numpy
    return sweep.constant(np.full(shape, value, dtype), "ones" if value else "zeros")


def _fits(sweep: Sweep, operand: str | None, node: Node, axis: int) -> bool:
    """Whether a scale or shift varies along the folded axes only, and makes the result no larger."""
    if operand is None:
        return True
    shape, whole = sweep.values[operand].shape, node.output.shape
    return len(shape) <= len(whole) - axis and broadcast_shapes(node.op, (shape, whole)) == whole


def _with_affine(sweep: Sweep, node: Node) -> str | None:
    """A scale or shift behind a normalisation that has none yet."""
    for inner, other in (node.inputs, node.inputs[::-1]):
        norm = made_by(sweep, inner, "layer_norm", "rms_norm")
        if norm is None or not sweep.sole_use(inner) or (norm.op == "layer_norm" and norm.attr("result")):
            continue
        position, neutral = (1, 1.0) if node.op == "mul" else (2, 0.0)
        if position >= len(norm.inputs):
            continue
        held, axis = sweep.array(norm.inputs[position]), norm.attr("axis")
        fits = isinstance(axis, int) and _fits(sweep, other, norm, axis % len(norm.output.shape))
        if held is None or not fits or not bool(np.all(held == neutral)):
            continue
        if node.op == "mul" and len(norm.inputs) == 3:  # a shift that comes before would be scaled too
            shift = sweep.array(norm.inputs[2])
            if shift is None or bool(np.any(shift != 0)):
                continue
        operands = (*norm.inputs[:position], other, *norm.inputs[position + 1 :])
        return sweep.emit(node, norm.op, operands, **dict(norm.attrs))
    return None
