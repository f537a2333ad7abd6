"""Transposes of matrices become access patterns of the product that reads or makes them.

requires: a verified graph.    ensures: no product reads a transpose of its last two dimensions alone, or one that
moves its innermost dimension where swapping the last two would not.
"""

from __future__ import annotations

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.ops.workload import AttrValue


def fold_transposes(graph: Graph) -> Graph:
    """`matmul(a, transpose(b))` --> `matmul(a, b, trans_b)`;  `transpose(matmul(a, b))` --> `matmul(b', a')`.

    Of a transpose that moves more than the last two dimensions, the part that leaves rows whole stays: it is a copy
    of rows, and may be shared with other operands.
    """
    return rewrite(graph, lambda sweep, node: _RULES[node.op](sweep, node), _RULES)


def _product(sweep: Sweep, node: Node) -> str | None:
    operands, attrs = list(node.inputs), dict(node.attrs)
    for position, flag in enumerate(("trans_a", "trans_b")):
        producer = sweep.producers.get(node.inputs[position])
        if producer is None or producer.op != "transpose" or len(producer.output.shape) < 2:
            continue
        perm = producer.int_tuple("perm")
        swapped = (*perm[:-2], perm[-1], perm[-2])
        last = len(perm) - 1
        if swapped == tuple(range(len(perm))):
            operands[position] = producer.inputs[0]
        elif swapped[-1] == last and perm[-1] != last and sweep.sole_use(producer.name):
            operands[position] = sweep.emit(producer, "transpose", producer.inputs, perm=swapped)
        else:
            continue
        attrs[flag] = not attrs[flag]
    if operands == list(node.inputs):
        return None
    return sweep.emit(node, "matmul", operands, **attrs)


def _result(sweep: Sweep, node: Node) -> str | None:
    """The product of the transposed operands, for two that are computed: weights stay where they are packed."""
    producer, perm = sweep.producers.get(node.inputs[0]), node.int_tuple("perm")
    last = len(perm) - 1
    if producer is None or producer.op != "matmul" or perm != (*range(last - 1), last, last - 1):
        return None
    matrices = all(len(sweep.values[name].shape) >= 2 for name in producer.inputs)
    computed = all(sweep.array(name) is None for name in producer.inputs)
    if not matrices or not computed or not sweep.sole_use(producer.name):
        return None
    a, b = producer.inputs
    attrs: dict[str, AttrValue] = {"trans_a": not producer.attr("trans_b"), "trans_b": not producer.attr("trans_a")}
    return sweep.emit(node, "matmul", (b, a), **attrs)


_RULES = {"matmul": _product, "transpose": _result}
