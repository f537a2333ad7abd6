"""Expressions, tensors and stages as plain JSON values, both ways."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Cast, Const, Expr, Lookup, Read, Reinterpret, Select, Table, Unary, Var
from autotune.tensor.reducer import Reducer
from autotune.tensor.stage import Axis, Extern, Stage, Tensor


def expr_to_json(e: Expr) -> Any:
    """A nested list whose head names the node."""
    if isinstance(e, Const):
        return ["const", _number(e.value), str(e.dtype)]
    if isinstance(e, Var):
        return ["var", e.name] if e.dtype is DType.i64 else ["var", e.name, str(e.dtype)]
    if isinstance(e, Binary):
        return [e.op, expr_to_json(e.a), expr_to_json(e.b)]
    if isinstance(e, Unary):
        return [f"{e.op}()", expr_to_json(e.a)]
    if isinstance(e, Select):
        return ["select", expr_to_json(e.condition), expr_to_json(e.a), expr_to_json(e.b)]
    if isinstance(e, (Cast, Reinterpret)):
        return ["cast" if isinstance(e, Cast) else "reinterpret", expr_to_json(e.a), str(e.dtype)]
    if isinstance(e, Read):
        out: list[Any] = ["read", e.tensor.name, [expr_to_json(i) for i in e.indices]]
        if e.when is not None and e.otherwise is not None:
            out += [expr_to_json(e.when), expr_to_json(e.otherwise)]
        return out
    if isinstance(e, Lookup):
        return ["lookup", list(map(_number, e.values)), expr_to_json(e.index), str(e.dtype)]
    if isinstance(e, Table):
        return ["table", e.name, list(map(_number, e.values)), list(e.shape), [expr_to_json(i) for i in e.indices],
                str(e.dtype)]  # fmt: skip
    raise TypeError(f"{type(e).__name__} has no JSON form")


def expr_from_json(data: Any, tensors: Mapping[str, Tensor]) -> Expr:
    """The inverse of `expr_to_json`; `tensors` resolves reads."""
    head, *rest = data

    def sub(d: Any) -> Expr:
        return expr_from_json(d, tensors)

    if head == "const":
        return Const(_value(rest[0], DType(rest[1])), DType(rest[1]))
    if head == "var":
        return Var(rest[0], DType(rest[1]) if len(rest) > 1 else DType.i64)
    if head == "select":
        condition, a, b = map(sub, rest)
        return Select(condition, a, b, a.dtype)
    if head == "cast":
        return Cast(sub(rest[0]), DType(rest[1]))
    if head == "reinterpret":
        return Reinterpret(sub(rest[0]), DType(rest[1]))
    if head == "read":
        when, otherwise = (sub(rest[2]), sub(rest[3])) if len(rest) > 2 else (None, None)
        indices = tuple(sub(i) for i in rest[1])
        return Read(tensors[rest[0]], indices, when, otherwise)
    if head == "lookup":
        dtype = DType(rest[2])
        return Lookup(tuple(float(_value(v, dtype)) for v in rest[0]), sub(rest[1]), dtype)
    if head == "table":
        dtype = DType(rest[4])
        values = tuple(float(_value(v, dtype)) for v in rest[1])
        return Table(rest[0], values, tuple(rest[2]), tuple(sub(i) for i in rest[3]), dtype)
    if head.endswith("()"):
        a = sub(rest[0])
        return Unary(head[:-2], a, DType.bool if head in ("isnan()", "isinf()") else a.dtype)
    a, b = map(sub, rest)
    return Binary(head, a, b, DType.bool if head in ("lt", "le", "gt", "ge", "eq", "ne") else a.dtype)


def tensor_to_json(t: Tensor) -> Any:
    return [t.name, str(t.dtype), list(t.shape)] + ([True] if t.constant else [])


def tensor_from_json(data: Any) -> Tensor:
    return Tensor(data[0], tuple(data[2]), DType(data[1]), None, len(data) > 3)


def stage_to_json(s: Stage) -> Any:
    reducer = None
    if s.reducer is not None:
        reducer = {
            "name": s.reducer.name,
            "dtypes": [str(d) for d in s.reducer.dtypes],
            "identity": [expr_to_json(e) for e in s.reducer.identity],
            "combine": [expr_to_json(e) for e in s.reducer.combine],
        }
    data: dict[str, Any] = {
        "outputs": [tensor_to_json(t) for t in s.outputs],
        "axes": [[a.name, a.extent] for a in s.axes],
        "reduce_axes": [[a.name, a.extent] for a in s.reduce_axes],
        "body": [expr_to_json(e) for e in s.body],
        "reducer": reducer,
        "scan": s.scan_axis,
    }
    if s.extern is not None:
        data["extern"] = [s.extern.name, dict(s.extern.attrs)]
    if s.recurrence is not None:
        data["recurrence"] = s.recurrence
    if s.amplified != 1.0:
        data["amplified"] = s.amplified
    return data


def stage_from_json(data: Any, tensors: Mapping[str, Tensor]) -> Stage:
    outputs = tuple(tensor_from_json(t) for t in data["outputs"])
    visible = {**tensors, **{t.name: t for t in outputs}} if data["scan"] else tensors
    reducer = None
    if data["reducer"] is not None:
        r = data["reducer"]
        identity = tuple(expr_from_json(e, {}) for e in r["identity"])
        reducer = Reducer(
            r["name"],
            tuple(DType(d) for d in r["dtypes"]),
            tuple(e for e in identity if isinstance(e, Const)),
            tuple(expr_from_json(e, {}) for e in r["combine"]),
        )
    axes = tuple(Axis(n, e) for n, e in data["axes"])
    reduce_axes = tuple(Axis(n, e) for n, e in data["reduce_axes"])
    body = tuple(expr_from_json(e, visible) for e in data["body"])
    extern = None
    if "extern" in data:
        name, attrs = data["extern"]
        extern = Extern(name, tuple(sorted(attrs.items())))
    recurrence, amplified = data.get("recurrence"), data.get("amplified", 1.0)
    return Stage(outputs, axes, reduce_axes, body, reducer, data["scan"], extern, recurrence, amplified)


def _number(value: float | int | bool) -> Any:
    """JSON has no infinities and no NaN: those become strings."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _value(data: Any, dtype: DType) -> float | int | bool:
    if dtype.is_float:
        return float(data)
    return bool(data) if dtype is DType.bool else int(data)
