"""Whether what a padded stage computes beyond an axis' extent is zero anyway."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from autotune.schedule.state import StageState
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Const, Expr, Read, Table, Var, children, rewrite
from autotune.tensor.interpret import Box, Interpreter
from autotune.tensor.reducer import is_builtin

NOWHERE = Box((), (), ())

Top = Callable[[StageState, str], int]
"""The last position of a stage's axis that its loops reach."""


def vanishes(
    body: Expr,
    s: StageState,
    axis: str,
    producers: Mapping[str, StageState],
    top: Top,
    filled: Collection[str] = (),
) -> bool:
    """Whether a stage's body is surely zero beyond the extent of a padded axis.

    Args:
        body: an expression over the axes of `s`.
        s: the stage; its padding reads the padding of what it reads, which is zero in operands.
        axis: the padded axis.
        producers: the stages of the kernel by tensor.
        top: how far the loops of a stage go.
        filled: operands around which something else than zero lies.
    """

    def fold(e: Expr) -> Expr | None:
        if isinstance(e, Read):
            return _zero(e.dtype) if _reads_padding(e, s, axis, producers, top, filled) else None
        below = children(e)
        if isinstance(e, Binary) and e.op == "mul" and any(_is_zero(c) for c in below):
            return _zero(e.dtype)
        if not below or isinstance(e, Table) or not all(isinstance(c, Const) for c in below):
            return None
        with np.errstate(all="ignore"):
            return Const(Interpreter({}).value(e, NOWHERE).item(), e.dtype)

    return _is_zero(rewrite(body, fold))


def _zero(dtype: DType) -> Const:
    return Const(0.0 if dtype.is_float else 0, dtype)


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0


def _reads_padding(
    r: Read, s: StageState, axis: str, producers: Mapping[str, StageState], top: Top, filled: Collection[str]
) -> bool:
    """Whether a read is in the zero padding of its tensor as soon as the axis is beyond its extent."""
    if r.tensor.name in filled or (r.otherwise is not None and not _is_zero(r.otherwise)):
        return False
    extent = s.stage.axis(axis).extent
    at = [d for d, i in enumerate(r.indices) if isinstance(i, Var) and i.name == axis and r.tensor.shape[d] == extent]
    if not at:
        return False
    p = producers.get(r.tensor.name)
    if p is None:
        return True
    if p.stage.extern is not None:
        return False
    mine = p.stage.axes[at[0]].name
    adds_up = p.stage.reducer is None or (p.stage.reducer.name == "sum" and is_builtin(p.stage.reducer))
    padded = mine in p.padded and p.stage.scan_axis is None and top(p, mine) >= top(s, axis)
    return adds_up and padded and all(vanishes(b, p, mine, producers, top, filled) for b in p.stage.body)
