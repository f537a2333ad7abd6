"""NonMaxSuppression: boxes by falling score, without those that overlap a better one too much."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.errors import InputError, ModelError
from autotune.graph.host.node import HostNode, on_host
from autotune.graph.ir import Array


@dataclass(frozen=True)
class Suppression:
    """What a NonMaxSuppression is asked to do.

    Attributes:
        boxes: f32 [batches, count, 4].
        scores: f32 [batches, classes, count].
        limit: boxes of a class, at most.
        overlap: a box goes when it and a better one have more than this share of what they cover in common.
        least: scores must be above it.
        centred: boxes are centre and size, not two opposite corners.
    """

    boxes: Array
    scores: Array
    limit: int
    overlap: float
    least: float
    centred: bool

    @classmethod
    def of(cls, node: HostNode) -> Suppression:
        """
        Raises:
            ModelError: shapes do not fit.
            InputError: the threshold is no share.
        """
        boxes, scores = node.array(0), node.array(1)
        if boxes.ndim != 3 or boxes.shape[2] != 4 or scores.ndim != 3 or scores.shape[::2] != boxes.shape[:2]:
            raise ModelError(
                f"{node.label}: boxes {boxes.shape} and scores {scores.shape}; [n, boxes, 4], [n, c, boxes]"
            )
        limit, overlap = int(_scalar(node, 2)), _scalar(node, 3)
        if not 0 <= overlap <= 1:
            raise InputError(f"{node.label}: the threshold of the overlap is {overlap}, not within 0..1")
        least = _scalar(node, 4) if node.optional(4) is not None else -np.inf
        centred = node.attr_flag("center_point_box")
        return cls(boxes.astype(np.float32, copy=False), scores.astype(np.float32, copy=False), limit, overlap, least,
                   centred)  # fmt: skip


@on_host("NonMaxSuppression")
def non_max_suppression(node: HostNode) -> tuple[Array]:
    """i64 [count, 3]: batch, class, box; per class at most so many as the third input says (none without it)."""
    asked = Suppression.of(node)
    corners = _corners(asked.boxes, asked.centred)
    found = [
        (batch, label, box)
        for batch in range(asked.scores.shape[0])
        for label in range(asked.scores.shape[1])
        for box in _selected(corners[batch], asked.scores[batch, label], asked)
    ]
    return (np.asarray(found, np.int64).reshape(-1, 3),)


def _scalar(node: HostNode, position: int) -> float:
    array = node.optional(position)
    if array is None:
        return 0
    if array.size != 1:
        raise ModelError(f"{node.label}: input {position} must be a scalar, not of shape {array.shape}")
    return float(array.item())


def _corners(boxes: Array, centred: bool) -> Array:
    """Lowest and highest corner of each box, [..., 4]."""
    a, b = boxes[..., :2], boxes[..., 2:]
    low, high = (a - b / 2, a + b / 2) if centred else (np.minimum(a, b), np.maximum(a, b))
    return np.concatenate([low, high], axis=-1)


def _selected(corners: Array, scores: Array, asked: Suppression) -> list[int]:
    candidates = np.flatnonzero(scores > np.float32(asked.least))
    left = candidates[np.argsort(-scores[candidates], kind="stable")]
    areas = np.prod(corners[:, 2:] - corners[:, :2], axis=-1)
    found: list[int] = []
    while left.size and len(found) < asked.limit:
        best, left = left[0], left[1:]
        found.append(int(best))
        sides = np.minimum(corners[best, 2:], corners[left, 2:]) - np.maximum(corners[best, :2], corners[left, :2])
        common = np.prod(np.maximum(sides, 0), axis=-1)
        both = areas[best] + areas[left] - common
        left = left[~((common > 0) & (both > 0) & (common / both > np.float32(asked.overlap)))]
    return found
