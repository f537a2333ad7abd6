"""Common subexpressions: what is computed twice from the same operands is computed once; equal constants likewise.

requires: a verified graph.    ensures: no two nodes have the same operator, operands and attributes.
"""

from __future__ import annotations

from autotune.graph.ir import Array, Attrs, Graph
from autotune.graph.passes.sweep import Sweep

MAX_COMPARED_BYTES = 2**12  # larger constants are equal only when they are the same memory


def merge_common_subexpressions(graph: Graph) -> Graph:
    """`f(x), f(x)` --> `y = f(x); y, y`."""
    same = _same_constants(graph)
    sweep = Sweep(graph)
    known: dict[tuple[str, tuple[str, ...], Attrs], str] = {}
    for node in sweep:
        key = (node.op, tuple(same.get(name, name) for name in node.inputs), node.attrs)
        if key in known:
            sweep.replace(node, known[key])
        else:
            known[key] = node.name
            sweep.keep(node)
    return sweep.result()


def _same_constants(graph: Graph) -> dict[str, str]:
    """For each constant the first one that is equal to it."""
    first: dict[object, str] = {}
    return {name: first.setdefault(_identity(array), name) for name, array in graph.constants.items()}


def _identity(array: Array) -> object:
    if array.nbytes <= MAX_COMPARED_BYTES:
        return array.dtype.name, array.shape, array.tobytes()
    return array.dtype.name, array.shape, array.strides, array.__array_interface__["data"][0]
