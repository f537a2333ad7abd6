"""How a stage walks through memory: the distance between neighbours along one of its axes."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.schedule.state import StageState, State
from autotune.tensor.dtype import DType
from autotune.tensor.expr import COMPARISONS, Binary, Cast, Expr, Read, Select, Table, Var, children, walk
from autotune.tensor.layout import Layout
from autotune.tensor.linear import Linear, to_linear

EXPENSIVE = frozenset({"div", "truncdiv", "floordiv", "floormod", "pow"})
CHEAP = frozenset({"neg", "abs", "floor", "ceil", "round", "not", "isnan", "isinf"})


def stride(state: State, stage: StageState, read: Read, axis: str) -> int | None:
    """Elements between two neighbours along `axis` of `stage`, 0 when the read stays in place, None when irregular.

    In a blocked dimension, the distance is that inside a block.
    """
    ranges = {a.name: (0, max(a.extent - 1, 0)) for a in stage.stage.all_axes}
    form, shape = state.layout(read.tensor), read.tensor.shape
    strides = dict(zip(form.order, form.strides(shape), strict=True))
    total = Linear()
    for d, index in enumerate(read.indices):
        block = form.block(d)
        total = total + to_linear(index, ranges) * strides[(d, block) if (d, block) in strides else (d, 0)]
    total = total.joined()
    for term in total.terms:
        if not isinstance(term, str) and axis in _variables(term):
            return None
    return total.terms.get(axis, 0)


def _variables(term: object) -> set[str]:
    if isinstance(term, Expr):
        return {str(e) for e in walk(term)}
    return set(Linear(0, {term: 1}).variables())  # type: ignore[dict-item]


def irregular(state: State, stage: StageState, axis: str) -> int:
    """How many reads would be gathered, element by element, if `axis` were vectorized."""
    return sum(stride(state, stage, r, axis) not in (0, 1) for r in stage.reads())


def indirect(stage: StageState) -> bool:
    """Some element is read at a place that was itself read from memory."""
    return any(isinstance(e, Read) for r in stage.reads() for i in r.indices for e in walk(i))


def tabled(stage: StageState, axis: str) -> bool:
    """Some element is read at a place that a table of constants has for each position along `axis`."""
    tables = [e for r in stage.reads() for i in r.indices for e in walk(i) if isinstance(e, Table)]
    return any(isinstance(e, Var) and e.name == axis for t in tables for e in walk(t))


def contiguous(state: State, stage: StageState, axis: str) -> bool:
    """Every read is of neighbours in memory, or of one element, and some are of neighbours."""
    steps = [stride(state, stage, r, axis) for r in stage.reads()]
    return all(x in (0, 1) for x in steps) and 1 in steps


def innermost(form: Layout, shape: tuple[int, ...]) -> int | None:
    """The logical dimension whose neighbours are neighbours in memory; None when there is one element."""
    for (d, _), extent in reversed(list(zip(form.order, form.physical_shape(shape), strict=True))):
        if extent > 1 and shape[d] > 1:
            return d
    return None


def values(e: Expr) -> Iterator[Expr]:
    """The expression without what is inside indices and conditions of reads."""
    yield e
    if not isinstance(e, Read):
        for child in children(e):
            yield from values(child)


def widest(stages: list[StageState]) -> int:
    """Bytes of the widest element that the stages compute with; positions that are only compared do not count, nor does
    what they are compared with, such as the end of a run."""
    widths = [_width(t.dtype) for s in stages for t in s.stage.outputs]
    for s in stages:
        widths += [_width(e.dtype) for body in s.stage.body for e in _computed(body) if isinstance(e, (Read, Cast))]
    return max(widths)


def _computed(e: Expr) -> Iterator[Expr]:
    """`values` without what positions are compared with."""
    yield e
    compares = isinstance(e, Binary) and e.op in COMPARISONS and (_position(e.a) or _position(e.b))
    if not compares and not isinstance(e, Read):
        for child in children(e):
            yield from _computed(child)


def _position(e: Expr) -> bool:
    """Whether an expression says where in a tensor something is."""
    parts = list(walk(e))
    return any(isinstance(x, Var) for x in parts) and not any(isinstance(x, Read) for x in parts)


def _width(dtype: DType) -> int:
    return 4 if dtype in (DType.f16, DType.bf16) else dtype.bytes


def uses_positions(s: StageState) -> bool:
    """Whether anything but the place of reads depends on where in the tensor a point is."""
    for body in s.stage.body:
        for e in walk(body):
            if (isinstance(e, Read) and e.when is not None) or isinstance(e, Select):
                return True
    return False
