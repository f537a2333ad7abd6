"""The primitive that leaves out terms of a sum because padding makes them zero."""

from __future__ import annotations

from dataclasses import replace

from autotune.schedule.registry import check, primitive
from autotune.schedule.state import State
from autotune.tensor.expr import Binary, Cast, Const, Expr, Read, Var, walk
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
