"""Borders made of the tensor's own elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotune.ops.checks import integers, listed, require, word
from autotune.ops.registry import Needed, operator
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Table, read, select
from autotune.tensor.stage import Tensor, compute

Places = np.ndarray[Any, np.dtype[np.int64]]
MAX_RUNS = 4  # of neighbouring elements; more are read by a table
MAX_TABLE = 2**20


@operator("extend", pads=Needed.integers, mode="edge")
def extend(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """x with a border of its last elements ("edge"), mirrored without them ("reflect"), or repeated ("wrap").

    pads = (begin of each axis..., end of each axis...), not negative.
    """
    (x,) = inputs
    rank = len(x.shape)
    pads = integers("extend", attrs, "pads", 2 * rank, 0)
    mode = word("extend", attrs, "mode", ("edge", "reflect", "wrap"))
    value = x
    for d, n in enumerate(x.shape):
        around = (pads[d], pads[d + rank])
        require(n > 0 or not any(around), f"extend: axis {d} of shape {x.shape} has no elements to repeat")
        if any(around):
            listed("extend", n + sum(around))
            value = _along(value, d, _places(n, *around, mode))
    return compute(x.shape, lambda *i: x[i], "extend") if value is x else value


def _places(n: int, before: int, after: int, mode: str) -> Places:
    """The element of n that each place of the extended axis repeats."""
    at = np.arange(-before, n + after)
    if mode == "edge" or n == 1:
        return at.clip(0, n - 1)
    if mode == "wrap":
        return at % n
    back_and_forth = at % (2 * n - 2)
    return np.minimum(back_and_forth, 2 * n - 2 - back_and_forth)


def _along(x: Tensor, d: int, places: Places) -> Tensor:
    """Element `places[o]` of dimension d at o."""
    shape = tuple(len(places) if n == d else e for n, e in enumerate(x.shape))
    pieces = runs(places)

    def body(*i: Expr) -> Expr:
        o = i[d]
        if len(pieces) > MAX_RUNS:
            require(len(places) <= MAX_TABLE, f"extend: {len(places)} places that follow no pattern, too many")
            at: Expr = Table("places", tuple(map(float, places)), (len(places),), (o,), DType.i64)
            return x[(*i[:d], at, *i[d + 1 :])]
        value: Expr | None = None
        for start, stop, step in reversed(pieces):
            place = (o * step if step else o * 0) + int(places[start]) - start * step
            within = o < stop if start == 0 else (o >= start) & (o < stop) if stop < len(places) else o >= start
            here = read(x, (*i[:d], place, *i[d + 1 :]), when=within if len(pieces) > 1 else None)
            value = here if value is None else select(o < stop, here, value)
        assert value is not None  # there is at least one element
        return value

    return compute(shape, body, f"extend_{d}")


def runs(places: Places, most: int = MAX_RUNS) -> list[tuple[int, int, int]]:
    """The longest stretches (start, stop, step) of places that count up, down, or stay, from left to right.

    No more than `most` + 1 of them.
    """
    found: list[tuple[int, int, int]] = []
    steps = np.diff(places)
    turns = np.flatnonzero(np.diff(steps)) + 1  # where the step is another one than before
    start = 0
    while start < len(places) and len(found) <= most:
        stop, step = start + 1, 1
        if stop < len(places) and abs(steps[start]) <= 1:
            turn = np.searchsorted(turns, start, "right")
            stop, step = int(turns[turn]) + 1 if turn < len(turns) else len(places), int(steps[start])
        found.append((start, stop, step))
        start = stop
    return found
