"""Layer and root-mean-square normalisation and softmax written in primitive nodes become one node each.

requires: constants folded and common subexpressions merged.
ensures: none of these over the last axes is left in the forms that exporters write; scales and shifts behind a
normalisation are its own.
"""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.match import beside_number, made_by, number
from autotune.graph.passes.sweep import Sweep
from autotune.ops.broadcast import broadcast_shapes
from autotune.tensor import DType


def recognize_norms(graph: Graph) -> Graph:
    """`(x - mean(x)) / sqrt(mean((x - mean(x))²) + e) * s + b` --> `layer_norm(x, s, b)`, and so on."""
    sweep = Sweep(graph)
    for node in sweep:
        found = None
        if DType(node.output.dtype).is_float:
            if node.op in ("div", "mul"):
                found = _softmax(sweep, node) or _normalised(sweep, node)
            if found is None and node.op in ("mul", "add"):
                found = _with_affine(sweep, node)
        if found is None:
            sweep.keep(node)
        else:
            sweep.replace(node, found)
    return sweep.result()


def _quotient(sweep: Sweep, node: Node) -> list[tuple[str, str]]:
    """(a, b) where the node is a / b, or a times the reciprocal of b."""
    if node.op == "div":
        return [(node.inputs[0], node.inputs[1])]
    found = []
    for a, inverse in (node.inputs, node.inputs[::-1]):
        under = made_by(sweep, inverse, "reciprocal", "div")
        if under is not None and (under.op == "reciprocal" or number(sweep, under.inputs[0]) == 1.0):
            found.append((a, under.inputs[-1]))
    return found


def _trailing_axis(sweep: Sweep, mean: Node, x: str) -> int | None:
    """The first of the axes that a reduction with keepdims folds, if they are the last ones of x."""
    axes, rank = mean.int_tuple("axes"), len(sweep.values[x].shape)
    last = mean.inputs[0] == x and mean.attr("keepdims") and axes and axes == tuple(range(axes[0], rank))
    return axes[0] if last else None


def _normalised(sweep: Sweep, node: Node) -> str | None:
    """x less its mean (or x itself), over the root of the mean of its squares plus epsilon."""
    for centred, deviation in _quotient(sweep, node):
        root = made_by(sweep, deviation, "sqrt")
        shifted = made_by(sweep, root.inputs[0], "add") if root is not None else None
        beside = beside_number(sweep, shifted) if shifted is not None else None
        mean = made_by(sweep, beside[0], "reduce_mean") if beside is not None else None
        if mean is None or beside is None or not _is_square(sweep, mean.inputs[0], centred):
            continue
        axis = _trailing_axis(sweep, mean, mean.inputs[0])
        shape = sweep.values[centred].shape
        if axis is None or shape != node.output.shape:
            continue
        dtype = DType(node.output.dtype).numpy
        ones = sweep.constant(np.ones(shape[axis:], dtype), "ones")
        minus = made_by(sweep, centred, "sub")
        average = made_by(sweep, minus.inputs[1], "reduce_mean") if minus is not None else None
        if minus is not None and average is not None and _trailing_axis(sweep, average, minus.inputs[0]) == axis:
            zeros = sweep.constant(np.zeros(shape[axis:], dtype), "zeros")
            operands = (minus.inputs[0], ones, zeros)
            return sweep.emit(node, "layer_norm", operands, axis=axis, epsilon=beside[1], result=0)
        return sweep.emit(node, "rms_norm", (centred, ones), axis=axis, epsilon=beside[1])
    return None


def _is_square(sweep: Sweep, name: str, x: str) -> bool:
    node = made_by(sweep, name, "mul", "pow")
    if node is None or node.inputs[0] != x:
        return False
    return node.inputs[1] == x if node.op == "mul" else number(sweep, node.inputs[1]) == 2.0


def _with_affine(sweep: Sweep, node: Node) -> str | None:
    """A scale or shift behind a normalisation that has none yet."""
    for inner, other in (node.inputs, node.inputs[::-1]):
        norm = made_by(sweep, inner, "layer_norm", "rms_norm")
        if norm is None or not sweep.sole_use(inner) or (norm.op == "layer_norm" and norm.attr("result")):
            continue
        position, neutral = (1, 1.0) if node.op == "mul" else (2, 0.0)
        if position >= len(norm.inputs):
            continue
        held, shape = sweep.array(norm.inputs[position]), sweep.values[other].shape
        axis = norm.attr("axis")
        fits = isinstance(axis, int) and len(shape) <= len(norm.output.shape) - axis
        fits = fits and broadcast_shapes(node.op, (shape, norm.output.shape)) == norm.output.shape
        if held is None or not fits or not bool(np.all(held == neutral)):
            continue
        if node.op == "mul" and len(norm.inputs) == 3:  # a shift that comes before would be scaled too
            shift = sweep.array(norm.inputs[2])
            if shift is None or bool(np.any(shift != 0)):
                continue
        operands = (*norm.inputs[:position], other, *norm.inputs[position + 1 :])
        return sweep.emit(node, norm.op, operands, **dict(norm.attrs))
    return None


def _softmax(sweep: Sweep, node: Node) -> str | None:
    """exp(x - max(x)) over the sum of the same, along one axis."""
    for power, total in _quotient(sweep, node):
        exp, fold = made_by(sweep, power, "exp"), made_by(sweep, total, "reduce_sum")
        minus = made_by(sweep, exp.inputs[0], "sub") if exp is not None else None
        largest = made_by(sweep, minus.inputs[1], "reduce_max") if minus is not None else None
        if fold is None or minus is None or largest is None:
            continue
        axes = fold.int_tuple("axes")
        same = fold.inputs == (power,) and largest.inputs == minus.inputs[:1] and largest.int_tuple("axes") == axes
        if same and len(axes) == 1 and fold.attr("keepdims") and largest.attr("keepdims"):
            return sweep.emit(node, "softmax", minus.inputs[:1], axis=axes[0])
    return None
