"""Linear models and support vectors of regression."""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.learned.scores import best, chosen, transformed
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
    if node.rank() not in (1, 2):
        raise ModelError(f"{node.label}: the data has shape {node.shape()}, it must be a matrix")
    features = node.shape()[-1]
    intercepts = np.asarray(node.attr_floats("intercepts") or (0.0,) * targets, np.float32)
    if targets < 1 or coefficients.size != targets * features or intercepts.size != targets:
        given = f"{coefficients.size} coefficients and {intercepts.size} intercepts"
        raise ModelError(f"{node.label}: {given} for {targets} targets of {features} features")
    x = node.converted(node.reshaped(node.input(0), (node.value().size // max(features, 1), features)), DType.f32)
    weights = node.new_constant(np.ascontiguousarray(coefficients.reshape(targets, features).T))
    product = node.emit("matmul", x, weights, trans_a=False, trans_b=False)
    return node.emit("add", product, node.new_constant(intercepts.reshape(1, -1)))


@contributed("SVMRegressor", inputs=1, domains=ML)
def svm_regressor(node: OnnxNode) -> str:
    """A kernel with each support vector, weighed and summed up; or a linear model, where there are none."""
    x = node.converted(node.input(0), DType.f32)
    coefficients = np.asarray(node.attr_floats("coefficients") or (), np.float32)
    rho = np.asarray(node.attr_floats("rho") or (0.0,), np.float32)
    vectors = np.asarray(node.attr_floats("support_vectors") or (), np.float32)
    count, features = node.attr_int("n_supports", 0), node.shape()[-1]
    kind = node.attr_string("kernel_type", "LINEAR")
    gamma, coef0, degree = (*(node.attr_floats("kernel_params") or (0.0, 0.0, 0.0)), 0.0, 0.0, 0.0)[:3]
    if count and (vectors.size != count * features or coefficients.size != count):
        raise ModelError(f"{node.label}: {vectors.size} numbers for {count} support vectors of {features} features")
    if not count and coefficients.size != features:
        raise ModelError(f"{node.label}: {coefficients.size} coefficients for {features} features")
    if count:
        kernels = _kernel(node, x, vectors.reshape(count, features), kind, gamma, coef0, degree)
    else:
        kernels = x
    weights = node.new_constant(coefficients.reshape(-1, 1))
    total = node.emit("matmul", kernels, weights, trans_a=False, trans_b=False)
    total = node.emit("add", total, node.new_constant(rho[:1].reshape(1, 1)))
    if node.attr_flag("one_class"):
        positive = node.emit("greater", total, node.scalar(0.0, total))
        total = node.emit("where", positive, node.scalar(1.0, total), node.scalar(-1.0, total))
    return transformed(node, total, node.attr_string("post_transform", "NONE"))


def _kernel(node: OnnxNode, x: str, vectors: np.ndarray, kind: str, gamma: float, coef0: float, degree: float) -> str:
    """(rows, supports)."""
    dots = node.emit("matmul", x, node.new_constant(np.ascontiguousarray(vectors.T)), trans_a=False, trans_b=False)
    if kind == "LINEAR":
        return dots
    if kind == "RBF":  # |x - v|² = |x|² - 2 x v + |v|²
        own = node.emit("reduce_sum", node.emit("mul", x, x), axes=(1,), keepdims=True)
        theirs = node.new_constant((vectors.astype(np.float64) ** 2).sum(1).astype(np.float32).reshape(1, -1))
        twice = node.emit("mul", dots, node.scalar(2.0, dots))
        distance = node.emit("sub", node.emit("add", own, theirs), twice)
        nonnegative = node.emit("max", distance, node.scalar(0.0, distance))
        return node.emit("exp", node.emit("mul", nonnegative, node.scalar(-gamma, dots)))
    shifted = node.emit("add", node.emit("mul", dots, node.scalar(gamma, dots)), node.scalar(coef0, dots))
    if kind == "POLY":
        return node.emit("pow", shifted, node.scalar(degree, shifted))
    if kind == "SIGMOID":
        return node.emit("tanh", shifted)
    raise ModelError(f"{node.label}: kernel_type is '{kind}', not LINEAR, POLY, RBF or SIGMOID")
