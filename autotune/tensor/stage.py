"""Tensors and the stages that compute them: the language in which operators are written.

A, B = placeholder((64, 32), "f32", "A"), placeholder((32, 16), "f32", "B")
k = reduce_axis(32, "k")
C = compute((64, 16), lambda i, j: sum_(A[i, k] * B[k, j], k), name="C")
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autotune.errors import WorkloadError
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, ExprLike, Read, Table, Var, as_expr, read, walk
from autotune.tensor.extents import check_shape
from autotune.tensor.reducer import BUILTIN, Reducer

MAX_STEPS = 2**46
"""Of one stage: a kernel cannot be interrupted, so one without an end is none."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop of a stage's domain: 0 <= name < extent."""

    name: str
    extent: int

    @property
    def var(self) -> Var:
        return Var(self.name)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named array of known shape. `stage` is what computes it; None for inputs and inside a ComputeDef."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    stage: Stage | None = field(default=None, compare=False, repr=False)
    constant: bool = field(default=False, compare=False)

    def __getitem__(self, indices: ExprLike | Axis | tuple[ExprLike | Axis, ...]) -> Read:
        items = indices if isinstance(indices, tuple) else (indices,)
        return read(self, tuple(i.var if isinstance(i, Axis) else i for i in items))


@dataclass(frozen=True, slots=True)
class Reduction(Expr):
    """A reduction, allowed only as the whole body of a stage."""

    reducer: Reducer
    values: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Extern:
    """A function beyond tensor expressions, by name (`autotune.tensor.externs`)."""

    name: str
    attrs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """One loop nest: for every point of `axes`, the body (folded by `reducer` over `reduce_axes`).

    Attributes:
        outputs: the tensors written, all of shape (extent of each axis); several for tuple reducers.
        axes: spatial axes, one per dimension of the outputs.
        reduce_axes: axes folded by the reducer; empty when there is none.
        body: one expression per output.
        reducer: how values combine, None for an elementwise stage.
        scan_axis: name of the sequential axis along which the stage reads its own earlier elements, or None.
        recurrence: the group of stages with which it takes turns along `scan_axis` (`autotune.tensor.recurrences`).
        amplified: how many times larger than here rounding errors of its sums are in what is made of them.
        extern: the function that computes a whole row of the outputs at each point of `axes`; the body then only
            names the tensors that it reads, and outputs have dimensions beyond the axes.
        members: all stages of the recurrence in the order of their turns; only until a ComputeDef holds them.
    """

    outputs: tuple[Tensor, ...]
    axes: tuple[Axis, ...]
    reduce_axes: tuple[Axis, ...]
    body: tuple[Expr, ...]
    reducer: Reducer | None = None
    scan_axis: str | None = None
    extern: Extern | None = None
    recurrence: str | None = None
    amplified: float = 1.0
    members: list[Stage] = field(default_factory=list, init=False, compare=False, repr=False)
    _reads: list[tuple[Read, ...]] = field(default_factory=list, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        steps = math.prod(axis.extent for axis in self.all_axes)
        if steps > MAX_STEPS:
            raise WorkloadError(f"{self.name}: {steps} steps, more than {MAX_STEPS}, which would take days")

    def reads(self) -> tuple[Read, ...]:
        """Every read in the body, from left to right; found once, since every schedule step asks."""
        if not self._reads:
            self._reads.append(tuple(e for body in self.body for e in walk(body) if isinstance(e, Read)))
        return self._reads[0]

    @property
    def name(self) -> str:
        return self.outputs[0].name

    @property
    def all_axes(self) -> tuple[Axis, ...]:
        return self.axes + self.reduce_axes

    def axis(self, name: str) -> Axis:
        for axis in self.all_axes:
            if axis.name == name:
                return axis
        raise KeyError(name)


def placeholder(
    shape: Sequence[int], dtype: DType | str = DType.f32, name: str = "x", constant: bool = False
) -> Tensor:
    """An input tensor; `constant` marks weights, whose physical form is prepared once at compile time."""
    return Tensor(name, check_shape(shape, name), DType(dtype), None, constant)


def reduce_axis(extent: int, name: str = "k") -> Axis:
    """An axis to be folded by a reducer."""
    if extent < 0:
        raise WorkloadError(f"reduce axis {name} has the impossible extent {extent}")
    return Axis(name, extent)


Axes = Axis | Sequence[Axis]


def reduce(reducer: Reducer, values: Sequence[Expr], axes: Axes) -> Reduction:
    """Fold `values` (one per component of the reducer) over `axes`."""
    axes = (axes,) if isinstance(axes, Axis) else tuple(axes)
    if len(values) != len(reducer.dtypes):
        raise WorkloadError(f"reducer {reducer.name} folds {len(reducer.dtypes)} values, got {len(values)}")
    for value, dtype in zip(values, reducer.dtypes, strict=True):
        if value.dtype is not dtype:
            raise WorkloadError(f"reducer {reducer.name} folds {dtype}, got `{value}` of {value.dtype}")
    return Reduction(reducer, tuple(values), axes, values[0].dtype)


def sum_(value: Expr, axes: Axes) -> Reduction:
    return reduce(BUILTIN["sum"](value.dtype), (value,), axes)


def prod_(value: Expr, axes: Axes) -> Reduction:
    return reduce(BUILTIN["prod"](value.dtype), (value,), axes)


def max_(value: Expr, axes: Axes) -> Reduction:
    return reduce(BUILTIN["max"](value.dtype), (value,), axes)


def largest_(value: Expr, axes: Axes) -> Reduction:
    """The largest that is a number, -inf of none: cheaper than max where NaN comes through another way."""
    return reduce(BUILTIN["largest"](value.dtype), (value,), axes)


def min_(value: Expr, axes: Axes) -> Reduction:
    return reduce(BUILTIN["min"](value.dtype), (value,), axes)


Body = Expr | Sequence[Expr]


def compute(
    shape: Sequence[int],
    fn: Callable[..., Body],
    name: str = "compute",
    axes: Sequence[str] | None = None,
    *,
    amplified: float = 1.0,
) -> Tensor:
    """The tensor whose element at (i, j, ...) is `fn(i, j, ...)`.

    Axes are named by `axes`, else after fn's parameters (i0, i1, ... when it takes *args). `amplified`: see `Stage`.

    Raises:
        WorkloadError: on impossible shapes, dtypes that differ, or a reduction inside a larger expression.
    """
    return compute_many(shape, fn, (name,), axes, amplified=amplified)[0]


def compute_many(
    shape: Sequence[int],
    fn: Callable[..., Body],
    names: Sequence[str],
    axes: Sequence[str] | None = None,
    *,
    amplified: float = 1.0,
) -> tuple[Tensor, ...]:
    """Like `compute`, with one output tensor per component of a tuple reducer (argmax, online softmax)."""
    extents = check_shape(shape, names[0])
    domain = _axes(extents, fn, names[0], axes)
    body = fn(*(axis.var for axis in domain))
    return _stage(domain, body, names, None, amplified)


def scan(
    shape: Sequence[int], axis: int, fn: Callable[..., Expr], init: float = 0.0, dtype: DType | str = DType.f32,
    name: str = "scan",
) -> Tensor:  # fmt: skip
    """A sequential stage: `fn(previous, i, j, ...)` sees its own value one step earlier along `axis`.

    At the first step `previous` is `init`.
    """
    extents = check_shape(shape, name)
    axes = _axes(extents, fn, name, None, skip=1)
    state = Tensor(name, extents, DType(dtype))
    step = axes[axis].var
    earlier = tuple(a.var - 1 if n == axis else a.var for n, a in enumerate(axes))
    previous = read(state, earlier, when=step >= 1, otherwise=init)
    return _stage(axes, fn(previous, *(a.var for a in axes)), (name,), axes[axis].name)[0]


def table(name: str, rows: Sequence[Sequence[float]], dtype: DType | str = DType.f32) -> Callable[..., Table]:
    """A small constant matrix as a function of its indices (Winograd's transforms, interpolation weights)."""
    values = tuple(float(v) for row in rows for v in row)
    shape = (len(rows), len(rows[0]))

    def at(*indices: ExprLike | Axis) -> Table:
        exprs = tuple(i.var if isinstance(i, Axis) else as_expr(i, DType.i64) for i in indices)
        return Table(name, values, shape, exprs, DType(dtype))

    return at


def _axes(
    extents: tuple[int, ...], fn: Callable[..., Body], name: str, given: Sequence[str] | None, skip: int = 0
) -> tuple[Axis, ...]:
    parameters = [p for p in inspect.signature(fn).parameters.values() if p.default is p.empty]
    if given is not None:
        names = list(given)
    elif any(p.kind is p.VAR_POSITIONAL for p in parameters):
        names = [f"i{n}" for n in range(len(extents))]
    else:
        names = [p.name for p in parameters[skip:]]
    if len(names) != len(extents):
        raise WorkloadError(f"{name}: shape {extents} needs a function of {len(extents)} indices, got {len(names)}")
    return tuple(Axis(n, e) for n, e in zip(names, extents, strict=True))


def _stage(
    axes: tuple[Axis, ...], body: Body, names: Sequence[str], scan_axis: str | None, amplified: float = 1.0
) -> tuple[Tensor, ...]:
    reducer: Reducer | None = None
    reduce_axes: tuple[Axis, ...] = ()
    values: tuple[Expr, ...]
    if isinstance(body, Reduction):
        reducer, reduce_axes, values = body.reducer, body.axes, body.values
    else:
        values = (body,) if isinstance(body, Expr) else tuple(body)
    if len(values) != len(names):
        raise WorkloadError(f"{names[0]}: {len(values)} values for the outputs {list(names)}")
    taken = [a.name for a in (*axes, *reduce_axes)]
    if len(set(taken)) != len(taken):
        raise WorkloadError(f"{names[0]}: two axes have the same name among {taken}")
    shape = tuple(a.extent for a in axes)
    bare = tuple(Tensor(n, shape, v.dtype) for n, v in zip(names, values, strict=True))
    stage = Stage(bare, axes, reduce_axes, values, reducer, scan_axis, amplified=amplified)
    return tuple(Tensor(t.name, t.shape, t.dtype, stage) for t in bare)
