"""Executes a loop program point by point in Python: what a nest means, whatever instructions its marks ask for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotune.lower.ir import Barrier, Buffer, Condition, For, If, Index, Load, LoopProgram, Once, Stmt, Store, map_expr
from autotune.lower.operands import fill_operand
from autotune.measure.reference import Array
from autotune.tensor.expr import Const, Expr
from autotune.tensor.interpret import Box, Interpreter
from autotune.tensor.linear import Linear

_NOWHERE = Box((), (), ())
_POISON = 77


def execute(program: LoopProgram, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs by name, from inputs by name, both in their logical form; scratch starts as something."""
    memory: dict[str, Array] = {}
    for operand, buffer in zip(program.operands, program.buffers):
        given = operand.role == "input"
        if operand.prepared is not None:
            packed = np.zeros(operand.bytes, np.uint8)
            fill_operand(operand, inputs, packed)
            packed = packed.view(buffer.dtype.numpy).reshape(operand.layout.physical_shape(operand.shape))
        else:
            packed = operand.layout.pack(inputs[operand.name]) if given else np.zeros(buffer.shape, buffer.dtype.numpy)
        memory[operand.name] = packed.reshape(buffer.shape)
    for buffer in program.buffers[len(program.operands) :]:
        memory[buffer.name] = np.full(buffer.shape, _POISON, buffer.dtype.numpy)
    for stmt in program.body:
        _execute(stmt, {}, memory)
    return {o.name: o.layout.unpack(memory[o.name], o.shape) for o in program.operands if o.role == "output"}


def _execute(stmt: Stmt, at: dict[str, int], memory: dict[str, Array]) -> None:
    if isinstance(stmt, For):
        for n in range(stmt.begin, stmt.begin + stmt.extent):
            for inner in stmt.body:
                _execute(inner, {**at, stmt.var: n}, memory)
    elif isinstance(stmt, (If, Once)):
        if isinstance(stmt, Once) or all(_holds(c, at, memory) for c in stmt.when):
            for inner in stmt.body:
                _execute(inner, at, memory)
    elif isinstance(stmt, Store):
        values = [_value(v, at, memory) for v in stmt.values]
        for (buffer, indices), value in zip(stmt.targets, values):
            place = _place(buffer, indices, at)
            assert stmt.fold in (None, "sum")
            memory[buffer.name][place] = value if stmt.fold is None else memory[buffer.name][place] + value
    else:
        assert isinstance(stmt, Barrier), stmt


def _place(buffer: Buffer, indices: tuple[Linear, ...], at: Mapping[str, int]) -> tuple[int, ...]:
    place = tuple(_number(i, at) for i in indices)
    assert all(0 <= i < n for i, n in zip(place, buffer.shape)), f"{buffer.name}{place} is outside of {buffer.shape}"
    return place


def _number(form: Linear, at: Mapping[str, int]) -> int:
    found = form.substitute({name: Linear(n) for name, n in at.items()}, {})
    assert found.is_const, found
    return found.const


def _holds(c: Condition, at: Mapping[str, int], memory: dict[str, Array]) -> bool:
    return _number(c, at) >= 0 if isinstance(c, Linear) else bool(_value(c, at, memory))


def _value(e: Expr, at: Mapping[str, int], memory: dict[str, Array]) -> Array:
    def leaf(x: Expr) -> Expr:
        if isinstance(x, Index):
            return Const(_number(x.value, at), x.dtype)
        assert isinstance(x, Load), x
        if all(_holds(c, at, memory) for c in x.when):
            return Const(memory[x.buffer.name][_place(x.buffer, x.indices, at)].item(), x.dtype)
        assert x.otherwise is not None
        return x.otherwise

    return np.asarray(Interpreter({}).value(map_expr(e, leaf, (Load, Index)), _NOWHERE))
