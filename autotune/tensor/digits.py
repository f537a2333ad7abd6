"""Axes that are only used through `axis // f` and `axis % f` become two axes, which makes those indices affine."""

from __future__ import annotations

from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Const, Expr, Var, rewrite, walk
from autotune.tensor.stage import Axis, Stage


def split_digits(stage: Stage) -> Stage:
    """The same stage over more axes: `k -> (k.q, k.r)` where `k // f` or `k % f` occurs and f divides the extent.

    Outputs keep their element order, so only the shape differs. Grouped convolutions and reshapes need it.
    """
    factors: dict[str, set[int]] = {}
    for expression in stage.body:
        for e in walk(expression):
            digit = _digit(e)
            if digit is not None:
                factors.setdefault(digit[0], set()).add(digit[1])
    split = {
        a.name: next(iter(factors[a.name]))
        for a in stage.all_axes
        if len(factors.get(a.name, ())) == 1 and a.extent % next(iter(factors[a.name])) == 0 and a.extent > 0
    }
    if not split:
        return stage

    def replaced(e: Expr) -> Expr | None:
        digit = _digit(e)
        if digit is not None and digit[0] in split:
            return Var(f"{digit[0]}.q") if isinstance(e, Binary) and e.op == "floordiv" else Var(f"{digit[0]}.r")
        return None

    def whole(e: Expr) -> Expr | None:
        if isinstance(e, Var) and e.name in split:
            return Var(f"{e.name}.q") * split[e.name] + Var(f"{e.name}.r")
        return None

    def doubled(old: tuple[Axis, ...]) -> tuple[Axis, ...]:
        new: list[Axis] = []
        for a in old:
            f = split.get(a.name)
            new += [a] if f is None else [Axis(f"{a.name}.q", a.extent // f), Axis(f"{a.name}.r", f)]
        return tuple(new)

    body = tuple(rewrite(rewrite(b, replaced), whole) for b in stage.body)
    return Stage(stage.outputs, doubled(stage.axes), doubled(stage.reduce_axes), body, stage.reducer, stage.scan_axis)


def _digit(e: Expr) -> tuple[str, int] | None:
    """(axis, f) of `axis // f` and `axis % f`."""
    if not isinstance(e, Binary) or e.op not in ("floordiv", "floormod"):
        return None
    if isinstance(e.a, Var) and e.a.dtype is DType.i64 and isinstance(e.b, Const) and int(e.b.value) > 0:
        return e.a.name, int(e.b.value)
    return None
