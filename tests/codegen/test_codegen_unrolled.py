"""What is true of an unrolled loop."""

from __future__ import annotations

from autotune.codegen.unrolled import Unrolled
from autotune.lower.ir import OPERAND, Buffer, For, If, Load, Stmt, Store
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Expr, Unary
from autotune.tensor.linear import Linear

X, Y = (Buffer(name, DType.f32, (64,), OPERAND) for name in "xy")
HERE = Linear(0, {"i": 1})


def load(buffer: Buffer) -> Expr:
    return Load(buffer, (HERE,), (), None)


def facts(*body: Stmt) -> Unrolled:
    return Unrolled.of(For("i", 0, 8, "unroll", body))


def test_plain_stores_come_apart_from_what_they_do_not_change() -> None:
    assert facts(Store(((Y, (HERE,)),), (load(X),))) == Unrolled(alike=True, apart=True, chains=False)
    assert not facts(Store(((Y, (HERE,)),), (load(Y),))).apart
    assert not facts(Store(((Y, (HERE,)),), (load(X),), "sum")).apart


def test_functions_are_long_chains() -> None:
    store = Store(((Y, (HERE,)),), (Unary("exp", load(X), DType.f32),))
    assert facts(store) == Unrolled(alike=True, apart=True, chains=True)
    assert not facts(For("j", 0, 4, "unroll", (store,))).chains
    assert facts(For("j", 0, 4, "", (store,))) == Unrolled(alike=True, apart=False, chains=True)


def test_turns_differ_where_guards_ask_for_them() -> None:
    store = Store(((Y, (HERE,)),), (load(X),))
    assert not facts(If((Linear(5, {"i": -1}),), (store,))).alike
    assert facts(If((Linear(5, {"n": -1}),), (store,))).alike
    assert not facts(If((Linear(5, {"n": -1}),), (store,))).apart
