"""Extern stages: what tensor expressions cannot say (sorting, top-k, scatter), as a named function.

A function has two definitions under one name: its NumPy value here, which is the reference, and its nest in
`autotune.lower.extern`, written in loop IR and verified like all others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.errors import WorkloadError
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Const, Read
from autotune.tensor.extents import check_shape
from autotune.tensor.stage import Axis, Extern, Stage, Tensor

Array = npt.NDArray[Any]
Value = Callable[[Sequence[Array], Mapping[str, int]], Sequence[Array]]
"""(inputs, attributes) -> outputs, for all rows at once."""

_VALUES: dict[str, Value] = {}


@dataclass(frozen=True, slots=True)
class Output:
    """An output of an extern stage: its shape is the rows, then `inner`."""

    name: str
    inner: tuple[int, ...]
    dtype: DType


def extern_value(name: str) -> Callable[[Value], Value]:
    """Register the NumPy definition of an extern function."""

    def register(fn: Value) -> Value:
        _VALUES[name] = fn
        return fn

    return register


@functools.cache
def _load() -> None:
    """Register the functions that have modules of their own."""
    from autotune.tensor import coupling, determinant, inverse, scatter, trees  # noqa: F401  they import this one


def _value(name: str) -> Value | None:
    if name not in _VALUES:
        _load()
    return _VALUES.get(name)


def extern(
    name: str,
    inputs: Sequence[Tensor],
    rows: Sequence[int],
    outputs: Sequence[Output],
    shared: Sequence[Tensor] = (),
    **attrs: int,
) -> tuple[Tensor, ...]:
    """The outputs of an extern function, computed row by row.

    Args:
        name: of a registered function.
        inputs: tensors whose first dimensions are `rows`.
        rows: extents of the outer loops; rows do not depend on each other.
        outputs: what is computed for each row.
        shared: tensors behind the inputs that every row reads whole.
        attrs: integers that the function needs.

    Raises:
        WorkloadError: unknown function, or an input without these rows.
    """
    if _value(name) is None:
        raise WorkloadError(f"unknown extern function {name!r}; known: {', '.join(sorted(_VALUES)) or 'none'}")
    extents = check_shape(rows, name)
    for t in inputs:
        if t.shape[: len(extents)] != extents:
            raise WorkloadError(f"{name}: {t.name} of shape {t.shape} does not start with the rows {extents}")
    axes = tuple(Axis(f"i{n}", e) for n, e in enumerate(extents))
    body = (*(_whole(t, axes) for t in inputs), *(_whole(t, ()) for t in shared))
    bare = tuple(Tensor(o.name, check_shape((*extents, *o.inner), o.name), o.dtype) for o in outputs)
    stage = Stage(bare, axes, (), body, extern=Extern(name, tuple(sorted(attrs.items()))))
    return tuple(Tensor(t.name, t.shape, t.dtype, stage) for t in bare)


def _whole(t: Tensor, axes: Sequence[Axis]) -> Read:
    """Stands for the row of an input, and without rows for all of it."""
    zero = Const(0, DType.i64)
    return Read(t, (*(a.var for a in axes), *(zero for _ in t.shape[len(axes) :])))


def evaluate_extern(stage: Stage, held: Mapping[str, Array]) -> list[Array]:
    """The outputs of an extern stage, given all tensors before it."""
    assert stage.extern is not None
    value = _value(stage.extern.name)
    assert value is not None
    sources = [np.asarray(held[e.tensor.name]) for e in stage.body if isinstance(e, Read)]
    return [np.asarray(a) for a in value(sources, dict(stage.extern.attrs))]


@extern_value("top_k")
def _top_k(inputs: Sequence[Array], attrs: Mapping[str, int]) -> Sequence[Array]:
    """The k largest (smallest, if `largest` is 0) of each row, in order, and their positions.

    Of equal ones the first comes first; NaN comes last.
    """
    (x,) = inputs
    if attrs.get("largest", 1) and x.dtype.kind in "iub":
        # No negative of unsigned integers: sort the mirror image, and mirror it back.
        order = x.shape[-1] - 1 - np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        # NumPy puts NaN last, but not those of bf16.
        keys = x if x.dtype.kind in "iub" else x.astype(np.promote_types(x.dtype, np.float32))
        order = np.argsort(-keys if attrs.get("largest", 1) else keys, axis=-1, kind="stable")
    order = order[..., : attrs["k"]]
    return np.take_along_axis(x, order, -1), order.astype(np.int64)
