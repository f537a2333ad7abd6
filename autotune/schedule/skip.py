"""Primitives that leave out work: terms of a sum that padding makes zero, and elements that nobody looks at."""

from __future__ import annotations

from dataclasses import replace

from autotune.schedule.registry import check, primitive
from autotune.schedule.state import StageState, State
from autotune.tensor.expr import Binary, Cast, Const, Expr, Read, Select, Var, rewrite, walk
from autotune.tensor.guards import guarded_reads
from autotune.tensor.linear import conjunction
from autotune.tensor.reducer import is_builtin


@primitive
def skip_padding(state: State, stage: str, tensor: str, dimension: int, tiles: bool = False) -> State:
    """Do not add products with the zero padding of a tensor along one dimension.

    With `tiles` only where all of a tile (the unrolled and vectorized loops) is padding, so that a tile has one test.

    Conditions on the variables of its index there, and on no others, are such padding.
    It pays where the test is known from loops outside of much work. Equal as long as the other factors are finite:
    zero times infinity is left out too.

    rewrite:
        for k: s += (x[i + k] if i + k < n else 0) * w[k]
        -->
        for k: if i + k < n: s += x[i + k] * w[k]
    """
    s = state.stage(stage)
    where = f"skip_padding {stage}.{tensor}"
    reducer = s.stage.reducer
    summed = reducer is not None and reducer.name == "sum" and is_builtin(reducer)
    check(summed, f"{where}: the stage is no sum")
    reads = [f for f in _factors(s.stage.body[0]) if isinstance(f, Read) and f.tensor.name == tensor]
    check(len(reads) == 1, f"{where}: the tensor is not one factor of what is summed")
    (read,) = reads
    check(0 <= dimension < len(read.indices), f"{where}: no dimension {dimension}")
    check(
        read.when is not None and isinstance(read.otherwise, Const) and read.otherwise.value == 0,
        f"{where}: it is read without padding, or the padding is not zero",
    )
    assert read.when is not None
    along = _variables(read.indices[dimension])
    parts = tuple(p for p in conjunction(read.when) if _variables(p) <= along)
    check(bool(parts), f"{where}: it is not padded along dimension {dimension}")
    if tiles:
        return state.put(replace(s, skipped=(*s.skipped, *(p for p in parts if p not in s.skipped))))
    return state.put(replace(s, where=(*s.where, *(p for p in parts if p not in s.where))))


def _variables(e: Expr) -> set[str]:
    return {v.name for v in walk(e) if isinstance(v, Var)}


def _factors(e: Expr) -> list[Expr]:
    if isinstance(e, Binary) and e.op == "mul":
        return _factors(e.a) + _factors(e.b)
    return _factors(e.a) if isinstance(e, Cast) else [e]


@primitive
def skip_unread(state: State, stage: str) -> State:
    """Do not compute elements beyond an end that data decides, where every reader looks at those before it only.

    Of a tile (the unrolled and vectorized loops) all is computed as soon as one element is looked at.

    rewrite:
        for j: x[j] = ...
        for j: y[j] = x[j] if j < n[0] else 0
        -->
        for j: if j < n[0]: x[j] = ...
        for j: y[j] = x[j] if j < n[0] else 0
    """
    s = state.stage(stage)
    found = looked_at(state, s)
    check(bool(found), f"skip_unread {stage}: its readers look at all of it, as far as can be told")
    return state.put(replace(s, needed=found))


@primitive
def leave_rest(state: State, stage: str, dimension: int) -> State:
    """Do not write the zeros of a result behind an end that data decides along a dimension: what lay there remains.

    Not equal to the definition, but before the end: for results of which nobody reads the rest. Of a tile (the unrolled
    and vectorized loops) all is written as soon as one element lies before the end.

    rewrite:
        for j: y[j] = x[j] if j < n[0] else 0
        -->
        for j: if j < n[0]: y[j] = x[j] if j < n[0] else 0
    """
    s = state.stage(stage)
    found = [e for e in rests(s) if e.a == s.stage.axes[dimension].var]
    check(bool(found), f"leave_rest {stage}: it has no end from data along dimension {dimension}")
    return state.put(replace(s, needed=(*s.needed, *(e for e in found if e not in s.needed))))


def rests(s: StageState) -> tuple[Binary, ...]:
    """Conditions on a stage's axes, `axis < end` with an end from data, without which an element is zero."""
    found: list[Binary] = []
    body = s.stage.body[0] if len(s.stage.body) == 1 and s.stage.reducer is None else None
    axes = {axis.var for axis in s.stage.axes}
    while isinstance(body, Select) and isinstance(body.b, Const) and body.b.value == 0:
        for c in conjunction(body.condition):
            ends = isinstance(c, Binary) and c.op == "lt" and c.a in axes
            if ends and isinstance(c, Binary) and any(isinstance(e, Read) for e in walk(c.b)):
                found.append(c)
        body = body.a
    return tuple(found)


def looked_at(state: State, s: StageState) -> tuple[Expr, ...]:
    """Conditions on a stage's axes, `axis < end`, without which no stage reads an element; none for outputs. What a
    reader itself leaves out, it does not read for."""
    name = s.name
    if name in state.outputs or s.stage.extern is not None or len(s.stage.outputs) > 1:
        return ()
    ends = [
        {end for end in (_as_end(c, read, s) for c in known) if end is not None}
        for reader in state.stages
        for body in reader.stage.body
        for read, known in guarded_reads(body, reader.needed)
        if read.tensor.name == name
    ]
    return tuple(sorted(set.intersection(*ends), key=str)) if ends else ()


def _as_end(condition: Expr, read: Read, s: StageState) -> Expr | None:
    """The condition on an index of the read as one on the axis of the stage that is read, if it is an end from data."""
    if not isinstance(condition, Binary) or condition.op != "lt" or condition.a not in read.indices:
        return None
    if not any(isinstance(e, Read) for e in walk(condition.b)):
        return None
    axes = dict(zip(read.indices, (axis.var for axis in s.stage.axes)))
    end = rewrite(condition.b, lambda e: axes.get(e) if isinstance(e, Var) else None)
    own = {axis.name for axis in s.stage.axes}
    return Binary("lt", axes[condition.a], end, condition.dtype) if _variables(end) <= own else None
