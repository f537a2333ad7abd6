"""Borders made of the tensor's own elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotune.ops.checks import integers, require, word
from autotune.ops.registry import Needed, operator
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Table, read, select
from autotune.tensor.stage import Tensor, compute

MAX_RUNS = 4  # of neighbouring elements; more are read by a table


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
            value = _along(value, d, np.pad(np.arange(n), around, mode=mode))  # type: ignore[call-overload]
    return compute(x.shape, lambda *i: x[i], "extend") if value is x else value


def _along(x: Tensor, d: int, places: np.ndarray[Any, np.dtype[np.int64]]) -> Tensor:
    """Element `places[o]` of dimension d at o."""
    shape = tuple(len(places) if n == d else e for n, e in enumerate(x.shape))
    pieces = runs(places.tolist())

    def body(*i: Expr) -> Expr:
        o = i[d]
        if len(pieces) > MAX_RUNS:
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


def runs(places: Sequence[int]) -> list[tuple[int, int, int]]:
    """The longest stretches (start, stop, step) of places that count up, down, or stay, from left to right."""
    found: list[tuple[int, int, int]] = []
    start = 0
    while start < len(places):
        stop, step = start + 1, 1
        if stop < len(places) and places[stop] - places[start] in (-1, 0, 1):
            step = places[stop] - places[start]
            while stop < len(places) and places[stop] - places[stop - 1] == step:
                stop += 1
        found.append((start, stop, step))
        start = stop
    return found
