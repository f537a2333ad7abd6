"""Masks of attention in primitive nodes: what is added to scores, or takes their place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autotune.graph.ir import Array, Node
from autotune.graph.passes.match import made_by, number, product
from autotune.graph.passes.sweep import Sweep
from autotune.tensor import DType

NEVER = -1e9  # a number added to scores that leaves no other score of its row a chance
ABSORBING = -1e30  # scores added to it change nothing: adding it and putting it in their place is the same
MAX_MASKS = 4


class Mask(NamedTuple):
    """Numbers that are added, or, with a `value`, that takes the place of scores unless the bool mask is `kept`."""

    name: str
    value: float | None = None
    kept: bool = True


def unmasked(sweep: Sweep, name: str) -> tuple[str, tuple[Mask, ...]]:
    """Scores as they leave their product and its scale, and their masks, the last one first."""
    masks: list[Mask] = []
    while len(masks) < MAX_MASKS:
        found = _mask(sweep, made_by(sweep, name, "add", "where"))
        if found is None:
            break
        name, mask = found
        masks.append(mask)
    return name, tuple(masks)


def _mask(sweep: Sweep, node: Node | None) -> tuple[str, Mask] | None:
    """Scores before one mask, and the mask."""
    if node is None:
        return None
    if node.op == "where":
        condition, a, b = node.inputs
        for scores, other, kept in ((a, b, True), (b, a, False)):
            value = number(sweep, other)
            if value is not None and sweep.values[scores].shape == node.output.shape:
                return scores, Mask(condition, value, kept)
        return None
    for scores, mask in (node.inputs, node.inputs[::-1]):
        if _is_product(sweep, scores, MAX_MASKS):
            return scores, Mask(mask)
    return None


def _is_product(sweep: Sweep, name: str, steps: int) -> bool:
    """Whether the value is a scaled product of matrices, perhaps masked."""
    factors = product(sweep, name).factors
    node = made_by(sweep, factors[0], "matmul", "cast", "add", "where") if len(factors) == 1 and steps else None
    return node is not None and (
        node.op == "matmul" or any(_is_product(sweep, operand, steps - 1) for operand in node.inputs)
    )


def fits(mask: tuple[int, ...], scores: tuple[int, ...]) -> bool:
    """Whether a mask broadcasts to the scores, whole along the keys, and counts its dimensions as 4-D scores would."""
    if not mask or mask[-1] != scores[-1] or len(mask) > len(scores):
        return False
    return all(n in (1, extent) for n, extent in zip(mask[::-1], scores[::-1], strict=False))


def split_length(sweep: Sweep, masks: tuple[Mask, ...], keys: int) -> tuple[str, tuple[Mask, ...]]:
    """How many of the keys count at all (an i64 of one element, "" for all), and the masks that do not say that.

    `less(0 1 2 ..., n)` keeps scores where -inf stands in for others.
    """
    for n, mask in enumerate(masks):
        if mask.value != -np.inf or not mask.kept or sweep.values[mask.name].size != keys:
            continue
        node = made_by(sweep, mask.name, "less", "reshape")
        if node is not None and node.op == "reshape":
            node = made_by(sweep, node.inputs[0], "less")
        if node is None or sweep.values[mask.name].shape[-1] != keys:
            continue
        places, length = sweep.array(node.inputs[0]), sweep.values[node.inputs[1]]
        if places is None or length.size != 1 or length.dtype != DType.i64:
            continue
        if places.size == keys and np.array_equal(places.reshape(-1), np.arange(keys)):
            return node.inputs[1], (*masks[:n], *masks[n + 1 :])
    return "", masks


def is_causal(sweep: Sweep, mask: Mask, extents: tuple[int, ...]) -> bool:
    """Whether a constant mask adds nothing up to the diagonal and rules out what is beyond it."""
    array = sweep.array(mask.name)
    if mask.value is not None and mask.value > NEVER:
        return False
    if array is None or array.shape[-2:] != extents or array.size != extents[0] * extents[1] or array.size < 2:
        return False
    square = array.reshape(extents)
    if square.dtype == np.bool_:
        square = np.where(square == mask.kept, 0.0, -np.inf)
    square = square.astype(np.float64)
    later = np.triu(np.ones(square.shape, bool), 1)
    return bool(np.all(square[~later] == 0) and np.all(square[later] <= NEVER))


def one_mask(
    sweep: Sweep, like: Node, masks: tuple[Mask, ...], dtype: np.dtype[np.generic]
) -> tuple[str, float] | None:
    """All masks as one operand of attention: bool, or numbers of `dtype` to add; and what a bool one puts in place.

    None where the operator would compute another softmax.
    """
    first, *others = masks
    replacing = not others and first.value is not None
    if replacing or all(mask.value == -np.inf for mask in masks):
        names = [m.name if m.kept else sweep.emit(like, "not", (m.name,)) for m in masks]
        fill = -np.inf if others or first.value is None or _leaves_some(sweep, first) else first.value
        return _joined(sweep, like, "and", names), fill
    if any(mask.value is not None and mask.value > ABSORBING for mask in masks):
        return None
    return _joined(sweep, like, "add", [_as_numbers(sweep, like, mask, dtype) for mask in masks]), -np.inf


def _joined(sweep: Sweep, like: Node, op: str, names: list[str]) -> str:
    result = names[0]
    for name in names[1:]:
        result = sweep.emit(like, op, (result, name))
    return result


def _as_numbers(sweep: Sweep, like: Node, mask: Mask, dtype: np.dtype[np.generic]) -> str:
    if mask.value is None:
        return mask.name
    sides = [sweep.constant(np.asarray(number, dtype), "mask") for number in (0.0, mask.value)]
    return sweep.emit(like, "where", (mask.name, *(sides if mask.kept else sides[::-1])))


def _leaves_some(sweep: Sweep, mask: Mask) -> bool:
    """Whether a constant bool mask keeps a score of each row, and what replaces others counts for nothing beside it.

    A finite number in place of all scores of a row is a softmax of its own.
    """
    array: Array | None = sweep.array(mask.name) if mask.value is not None and mask.value <= NEVER else None
    return array is not None and array.ndim > 0 and bool((array == mask.kept).any(-1).all())
