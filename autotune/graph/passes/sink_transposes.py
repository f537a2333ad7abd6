"""Transposes move behind what does not care about the order of dimensions, where they meet another one.

requires: a verified graph.    ensures: no elementwise operators alone lie between a transpose and other transposes or
reductions; no reduction reads a transpose.
Transposes that meet become one, or none; behind reductions and slices there is less to move. Where nothing is gained
a transpose stays: an elementwise operator reads through it. No transpose is duplicated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.graph.infer import REDUCTIONS, is_pointwise
from autotune.graph.ir import Graph, Node
from autotune.graph.passes.sweep import Sweep

Perm = tuple[int, ...]
_ENDS = frozenset({"transpose", *REDUCTIONS})


def sink_transposes(graph: Graph) -> Graph:
    """`f(transpose(x), c)` --> `transpose(f(x, c'))`; also reductions, slices and concatenations."""
    return _Sinking(graph).run()


class _Sinking:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.sweep = Sweep(graph)
        self.stands_for: dict[str, str] = {}  # a transpose made here -> the value of the old graph in whose place it is
        self.open = _open(graph)

    def run(self) -> Graph:
        for node in self.sweep:
            made = self._moved(node)
            if made is None:
                self.sweep.keep(node)
                continue
            inner, perm = made
            if perm == tuple(range(len(perm))):
                self.sweep.replace(node, inner)
                continue
            name = self.sweep.emit(node, "transpose", (inner,), perm=perm)
            self.stands_for[name] = node.name
            self.sweep.replace(node, name)
        return self.sweep.result()

    def _moved(self, node: Node) -> tuple[str, Perm] | None:
        """(the node before the transpose, the transpose); None where it stays."""
        if is_pointwise(node.op):
            return (
                self._elementwise(node) if node.op != "dequantize" else None
            )  # bytes are moved, not what they stand for
        if node.op in REDUCTIONS:
            return self._reduction(node)
        if node.op == "transpose":
            return self._met(node)
        if node.op == "slice":
            return self._slice(node)
        return self._concat(node) if node.op == "concat" else None

    def _transpose(self, name: str) -> tuple[str, Perm] | None:
        """(operand, perm) when a transpose makes the value and it is free to go."""
        producer = self.sweep.producers.get(name)
        if producer is None or producer.op != "transpose":
            return None
        return producer.inputs[0], producer.int_tuple("perm")

    def _readers(self, name: str) -> set[str]:
        """Operators that read the value, and `output` if it leaves the graph."""
        old = self.stands_for.get(name, name)
        leaves = {"output"} if old in self.graph.output_values else set()
        return leaves | {reader.op for reader in self.graph.consumers.get(old, ())}

    def _elementwise(self, node: Node) -> tuple[str, Perm] | None:
        """All operands of full shape are transposed alike; others are constants, or one element."""
        shape = node.output.shape
        found = [self._transpose(name) for name in node.inputs]
        whole = [self.sweep.values[name].shape == shape for name in node.inputs]
        perms = {t[1] for t, full in zip(found, whole, strict=True) if t and full}
        if len(perms) != 1:
            return None
        (perm,) = perms
        operands = []
        for name, transposed, full in zip(node.inputs, found, whole, strict=True):
            array, value = self.sweep.array(name), self.sweep.values[name]
            if transposed is not None and transposed[1] == perm and full:
                if self.stands_for.get(name, name) not in self.open:
                    return None
                operands.append(transposed[0])
            elif value.size == 1 and len(value.shape) <= len(shape):
                operands.append(name)
            elif array is not None:
                wide = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
                operands.append(self.sweep.constant(wide.transpose(np.argsort(perm)), name))
            else:
                return None
        return self.sweep.emit(node, node.op, operands, **dict(node.attrs)), perm

    def _met(self, node: Node) -> tuple[str, Perm] | None:
        """A transpose that has come here, and this one: as one it moves on at once, however long the chain."""
        transposed = self._transpose(node.inputs[0])
        if transposed is None or node.inputs[0] not in self.stands_for:
            return None
        source, perm = transposed
        return source, tuple(perm[axis] for axis in node.int_tuple("perm"))

    def _reduction(self, node: Node) -> tuple[str, Perm] | None:
        transposed = self._transpose(node.inputs[0])
        if transposed is None:
            return None
        source, perm = transposed
        axes = tuple(sorted(perm[axis] for axis in node.int_tuple("axes")))
        inner = self.sweep.emit(node, node.op, (source,), axes=axes, keepdims=node.attr("keepdims"))
        if node.attr("keepdims"):
            return inner, perm
        left = [d for d in perm if d not in axes]
        return inner, tuple(sorted(left).index(d) for d in left)

    def _slice(self, node: Node) -> tuple[str, Perm] | None:
        transposed = self._transpose(node.inputs[0])
        if transposed is None or self._readers(node.inputs[0]) != {"slice"}:
            return None
        source, perm = transposed
        attrs = {name: _unmoved(node.int_tuple(name), perm) for name in ("begin", "size", "step")}
        return self.sweep.emit(node, "slice", (source,), **attrs), perm

    def _concat(self, node: Node) -> tuple[str, Perm] | None:
        found = [self._transpose(name) for name in node.inputs]
        sources = [t[0] for t in found if t is not None]
        perms = {t[1] for t in found if t is not None}
        if len(sources) < len(node.inputs) or len(perms) != 1:
            return None
        if any(self._readers(name) != {"concat"} for name in node.inputs):
            return None
        (perm,) = perms
        axis = node.attr("axis")
        assert isinstance(axis, int)
        return self.sweep.emit(node, "concat", sources, axis=perm[axis % len(perm)]), perm


def _open(graph: Graph) -> frozenset[str]:
    """Values from which elementwise operators of their shape lead to transposes and reductions, and nowhere else."""
    found: set[str] = set()
    for value in (node.output for node in reversed(graph.nodes)):
        readers = graph.consumers[value.name]
        ends = value.name not in graph.output_values and len(readers) > 0
        if ends and all(
            r.op in _ENDS or (is_pointwise(r.op) and r.output.shape == value.shape and r.name in found) for r in readers
        ):
            found.add(value.name)
    return frozenset(found)


def _unmoved(entries: Sequence[int], perm: Perm) -> Perm:
    """One entry per dimension of the transposed value, as entries of the operand."""
    out = [0] * len(perm)
    for position, axis in enumerate(perm):
        out[axis] = entries[position]
    return tuple(out)
