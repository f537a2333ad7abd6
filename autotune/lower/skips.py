"""Work that is skipped: terms of a fold that padding makes neutral, and elements that nobody reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from autotune.lower.ir import Condition, Index, Load, variables
from autotune.schedule.state import PARALLEL, SERIAL, StageState
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast, Const, Expr, Var
from autotune.tensor.linear import Linear, Ranges
from autotune.tensor.reducer import Reducer


def skippable(
    value: Expr, reducer: Reducer, lanes: Collection[str], unrolled: Collection[str] = ()
) -> tuple[Condition, ...]:
    """Conditions without which folding the value in changes nothing.

    Args:
        value: one term of the fold.
        reducer: sum, prod, max or min.
        lanes: variables of vectorized loops; what depends on them is different in every lane, and stays at the loads.
        unrolled: variables of loops that are written out; what is only known at run time would be tested for each turn.
    """
    found = _needed(value, reducer.identity[0], reducer.name == "sum")
    return tuple(c for c in found if _variables(c).isdisjoint({*lanes, *(unrolled if _is_data(c) else ())}))


def _is_data(c: Condition) -> bool:
    """Whether it depends on elements, not on positions alone."""
    return isinstance(c, Expr) or c.is_opaque


def _variables(c: Condition) -> frozenset[str]:
    return variables(c if isinstance(c, Expr) else Index(c))


def _needed(value: Expr, neutral: Const, products: bool) -> tuple[Condition, ...]:
    """What must hold for the value not to be `neutral`."""
    if isinstance(value, Load):
        return value.when if value.otherwise is not None and value.otherwise.value == neutral.value else ()
    if isinstance(value, Cast) and neutral.value == 0:
        return _needed(value.a, neutral, products)
    if isinstance(value, Binary) and value.op == "mul" and products:
        return _needed(value.a, neutral, products) + _needed(value.b, neutral, products)
    return ()


def ends(
    s: StageState, values: Mapping[str, Linear], ranges: Ranges, value: Callable[[Expr], Expr]
) -> Iterator[tuple[int, Expr]]:
    """Conditions without which nobody reads what a stage computes, and the loop in which each is known, -1 outside.

    Args:
        values: the axes by loop variables.
        value: an expression of the stage in loop IR.
    """
    own = [s.variable(x.name) for x in s.loops]
    # A loop of one turn is no place to test: sums lie around it, and run for nothing.
    tile = {s.variable(x.name) for x in s.loops if x.mark not in (SERIAL, PARALLEL) or x.extent == 1}
    for needed in s.needed:
        assert isinstance(needed, Binary) and isinstance(needed.a, Var)
        place = values[needed.a.name]
        outer = Linear(place.const, {t: c for t, c in place.terms.items() if t not in tile})
        least = Linear(0, {t: c for t, c in place.terms.items() if t in tile}).range(ranges)[0]
        condition = Binary("lt", Index(outer + least), value(needed.b), DType.bool)
        depends = variables(condition)
        yield max((n for n, v in enumerate(own) if v in depends), default=-1), condition
