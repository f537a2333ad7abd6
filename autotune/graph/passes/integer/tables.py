"""Functions of bytes that give bytes become tables of their 256 values, where computing them is much work.

    quantize(erf(dequantize(q)) * dequantize(q)) --> lookup(q, table)

A table is computed in float64, every rounding of the graph included.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autotune.graph.evaluate import evaluate_node
from autotune.graph.infer import is_elementwise
from autotune.graph.ir import Array, Graph, Node, Value
from autotune.graph.passes.sweep import Sweep
from autotune.tensor import DType

ENTRIES = 256
_WORK = {
    **dict.fromkeys(("abs", "add", "clip", "dequantize", "max", "min", "mul", "neg", "relu", "sub"), 1),
    **dict.fromkeys(("quantize", "requantize"), 4),
}
_MUCH = 16
"""Instructions for a vector of elements: what a polynomial or a division takes, and from which on a table pays."""


@dataclass(frozen=True, slots=True)
class Function:
    """A value as a function of bytes (u8) of its shape: all its values, and the work of computing one."""

    of: str
    values: Array
    work: int = 0


def tabulate(graph: Graph) -> Graph:
    """Bytes that are a function of other bytes are looked up."""
    sweep = Sweep(graph)
    known: dict[str, Function] = {}
    for node in sweep:
        function = _function(sweep, known, node)
        if function is None:
            sweep.keep(node)
            continue
        if node.op in ("quantize", "requantize") and DType(node.output.dtype).bytes == 1 and function.work >= _MUCH:
            made = sweep.emit(node, "lookup", (function.of, sweep.constant(function.values, node.name)))
            sweep.replace(node, made)
            known[made] = function  # what follows is a table, too, and may be the only one that is left
        else:
            sweep.keep(node)
            known[node.name] = function
    return sweep.result()


def _function(sweep: Sweep, known: dict[str, Function], node: Node) -> Function | None:
    """What a node is a function of: elements of one value and numbers; None for anything else."""
    if node.op == "lookup":
        table = sweep.array(node.inputs[1])
        inner = known.get(node.inputs[0]) or _itself(sweep.values[node.inputs[0]])
        return None if table is None or inner is None else Function(inner.of, table[inner.values], inner.work + 1)
    if not is_elementwise(node.op):
        return None
    operands: list[tuple[Value, Array]] = []
    functions = []
    for name in node.inputs:
        value, array = sweep.values[name], sweep.array(name)
        if array is not None and array.size == 1:
            operands.append((replace(value, shape=(1,)), array.reshape(1)))
            continue
        function = known.get(name) or _itself(value)
        if function is None or value.shape != node.output.shape:
            return None
        functions.append(function)
        operands.append((replace(value, shape=(ENTRIES,)), function.values))
    if len({function.of for function in functions}) != 1:
        return None
    alone = replace(node, output=replace(node.output, shape=(ENTRIES,)))
    types, arrays = [value for value, _ in operands], [array for _, array in operands]
    with np.errstate(all="ignore"):
        values = evaluate_node(alone, types, arrays, DType.f64)
    quick = node.op == "div" and sweep.array(node.inputs[1]) is not None  # a product with a reciprocal, soon
    work = (1 if quick else _WORK.get(node.op, _MUCH)) + sum(function.work for function in functions)
    return Function(functions[0].of, values, work)


def _itself(value: Value) -> Function | None:
    return Function(value.name, np.arange(ENTRIES, dtype=np.uint8)) if value.dtype == "u8" else None
