"""Support vector machines: kernels with every support vector, weighed; pairs of classes that vote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.learned.linear import matrix
from autotune.graph.frontend.learned.scores import best, check_transform, transformed
from autotune.graph.frontend.learned.trees import ML
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.graph.ir import Array

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
MOST_WEIGHTS = 2**27
"""Of support vectors in all pairs of classes, most of them zero where there are many classes."""


@contributed("SVMRegressor", inputs=1, domains=ML)
def svm_regressor(node: OnnxNode) -> str:
    """(rows, 1): a kernel with each support vector, weighed and summed up; a linear model where there are none."""
    kernel, coefficients, rho = Kernel.of(node), _floats(node, "coefficients"), _floats(node, "rho", (0.0,))
    count, features = node.attr_int("n_supports", 0), node.shape()[-1]
    vectors = _vectors(node, count)
    if coefficients.size != (count or features):
        raise ModelError(
            f"{node.label}: {coefficients.size} coefficients for {count or features} support vectors or features"
        )
    x = matrix(node)
    total = _weighed(node, kernel.emitted(node, x, vectors) if count else x, coefficients[:, None], rho[:1])
    if node.attr_flag("one_class"):
        positive = node.emit("greater", total, node.scalar(0.0, total))
        total = node.emit("where", positive, node.scalar(1.0, total), node.scalar(-1.0, total))
    return transformed(node, total, node.attr_string("post_transform", "NONE"))


@contributed("SVMClassifier", inputs=1, domains=ML)
def svm_classifier(node: OnnxNode) -> tuple[str, str]:
    """(label, scores): the class with most votes, and a probability for each class, or else a score for each pair.

    As in ONNX Runtime, whose Q of the coupling is libsvm's; that of onnx.reference 1.23 is another.
    """
    kernel, coefficients = Kernel.of(node), _floats(node, "coefficients")
    labels, of_classes = node.attr_ints("classlabels_ints") or (), node.attr_ints("vectors_per_class") or ()
    rho, prob_a, prob_b = (_floats(node, name) for name in ("rho", "prob_a", "prob_b"))
    vectors, transform = _vectors(node, sum(of_classes)), node.attr_string("post_transform", "NONE")
    if not labels:
        raise ModelError(f"{node.label}: there are no class labels")
    x = matrix(node)
    if not sum(of_classes):
        return _linear(node, x, labels, coefficients, rho, transform)
    pairs = len(labels) * (len(labels) - 1) // 2
    weights = _of_pairs(node, coefficients, of_classes, len(labels))
    if rho.size < pairs or prob_a.size != prob_b.size or 0 < prob_a.size < pairs:
        raise ModelError(
            f"{node.label}: rho, prob_a and prob_b do not have a number for each of {pairs} pairs of classes"
        )
    scores = _weighed(node, kernel.emitted(node, x, vectors), weights, rho[:pairs])
    label = best(node, _votes(node, scores, len(labels)), labels)
    if prob_a.size:
        scores = _probabilities(node, scores, prob_a[:pairs], prob_b[:pairs], len(labels))
    elif pairs == 1:
        check_transform(node, transform, of_one_score=True)
        scores = node.emit("concat", node.emit("neg", scores), scores, axis=1)
    return label, transformed(node, scores, transform)


def _linear(
    node: OnnxNode, x: str, labels: Sequence[int], coefficients: Array, rho: Array, transform: str
) -> tuple[str, str]:
    """A score for each class, as liblinear has it; all have one `rho`.

    Of two classes with no weight below zero the second wins from 0.5 on, as in ONNX Runtime and onnx.reference.
    """
    features = node.shape()[-1]
    if coefficients.size != len(labels) * features or not rho.size:
        given = f"{coefficients.size} coefficients and {rho.size} numbers of rho"
        raise ModelError(f"{node.label}: {given} for {len(labels)} classes of {features} features")
    scores = _weighed(node, x, coefficients.reshape(len(labels), features).T, rho[:1])
    label = best(node, scores, tuple(labels))
    if len(labels) == 2 and (coefficients >= 0).all():
        highest = node.emit("reduce_max", scores, axes=(1,), keepdims=False)
        second = node.new_constant(np.asarray(labels[1], np.int64))
        sure = node.emit("greater_or_equal", highest, node.scalar(0.5, highest))
        label = node.emit("where", sure, second, label)
    return label, transformed(node, scores, transform)


def _of_pairs(node: OnnxNode, coefficients: Array, of_classes: Sequence[int], classes: int) -> Array:
    """(support vectors, pairs) in f32: what each vector weighs in each pair, nothing where it is of neither class.

    `coefficients` are (classes - 1, support vectors): a vector of class i has those against class j in row j, in row
    j - 1 if j > i, for there is no row against itself.
    """
    count = sum(of_classes)
    if len(of_classes) != classes or classes < 2 or min(of_classes) < 0 or coefficients.size != (classes - 1) * count:
        given = f"{coefficients.size} coefficients and vectors_per_class {tuple(of_classes)}"
        raise ModelError(f"{node.label}: {given} for {classes} classes")
    pairs = list(combinations(range(classes), 2))
    if count * len(pairs) > MOST_WEIGHTS:
        raise UnsupportedError(f"{node.label}: {count} support vectors in {len(pairs)} pairs of classes")
    rows, ends = coefficients.reshape(classes - 1, count), np.cumsum(of_classes)
    found = np.zeros((count, len(pairs)), np.float32)
    for pair, (i, j) in enumerate(pairs):
        for own, row in ((i, j - 1), (j, i)):
            vectors = slice(ends[own] - of_classes[own], ends[own])
            found[vectors, pair] = rows[row, vectors]
    return found


def _votes(node: OnnxNode, scores: str, classes: int) -> str:
    """(rows, classes) in f32: how many pairs each class wins. The first of a pair wins with a score above zero."""
    pairs = list(combinations(range(classes), 2))
    first, second = (np.eye(classes, dtype=np.float32)[[pair[n] for pair in pairs]] for n in (0, 1))
    above = node.emit("greater", scores, node.scalar(0.0, scores))
    won = node.emit("where", above, node.scalar(1.0, scores), node.scalar(0.0, scores))
    return _weighed(node, won, first - second, second.sum(0))


def _probabilities(node: OnnxNode, scores: str, prob_a: Array, prob_b: Array, classes: int) -> str:
    """(rows, classes): Platt's probability of the first class of each pair, 1 / (1 + exp(a score + b)), coupled."""
    logits = node.emit("mul", scores, node.new_constant(-prob_a.reshape(1, -1)))
    likely = node.emit("sigmoid", node.emit("sub", logits, node.new_constant(prob_b.reshape(1, -1))))
    unlikely = node.emit("sub", node.scalar(1.0, likely), likely)
    both = node.emit("concat", likely, unlikely, axis=1)
    places = np.zeros((classes, classes), np.int64)  # the diagonal is not read
    pairs = list(combinations(range(classes), 2))
    for pair, (i, j) in enumerate(pairs):
        places[i, j], places[j, i] = pair, pair + len(pairs)
    matrices = node.emit("gather", both, node.new_constant(places), axis=1)
    return node.emit("coupled_probabilities", matrices)


def _weighed(node: OnnxNode, x: str, weights: Array, shift: Array) -> str:
    """x @ weights + shift."""
    table = node.new_constant(np.ascontiguousarray(weights))
    product = node.emit("matmul", x, table, trans_a=False, trans_b=False)
    return node.emit("add", product, node.new_constant(shift.reshape(1, -1)))


def _floats(node: OnnxNode, name: str, default: Sequence[float] = ()) -> Array:
    return np.asarray(node.attr_floats(name) or default, np.float32)


def _vectors(node: OnnxNode, count: int) -> Array:
    """(count, features) in f32."""
    vectors, features = _floats(node, "support_vectors"), node.shape()[-1] if node.rank() else 0
    if count and vectors.size != count * features:
        raise ModelError(f"{node.label}: {vectors.size} numbers for {count} support vectors of {features} features")
    return vectors.reshape(count, features) if count else vectors


@dataclass(frozen=True, slots=True)
class Kernel:
    """How like two vectors are."""

    kind: str
    gamma: float
    coef0: float
    degree: float

    @staticmethod
    def of(node: OnnxNode) -> Kernel:
        """
        Raises:
            ModelError: there is none of that name.
        """
        kind = node.attr_string("kernel_type", "LINEAR")
        if kind not in KERNELS:
            raise ModelError(f"{node.label}: kernel_type is '{kind}', not {', '.join(KERNELS)}")
        return Kernel(kind, *(*(node.attr_floats("kernel_params") or ()), 0.0, 0.0, 0.0)[:3])

    def emitted(self, node: OnnxNode, x: str, vectors: Array) -> str:
        """(rows, vectors) from x (rows, features)."""
        if self.kind == "RBF":
            return self._of_distances(node, x, vectors)
        dots = _dots(node, x, vectors)
        if self.kind == "LINEAR":
            return dots
        scaled = node.emit("mul", dots, node.scalar(self.gamma, dots))
        shifted = node.emit("add", scaled, node.scalar(self.coef0, dots))
        if self.kind == "SIGMOID":
            return node.emit("tanh", shifted)
        return node.emit("pow", shifted, node.scalar(self.degree, shifted))

    def _of_distances(self, node: OnnxNode, x: str, vectors: Array) -> str:
        """exp(-gamma |x - v|²) with |x - v|² = |x|² - 2 x v + |v|².

        Of that little is left where features are large and spread little (years), so the middle of the vectors is zero.
        """
        middle = vectors.mean(0, dtype=np.float64).astype(np.float32)
        x = node.emit("sub", x, node.new_constant(middle[None]))
        around = vectors.astype(np.float64) - middle
        own = node.emit("reduce_sum", node.emit("mul", x, x), axes=(1,), keepdims=True)
        theirs = node.new_constant((around**2).sum(1).astype(np.float32)[None])
        dots = _dots(node, x, around.astype(np.float32))
        twice = node.emit("mul", dots, node.scalar(2.0, dots))
        distance = node.emit("sub", node.emit("add", own, theirs), twice)
        nonnegative = node.emit("max", distance, node.scalar(0.0, distance))
        return node.emit("exp", node.emit("mul", nonnegative, node.scalar(-self.gamma, dots)))


def _dots(node: OnnxNode, x: str, vectors: Array) -> str:
    table = node.new_constant(np.ascontiguousarray(vectors.T))
    return node.emit("matmul", x, table, trans_a=False, trans_b=False)
