"""Convolutions and products of one value with the same activations become one, of which each reads its part.

requires: fold-scale, recognize-activations (a branch is constant weights, a bias and activations, nothing else).
ensures: branches are one kernel where that was measured faster (products of one row, convolutions with one position,
3 x 3 windows of many channels, which share the transform of their input) and its parts cost nothing: each lies in one
piece (a batch of one; channels in whole blocks), and nobody who reads one could have been fused with its branch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from autotune.graph.infer import is_elementwise
from autotune.graph.ir import Array, Attrs, Graph, Node
from autotune.graph.passes.affine import along_axis, side_by_side
from autotune.graph.passes.sweep import Sweep
from autotune.ops.conv import CONVOLUTIONS

BLOCK = 16
"""Channels of the widest block of a layout: parts that begin at a multiple of it are views of the whole."""
MANY = 128
"""Channels of a 3 x 3 convolution from which two are faster as one, by 0 to 8 % with 1 and 2 threads. Smaller ones are
up to 20 % slower with 2. Of 1 x 1 convolutions on images (Inception) two take as long as one, whatever their size."""


@dataclass(frozen=True, slots=True)
class Branch:
    """`anchor`, its bias if any and activations: `steps`. The last of them is `tail`."""

    anchor: Node
    weight: Array
    bias: Array | None
    steps: tuple[tuple[str, Attrs], ...]
    tail: Node

    @property
    def axis(self) -> int:
        """The axis of the result along which branches lie side by side."""
        return 1 if self.anchor.op in CONVOLUTIONS else len(self.anchor.output.shape) - 1

    @property
    def width(self) -> int:
        return self.anchor.output.shape[self.axis]

    def kind(self) -> object:
        """Branches of equal kind can be one."""
        window = self.weight.shape[1:] if self.anchor.op in CONVOLUTIONS else self.weight.shape[:1]
        return (
            self.anchor.op, self.anchor.inputs[0], self.anchor.attrs, window, self.weight.dtype, self.bias is None,
            self.steps,
        )  # fmt: skip


def merge_branches(graph: Graph) -> Graph:
    """`f(x·a + p), f(x·b + q)` --> slices of `f(x·[a b] + [p q])`, for products and convolutions."""
    place: dict[str, tuple[int, int]] = {}
    merged = list(_merged(graph))
    for number, branches in enumerate(merged):
        place |= {branch.tail.name: (number, at) for at, branch in enumerate(branches)}
    if not merged:
        return graph
    sweep = Sweep(graph)
    wholes: dict[int, str] = {}
    operands: dict[str, str] = {}
    for node in sweep:
        operands[node.name] = node.inputs[0] if node.inputs else ""
        if node.name not in place:
            sweep.keep(node)
            continue
        number, at = place[node.name]
        branches = merged[number]
        if number not in wholes:
            wholes[number] = _whole(sweep, node, operands[branches[at].anchor.name], branches)
        sweep.replace(node, _part(sweep, node, wholes[number], branches, at))
    return sweep.result()


def _merged(graph: Graph) -> Iterator[list[Branch]]:
    found: dict[object, list[Branch]] = {}
    for node in graph.nodes:
        branch = _branch(graph, node)
        if branch is not None:
            found.setdefault(branch.kind(), []).append(branch)
    yield from (branches for branches in found.values() if len(branches) > 1)


def _branch(graph: Graph, anchor: Node) -> Branch | None:
    shape = anchor.output.shape
    weight = graph.constants.get(anchor.inputs[1]) if anchor.op == "matmul" or anchor.op in CONVOLUTIONS else None
    if weight is None or not _is_faster_merged(anchor, weight):
        return None
    axis = 1 if anchor.op in CONVOLUTIONS else len(shape) - 1
    tail, bias = anchor, None
    steps: list[tuple[str, Attrs]] = []
    while (reader := _reader(graph, tail)) is not None and is_elementwise(reader.op) and reader.output.shape == shape:
        if len(reader.inputs) == 1:
            steps.append((reader.op, reader.attrs))
        elif reader.op == "add" and not steps and bias is None:
            array = next((graph.constants[name] for name in reader.inputs if name in graph.constants), None)
            bias = None if array is None else along_axis(array, axis, len(shape))
            if bias is None or bias.size != shape[axis]:
                return None
        else:
            return None
        tail = reader
    if tail.name in graph.output_values and anchor.op != "matmul":  # whose layout is not to be had in parts
        return None
    if any(is_elementwise(reader.op) or reader.op == "concat" for reader in graph.consumers[tail.name]):
        return None
    return Branch(anchor, weight, bias, tuple(steps), tail)


def _is_faster_merged(anchor: Node, weight: Array) -> bool:
    shape = anchor.output.shape
    if 0 in shape:
        return False
    if anchor.op == "matmul":
        flags = anchor.attr("trans_a") or anchor.attr("trans_b")
        return weight.ndim == 2 and not flags and math.prod(shape[:-1]) == 1
    if anchor.attr("groups") != 1 or shape[0] != 1 or shape[1] % BLOCK:
        return False
    steps = {*anchor.int_tuple("stride"), *anchor.int_tuple("dilation")}
    return math.prod(shape[2:]) == 1 or (weight.shape[2:] == (3, 3) and steps == {1} and shape[1] >= MANY)


def _reader(graph: Graph, node: Node) -> Node | None:
    """The one node that reads a value and nobody else sees."""
    readers = graph.consumers[node.name]
    return readers[0] if len(readers) == 1 and node.name not in graph.output_values else None


def _whole(sweep: Sweep, node: Node, x: str, branches: list[Branch]) -> str:
    lead = branches[0]
    along = 0 if lead.anchor.op in CONVOLUTIONS else 1
    biases = [b.bias for b in branches if b.bias is not None]
    value = side_by_side(sweep, [b.anchor for b in branches], x, [b.weight for b in branches], biases, along, lead.axis)
    for op, attrs in lead.steps:
        value = sweep.emit(node, op, (value,), **dict(attrs))
    return value


def _part(sweep: Sweep, node: Node, whole: str, branches: list[Branch], at: int) -> str:
    shape, axis = node.output.shape, branches[at].axis
    begin = [0] * len(shape)
    begin[axis] = sum(b.width for b in branches[:at])
    return sweep.emit(node, "slice", (whole,), begin=tuple(begin), size=shape, step=(1,) * len(shape))
