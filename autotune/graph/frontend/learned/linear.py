"""Linear models."""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.learned.scores import best, check_transform, chosen, transformed
from autotune.graph.frontend.learned.trees import ML
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.tensor import DType


@contributed("LinearRegressor", inputs=1, domains=ML)
def linear_regressor(node: OnnxNode) -> str:
    targets = node.attr_int("targets", 1)
    coefficients = np.asarray(node.attr_floats("coefficients") or (), np.float32)
    return transformed(node, _linear(node, targets, coefficients), node.attr_string("post_transform", "NONE"))


@contributed("LinearClassifier", inputs=1, domains=ML)
def linear_classifier(node: OnnxNode) -> tuple[str, str]:
    """(label, scores): two classes may share one score, the second's, and the first has what is left of 1.

    Of the transforms only LOGISTIC is one of a single score, as in ONNX Runtime.
    """
    labels = node.attr_ints("classlabels_ints") or ()
    transform = node.attr_string("post_transform", "NONE")
    node.attr_int("multi_class", 0)  # how it was trained
    features = max(node.shape()[-1] if node.rank() else 1, 1)
    coefficients = node.attr_floats("coefficients") or ()
    # As in ONNX Runtime the intercepts say how many classes there are, and coefficients behind theirs are not read.
    count = len(node.attr_floats("intercepts") or ()) or len(coefficients) // features
    scores = _linear(node, count, np.asarray(coefficients[: count * features], np.float32))
    if count == 1 and len(labels) == 2:
        check_transform(node, transform, of_one_score=True)
        above = node.emit("greater", scores, node.scalar(0.0, scores))
        if transform == "LOGISTIC":
            other, scores = node.emit("sigmoid", node.emit("neg", scores)), node.emit("sigmoid", scores)
        else:
            other = node.emit("sub", node.scalar(1.0, scores), scores)
        return chosen(node, above, labels[1], labels[0]), node.emit("concat", other, scores, axis=1)
    if count == 1:
        above = node.emit("greater", scores, node.scalar(0.0, scores))
        return chosen(node, above, labels[0] if labels else 1, 0), transformed(node, scores, transform)
    return best(node, scores, labels or tuple(range(count))), transformed(node, scores, transform)


def _linear(node: OnnxNode, targets: int, coefficients: np.ndarray) -> str:
    """x @ coefficients + intercepts in f32, (rows, targets)."""
    x = matrix(node)
    features = node.shape()[-1]
    intercepts = np.asarray(node.attr_floats("intercepts") or (0.0,) * targets, np.float32)
    if targets < 1 or coefficients.size != targets * features or intercepts.size != targets:
        given = f"{coefficients.size} coefficients and {intercepts.size} intercepts"
        raise ModelError(f"{node.label}: {given} for {targets} targets of {features} features")
    weights = node.new_constant(np.ascontiguousarray(coefficients.reshape(targets, features).T))
    product = node.emit("matmul", x, weights, trans_a=False, trans_b=False)
    return node.emit("add", product, node.new_constant(intercepts.reshape(1, -1)))


def matrix(node: OnnxNode) -> str:
    """The data as (rows, features) in f32: a vector is one row.

    Raises:
        ModelError: it has more dimensions, or none.
    """
    if node.rank() not in (1, 2):
        raise ModelError(f"{node.label}: the data has shape {node.shape()}, it must be a matrix")
    features = node.shape()[-1]
    return node.converted(node.reshaped(node.input(0), (node.value().size // max(features, 1), features)), DType.f32)
