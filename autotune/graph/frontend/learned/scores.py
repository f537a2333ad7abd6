"""What classifiers and regressors do with sums: transforms of scores, and which class has the best."""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.node import OnnxNode
from autotune.tensor import DType

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
NEAR_ZERO = 1e-7


def transformed(node: OnnxNode, scores: str, name: str) -> str:
    """(rows, classes) through a `post_transform`.

    Raises:
        ModelError: there is none of that name. UnsupportedError: PROBIT.
    """
    if name not in TRANSFORMS:
        raise ModelError(f"{node.label}: post_transform is '{name}', not {', '.join(TRANSFORMS)}")
    if name == "PROBIT":
        raise UnsupportedError(f"{node.label}: post_transform PROBIT")
    if name == "SOFTMAX":
        return node.emit("softmax", scores, axis=1)
    if name == "LOGISTIC":
        return node.emit("sigmoid", scores)
    return scores if name == "NONE" else _softmax_zero(node, scores)


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
