"""Narrow products: convolutions and matrix products of an f32 graph whose operands are of 16 bits, summed up in f32.

`conv(x, w)` becomes `conv(up(down(x)), up(w'))`: factors are f32 values of 16 bits, their products exact, the
result f32. `up` belongs to the reader's kernel and `down` to that which makes the value, so that what lies in memory
between them has 16 bits, and no kernel only converts. Done after all passes, which would take the conversions together.

Depthwise convolutions, which move much and multiply little, are no products in this; but where the result of one has 16
bits, so has its data. Of attention between such products queries, keys and values are bf16, its softmax f32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from autotune.errors import ModelError
from autotune.graph.infer import is_elementwise
from autotune.graph.ir import Array, Graph, Node
from autotune.graph.partition import is_depthwise, operation
from autotune.graph.passes.dead_code import remove_dead_code
from autotune.graph.passes.sweep import Sweep
from autotune.ops import conv_rows, winograd
from autotune.ops.conv import CONVOLUTIONS, Conv
from autotune.ops.registry import has_trait
from autotune.ops.traits import Trait
from autotune.tensor import DType

ATTENTION = "attention"
ATTENDED = 3
"""Of attention's operands, queries, keys and values are the first."""
FOLDED = 2
"""Neighbours along the sum that instructions for 16 bits take together."""


def narrowable(graph: Graph, *, in_rows: bool = False) -> tuple[Node, ...]:
    """The products that 16-bit operands may make faster: of f32, over pairs, and no convolutions in groups.

    Args:
        in_rows: whether convolutions of few channels, whose pairs are neighbours in a row, are such products.
    """
    return tuple(node for node in graph.nodes if _is_product(graph, node, in_rows))


def _is_product(graph: Graph, node: Node, in_rows: bool) -> bool:
    if node.op != "matmul" and node.op not in CONVOLUTIONS:
        return False
    first, second = (graph.values[name] for name in node.inputs[:2])
    if {first.dtype, second.dtype} != {"f32"} or not first.size or not second.size or first.name == second.name:
        return False
    if node.op in CONVOLUTIONS:
        size = Conv.of(node.op, first.shape, second.shape, dict(node.attrs))
        rows = in_rows and conv_rows.in_rows(size) and node.inputs[1] in graph.constants
        return size.groups == 1 and (rows or size.c % FOLDED == 0)
    return first.shape[-2 if node.attr("trans_a") else -1] % FOLDED == 0


def too_large(graph: Graph, node: Node, dtype: DType) -> str:
    """Why constants of a product do not fit a 16-bit float; empty when they do."""
    for name in node.inputs:
        array = graph.constants.get(name)
        if array is not None and array.size and not _fits(array, dtype):
            most = float(np.abs(array[np.isfinite(array)]).max())
            called = node.origins[0] if node.origins else node.name
            return f"the weight '{name}' of '{called}' reaches {most:.6g}, and {dtype} ends at {_end(dtype):.6g}"
    return ""


def narrowed(
    graph: Graph,
    dtype: DType,
    chosen: Collection[str],
    *,
    between: bool = True,
    rounded: Mapping[str, int] | None = None,
) -> Graph:
    """The graph with those products that compute the values `chosen` of operands of `dtype`.

    Args:
        between: whether attention and depthwise convolutions between such products read 16 bits, too; else f32.
        rounded: of convolutions among them, which points tiles may have whose transformed elements are rounded to bf16.

    Raises:
        ModelError: a weight of theirs is too large for it.
    """
    products = {node.name for node in narrowable(graph, in_rows=True) if node.name in chosen}
    if not products:
        return graph
    for node in graph.nodes:
        if node.name in products and (complaint := too_large(graph, node, dtype)):
            raise ModelError(f"precision {dtype}: {complaint}; use bf16, auto or f32")
    return remove_dead_code(_Narrowing(graph, dtype.value, products, between, rounded or {}).result())


class _Narrowing:
    """A sweep that stores in 16 bits what only products and what computes element by element read."""

    def __init__(self, graph: Graph, dtype: str, products: set[str], between: bool, rounded: Mapping[str, int]) -> None:
        self._graph, self._dtype, self._products, self._between = graph, dtype, products, between
        self._rounded = rounded
        self._stored = self._stored_narrow()
        self._sweep = Sweep(graph)
        self._narrow: dict[str, str] = {}

    def result(self) -> Graph:
        sweep = self._sweep
        for node in sweep:
            own = self._graph.producers[node.name]
            stored = node.name in self._stored
            as_narrow = node.name in self._products or (stored and _moves(node))
            attended = ATTENDED if stored and self._attends(own) else 0
            read = [
                self._operand(node, name, before, as_narrow or n < attended)
                for n, (name, before) in enumerate(zip(node.inputs, own.inputs))
            ]
            if read == list(own.inputs) and node.name not in self._stored:
                sweep.keep(node)
                continue
            attrs = {**dict(node.attrs), **self._tiles(own)}
            made = sweep.emit(node, node.op, read, **attrs)
            if node.name in self._stored and sweep.values[made].dtype != self._dtype:
                made = sweep.emit(node, "cast", (made,), to=self._dtype)
            sweep.replace(node, made)
        return sweep.result()

    def _tiles(self, node: Node) -> dict[str, int]:
        """What a convolution is to know of tiles that it may round; nothing where there are none."""
        points = self._rounded.get(node.name, 0)
        if not points or node.name not in self._products or node.op not in winograd.OPERATORS:
            return {}
        x, weight = (self._graph.values[name].shape for name in node.inputs[:2])
        size = Conv.of(node.op, x, weight, dict(node.attrs))
        may = replace(size, rounded=min(points, size.points))
        able = any(winograd.allowed(may, tile, DType.bf16) for tile in winograd.TILES.values())
        return {"rounded": may.rounded} if able and node.inputs[1] in self._graph.constants else {}

    def _operand(self, node: Node, name: str, before: str, as_narrow: bool) -> str:
        """What a node reads in the place of a value."""
        if self._graph.values[before].dtype != "f32":
            return name
        if as_narrow:
            name = self._down(node, name)
            if _moves(node) or node.op == ATTENTION:
                return name
        if self._sweep.values[name].dtype != self._dtype:
            return name
        return self._sweep.emit(node, "cast", (name,), to="f32")  # each reader has its own

    def _down(self, node: Node, name: str) -> str:
        if self._sweep.values[name].dtype == self._dtype:
            return name
        if name not in self._narrow:
            array = self._sweep.array(name)
            if array is None:
                self._narrow[name] = self._sweep.emit(node, "cast", (name,), to=self._dtype)
            else:
                self._narrow[name] = self._sweep.constant(array.astype(DType(self._dtype).numpy), name)
        return self._narrow[name]

    def _stored_narrow(self) -> set[str]:
        """Values that some product reads, directly or moved, and no reader of which would have to convert first."""
        graph, found = self._graph, set[str]()
        results = Counter(operation(node) for node in graph.nodes)
        for node in reversed(graph.nodes):
            alone = results[operation(node)] == 1 or operation(node) is None
            if node.output.dtype != "f32" or not alone or node.name in graph.output_values:
                continue
            wants = [self._wants(reader, node.name, found) for reader in graph.consumers[node.name]]
            if any(wants) and all(want or want is None for want in wants):
                found.add(node.name)
        return found

    def _wants(self, reader: Node, name: str, found: set[str]) -> bool | None:
        """Whether a reader takes 16 bits as they are; None where it may convert them, too, False where it may not."""
        if reader.name in self._products or (_moves(reader) and reader.name in found):
            return True
        if reader.name in found and name in reader.inputs[:ATTENDED] and self._attends(reader):
            return True
        if self._between and is_depthwise(self._graph, reader) and reader.inputs[1] != name:
            if self._ends_in(reader, found):
                return True
        return None if is_elementwise(reader.op) or has_trait(reader.op, Trait.FOLDS) else False

    def _attends(self, node: Node) -> bool:
        """Whether a node is attention whose queries, keys and values products with narrow factors have made."""
        if not self._between or node.op != ATTENTION or self._dtype != DType.bf16.value or node.attr("result") != 0:
            return False
        return node.attr("precision") in ("", "f32") and all(self._made(name) for name in node.inputs[:ATTENDED])

    def _made(self, name: str) -> bool:
        """Whether a value comes from such products, element by element: caches and inputs stay as they are."""
        node = self._graph.producers.get(name)
        if node is None or node.output.dtype != "f32":
            return False
        if node.name in self._products:
            return True
        if not (is_elementwise(node.op) or _moves(node) or has_trait(node.op, Trait.REREADS)):
            return False
        read = [x for x in node.inputs if x not in self._graph.constants]
        return bool(read) and all(self._made(x) for x in read)

    def _ends_in(self, node: Node, found: set[str]) -> bool:
        """Whether what is stored of a node, behind the operators that its kernel ends with, has 16 bits."""
        while node.name not in found:
            readers = self._graph.consumers[node.name]
            if len(readers) != 1 or not is_elementwise(readers[0].op) or node.name in self._graph.output_values:
                return False
            (node,) = readers
        return True


def _moves(node: Node) -> bool:
    return has_trait(node.op, Trait.MOVES)


def _fits(array: Array, dtype: DType) -> bool:
    least, most = float(array.min(initial=0.0)), float(array.max(initial=0.0))
    if not np.isfinite(least) or not np.isfinite(most):  # seldom, and slow: the finite ones have to be picked out
        finite = array[np.isfinite(array)]
        least, most = float(finite.min(initial=0.0)), float(finite.max(initial=0.0))
    return max(-least, most) <= _end(dtype)


def _end(dtype: DType) -> float:
    found: np.finfo[np.floating[Any]] = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    return float(found.max)
