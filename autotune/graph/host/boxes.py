"""NonMaxSuppression: boxes by falling score, without those that overlap a better one too much."""

from __future__ import annotations

import numpy as np

from autotune.errors import InputError, ModelError
from autotune.graph.host.node import HostNode, on_host
from autotune.graph.ir import Array


@on_host("NonMaxSuppression")
def non_max_suppression(node: HostNode) -> tuple[Array]:
    """i64 [count, 3]: batch, class, box; per class at most so many as the third input says (none without it)."""
    boxes, scores = node.array(0), node.array(1)
    if boxes.ndim != 3 or boxes.shape[2] != 4 or scores.ndim != 3 or scores.shape[::2] != boxes.shape[:2]:
        raise ModelError(f"{node.label}: boxes {boxes.shape} and scores {scores.shape}; [n, boxes, 4], [n, c, boxes]")
    limit, overlap = int(_scalar(node, 2)), _scalar(node, 3)
    if not 0 <= overlap <= 1:
        raise InputError(f"{node.label}: the threshold of the overlap is {overlap}, not within 0..1")
    least = _scalar(node, 4) if node.optional(4) is not None else -np.inf
    corners = _corners(boxes.astype(np.float32), node.attr_flag("center_point_box"))
    found = [
        (batch, label, box)
        for batch in range(scores.shape[0])
        for label in range(scores.shape[1])
        for box in _selected(corners[batch], scores[batch, label], limit, np.float32(overlap), least)
    ]
    return (np.asarray(found, np.int64).reshape(-1, 3),)


def _scalar(node: HostNode, position: int) -> float:
    array = node.optional(position)
    if array is None:
        return 0
    if array.size != 1:
        raise ModelError(f"{node.label}: input {position} must be a scalar, not of shape {array.shape}")
    return float(array.reshape(()))


def _corners(boxes: Array, centred: bool) -> Array:
    """Lowest and highest corner of each box, [..., 4]; given as two opposite corners, or as centre and size."""
    a, b = boxes[..., :2], boxes[..., 2:]
    low, high = (a - b / 2, a + b / 2) if centred else (np.minimum(a, b), np.maximum(a, b))
    return np.concatenate([low, high], axis=-1)


def _selected(corners: Array, scores: Array, limit: int, overlap: np.float32, least: float) -> list[int]:
    candidates = np.flatnonzero(scores > least)
    left = candidates[np.argsort(-scores[candidates], kind="stable")]
    areas = np.prod(corners[:, 2:] - corners[:, :2], axis=-1)
    found: list[int] = []
    while left.size and len(found) < limit:
        best, left = left[0], left[1:]
        found.append(int(best))
        sides = np.minimum(corners[best, 2:], corners[left, 2:]) - np.maximum(corners[best, :2], corners[left, :2])
        common = np.prod(np.maximum(sides, 0), axis=-1)
        both = areas[best] + areas[left] - common
        left = left[~((common > 0) & (both > 0) & (common > overlap * both))]
    return found
