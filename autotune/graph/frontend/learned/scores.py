"""What classifiers and regressors do with sums: transforms of scores, and which class has the best."""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.node import OnnxNode
from autotune.tensor import DType

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
NEAR_ZERO = 1e-7
WINITZKI = 0.147


def transformed(node: OnnxNode, scores: str, name: str) -> str:
    """(rows, classes) through a `post_transform`.

    Raises:
        ModelError: there is none of that name.
    """
    check_transform(node, name)
    if name == "PROBIT":
        return _probit(node, scores)
    if name == "SOFTMAX":
        return node.emit("softmax", scores, axis=1)
    if name == "LOGISTIC":
        return node.emit("sigmoid", scores)
    return scores if name == "NONE" else _softmax_zero(node, scores)


def check_transform(node: OnnxNode, name: str, *, of_one_score: bool = False) -> None:
    """
    Args:
        of_one_score: two classes share a score.

    Raises:
        ModelError: there is none of that name.
        UnsupportedError: PROBIT of a score that two classes share: onnx.reference gives one column, and ONNX Runtime
            a second one that it does not transform.
    """
    if name not in TRANSFORMS:
        raise ModelError(f"{node.label}: post_transform is '{name}', not {', '.join(TRANSFORMS)}")
    if of_one_score and name == "PROBIT":
        raise UnsupportedError(f"{node.label}: post_transform PROBIT of one score for two classes")


def _probit(node: OnnxNode, scores: str) -> str:
    """The inverse of the normal distribution, by Winitzki's approximation, which ONNX Runtime and onnx.reference take.

    With u = 2 p - 1, l = log(1 - u²) and v = 2 / (pi A) + l / 2 it is sign(u) sqrt(2 (sqrt(v² - l / A) - v)). That
    difference is nothing but rounding around p = 0.5, where it is written as a quotient.
    """
    u = node.emit("sub", node.emit("mul", scores, node.scalar(2.0, scores)), node.scalar(1.0, scores))
    one = node.scalar(1.0, u)
    logs = node.emit("log", node.emit("mul", node.emit("sub", one, u), node.emit("add", one, u)))
    v = node.emit("mul", logs, node.scalar(0.5, u))
    v = node.emit("add", v, node.scalar(2.0 / (math.pi * WINITZKI), u))
    less = node.emit("mul", logs, node.scalar(-1.0 / WINITZKI, u))  # -l / A, never negative
    root = node.emit("sqrt", node.emit("add", node.emit("mul", v, v), less))
    quotient = node.emit("div", less, node.emit("add", root, v))
    squares = node.emit("where", node.emit("greater", v, node.scalar(0.0, v)), quotient, node.emit("sub", root, v))
    size = node.emit("sqrt", node.emit("mul", squares, node.scalar(2.0, u)))
    return node.emit("where", node.emit("less", u, node.scalar(0.0, u)), node.emit("neg", size), size)


def _softmax_zero(node: OnnxNode, scores: str) -> str:
    """Softmax in which a score of zero stays zero times the others' scale."""
    highest = node.emit("reduce_max", scores, axes=(1,), keepdims=True)
    risen = node.emit("exp", node.emit("sub", scores, highest))
    kept = node.emit("mul", scores, node.emit("exp", node.emit("neg", highest)))
    far = node.emit("greater", node.emit("abs", scores), node.scalar(NEAR_ZERO, scores))
    values = node.emit("where", far, risen, kept)
    total = node.emit("reduce_sum", values, axes=(1,), keepdims=True)
    none = node.emit("equal", total, node.scalar(0.0, total))
    return node.emit("where", none, node.scalar(0.5, scores), node.emit("div", values, total))


def best(node: OnnxNode, scores: str, labels: tuple[int, ...]) -> str:
    """The label (i64) of the highest score of each row, the first of equal ones."""
    place = node.emit("argmax", scores, axis=1, keepdims=False, select_last_index=False)
    if labels == tuple(range(len(labels))):
        return node.converted(place, DType.i64)
    return node.emit("gather", node.new_constant(np.asarray(labels, np.int64)), place, axis=0)


def chosen(node: OnnxNode, condition: str, yes: int, no: int) -> str:
    """One of two labels (i64) for each row of a condition (rows, 1)."""
    first, second = (node.new_constant(np.asarray(label, np.int64)) for label in (yes, no))
    rows = node.builder.values[condition].shape[0]
    return node.emit("where", node.reshaped(condition, (rows,)), first, second)
