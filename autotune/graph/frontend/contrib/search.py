"""Operators of searches: words that may not come again, distances between points."""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.tensor import DType


@contributed("NGramRepeatBlock", inputs=2)
def ngram_repeat_block(node: OnnxNode) -> str:
    """Scores of words, -inf for those that would end words in a row that have been there before."""
    size = node.attr_int("ngram_size", 0)
    if size < 1 or node.rank(0) != 2 or node.rank(1) != 2 or node.shape(0)[0] != node.shape(1)[0]:
        raise ModelError(f"{node.label}: ngram_size={size} of words {node.shape(0)} and scores {node.shape(1)}")
    words, scores, (batch, length) = node.input(0), node.input(1), node.shape(0)
    count = length - size + 1
    if count < 1:
        return scores
    ends = node.sliced(words, (range(batch), range(size - 1, length)))
    node.must_lie(ends, (0,), (node.shape(1)[1],), "a word")
    found = node.new_constant(np.broadcast_to(np.bool_(True), (batch, count)))
    for n in range(size - 1):  # each word of a row against that of the last ones
        row = node.sliced(words, (range(batch), range(n, n + count)))
        last = length - size + 1 + n
        same = node.emit("equal", row, node.sliced(words, (range(batch), range(last, last + 1))))
        found = node.emit("and", found, same)
    barred = node.emit("where", found, node.scalar(-math.inf, scores), node.scalar(math.inf, scores))
    return node.emit("scatter_elements", scores, ends, barred, axis=1, reduction="min")


@contributed("CDist", inputs=2)
def distances(node: OnnxNode) -> str:
    """Between all rows of one matrix and all of the other."""
    metric = node.attr_string("metric", "sqeuclidean")
    a, b = node.shape(0), node.shape(1)
    if metric not in ("euclidean", "sqeuclidean") or len(a) != 2 or len(b) != 2 or a[1] != b[1]:
        raise ModelError(f"{node.label}: metric='{metric}' of points {a} and {b}")
    left, right = node.reshaped(node.input(0), (a[0], 1, a[1])), node.reshaped(node.input(1), (1, *b))
    apart = node.emit("sub", left, right)
    squares = node.emit("reduce_sum", node.emit("mul", apart, apart), axes=(2,), keepdims=False)
    return squares if metric == "sqeuclidean" else node.emit("sqrt", squares)


@contributed("CropAndResize", inputs=4)
def crop_and_resize(node: OnnxNode) -> str:
    """Regions (top, left, bottom, right, as fractions) of images, each in one size; a number outside of the image."""
    images, regions = node.shape(0), node.shape(1)
    size = node.constant_ints(3, "the size of a region")
    if len(images) != 4 or len(regions) != 2 or regions[1] != 4 or node.shape(2) != regions[:1] or len(size) != 2:
        raise ModelError(f"{node.label}: regions {regions} of images {node.shape(2)}, of {images}, in size {size}")
    if node.attr_string("mode", "bilinear") != "bilinear":
        raise UnsupportedError(f"{node.label}: the attribute 'mode' is not 'bilinear'")
    node.must_lie(node.input(2), (0,), images[:1], "an image")
    chosen = node.emit("gather", node.input(0), node.input(2), axis=0)
    places, within = [], []
    for n in range(2):
        begin, end = (node.sliced(node.input(1), (range(regions[0]), range(k, k + 1))) for k in (n, n + 2))
        steps = np.arange(size[n]) / (size[n] - 1) if size[n] > 1 else np.full(1, 0.5)
        share = node.new_constant(steps.astype(DType(node.value(1).dtype).numpy)[None])
        place = node.emit("add", begin, node.emit("mul", node.emit("sub", end, begin), share))
        inside = node.emit("and", node.emit("greater_or_equal", place, node.scalar(0.0, place)),
                           node.emit("less_or_equal", place, node.scalar(1.0, place)))  # fmt: skip
        shape = (regions[0], size[0], 1) if n == 0 else (regions[0], 1, size[1])
        whole = (regions[0], *size)
        doubled = node.emit("sub", node.emit("mul", place, node.scalar(2.0, place)), node.scalar(1.0, place))
        places.append(node.reshaped(node.expanded(node.reshaped(doubled, shape), whole), (*whole, 1)))
        within.append(node.reshaped(inside, shape))
    grid = node.emit("concat", places[1], places[0], axis=3)
    sampled = node.emit(
        "grid_sample", chosen, grid, mode="linear", padding="border", align_corners=True, channels_last=False
    )
    counts = node.reshaped(node.emit("and", *within), (regions[0], 1, *size))
    return node.emit("where", counts, sampled, node.scalar(node.attr_float("extrapolation_value", 0.0), sampled))
