"""Reshapes move behind elementwise operators, so that these join the product or convolution before.

requires: a verified graph.    ensures: no elementwise operator reads a reshape if its other operands are single
elements, constants of trailing dimensions that the reshape keeps, or reshapes from the same shape.
"""

from __future__ import annotations

from autotune.graph.infer import is_pointwise
from autotune.graph.ir import Graph, Node
from autotune.graph.passes.match import MAX_STEPS, made_by
from autotune.graph.passes.sweep import Sweep, rewrite


def sink_reshapes(graph: Graph) -> Graph:
    """`f(reshape(x), c)` --> `reshape(f(x, c))`."""
    return rewrite(graph, _sunk)


def _sunk(sweep: Sweep, node: Node) -> str | None:
    operands = _operands(sweep, node) if is_pointwise(node.op) and node.op != "dequantize" else None
    if operands is None:
        return None
    inner = sweep.emit(node, node.op, operands, **dict(node.attrs))
    return sweep.emit(node, "reshape", (inner,), shape=node.output.shape)


def _operands(sweep: Sweep, node: Node) -> list[str] | None:
    """Operands that compute the same elements in the shape before the reshape; None where there are none."""
    sources = {}
    for name in node.inputs:
        producer = sweep.producers.get(name)
        if producer is not None and producer.op == "reshape" and producer.output.shape == node.output.shape:
            sources[name] = _reshaped(sweep, name)
    shapes = {sweep.values[source].shape for source in sources.values()}
    if len(shapes) != 1:
        return None
    (shape,) = shapes
    found = []
    for name in node.inputs:
        own = sweep.values[name]
        trailing = own.shape[next((d for d, n in enumerate(own.shape) if n != 1), len(own.shape)) :]
        if name in sources:
            found.append(sources[name])
        elif own.size == 1 and len(own.shape) <= len(shape):
            found.append(name)
        elif (array := sweep.array(name)) is not None and _keeps(node.output.shape, shape, len(trailing)):
            found.append(sweep.constant(array.reshape(trailing), name))
        else:
            return None
    return found


def _reshaped(sweep: Sweep, name: str) -> str:
    """The value behind reshapes: those that have come here and the one they meet count as one."""
    for _ in range(MAX_STEPS):
        producer = made_by(sweep, name, "reshape")
        if producer is None:
            break
        name = producer.inputs[0]
    return name


def _keeps(after: tuple[int, ...], before: tuple[int, ...], count: int) -> bool:
    """Whether the last `count` dimensions are the same before and after."""
    return len(before) >= count and before[len(before) - count :] == after[len(after) - count :]
