"""Half floats computed in f32: values of 16 bits lie so where they come from and go to, and arithmetic is that of f32.

requires: a verified graph.
ensures: nothing computes in 16-bit floats but what a last bit decides, and what moves values that lie so.
A value may be rounded less often than the model says, never more often; every kernel is that of an f32 model.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from autotune.graph.ir import Graph, Node
from autotune.graph.partition import HALVES
from autotune.graph.passes.reduce_strength import STEPS
from autotune.graph.passes.sweep import Sweep
from autotune.ops.registry import has_trait
from autotune.ops.traits import Trait
from autotune.ops.workload import AttrValue
from autotune.tensor import DType

_ROUNDED = STEPS | {"bit_cast", "layout", "max_pool_index", "top_k"}
"""Operators that see their operands as the model has them; so do all whose result is no float."""


def widen_halves(graph: Graph) -> Graph:
    """`relu(conv(x, w))` of f16 --> `cast(relu(conv(cast(x), w)))`, w an f32 constant."""
    if not any(_computes(graph, node) for node in graph.nodes):
        return graph
    widening = _Widening(graph)
    for node in widening.sweep:
        widening.visit(node)
    return replace(widening.result(), own=_own(graph))


def _own(graph: Graph) -> str:
    """The half float of most products; f32 where there is none."""
    products = [node for node in graph.nodes if has_trait(node.op, Trait.LEADS_LAYOUT)]
    found = Counter(dtype for node in products for dtype in {graph.values[name].dtype for name in node.inputs} & HALVES)
    return found.most_common(1)[0][0] if found else graph.own


def _computes(graph: Graph, node: Node) -> bool:
    """Whether it computes in 16 bits what f32 could do."""
    if node.op == "cast" or has_trait(node.op, Trait.MOVES) or _is_rounded(node):
        return False
    return any(graph.values[name].dtype in HALVES for name in (*node.inputs, node.name))


def _is_rounded(node: Node) -> bool:
    return node.op in _ROUNDED or not DType(node.output.dtype).is_float


class _Widening:
    """A sweep after which a half float of the model is an f32 value, or of 16 bits as before, or both."""

    def __init__(self, graph: Graph) -> None:
        self.sweep = Sweep(graph)
        self._graph = graph
        self._forms: dict[tuple[str, str], str] = {}

    def visit(self, node: Node) -> None:
        """Put what computes the same in f32 in the place of a node."""
        own = self._graph.producers[node.name]
        dtypes = [self._graph.values[name].dtype for name in own.inputs]
        if HALVES.isdisjoint((*dtypes, node.output.dtype)):
            self.sweep.keep(node)
        elif node.op == "cast" and _is_float(dtypes[0]) and _is_float(node.output.dtype):
            to = _wide(node.output.dtype)
            (source,) = self._wide(node, dtypes)
            self.sweep.replace(node, self._form(node, source, to))
        elif _is_rounded(node) or (has_trait(node.op, Trait.MOVES) and self._lie_narrow(node, dtypes)):
            operands = [self._form(node, name, dtype) for name, dtype in zip(node.inputs, dtypes)]
            self.sweep.replace(node, self.sweep.emit(node, node.op, operands, **dict(node.attrs)))
        else:
            attrs = {name: _wide_attr(value) for name, value in node.attrs}
            self.sweep.replace(node, self.sweep.emit(node, node.op, self._wide(node, dtypes), **attrs))

    def result(self) -> Graph:
        """The graph, whose outputs have the model's dtypes."""
        for value in dict.fromkeys(output.value for output in self._graph.outputs):
            node, dtype = self._graph.producers.get(value), self._graph.values[value].dtype
            if node is not None and dtype in HALVES:
                self.sweep.replace(node, self._form(node, self.sweep.current(value), dtype))
        return self.sweep.result()

    def _wide(self, node: Node, dtypes: list[str]) -> list[str]:
        return [self._form(node, name, _wide(dtype)) for name, dtype in zip(node.inputs, dtypes)]

    def _lie_narrow(self, node: Node, dtypes: list[str]) -> bool:
        """Whether most of what is moved lies there in 16 bits, and it would be more work to convert all of it first.

        So it is for a few rows of a table, and where something is joined to what a model remembers.
        """
        values = [self.sweep.values[name] for name, dtype in zip(node.inputs, dtypes) if dtype in HALVES]
        everything = sum(value.size for value in values)
        narrow = sum(value.size for value in values if value.dtype in HALVES)
        return 2 * narrow >= everything and (node.op == "concat" or node.output.size < everything)

    def _form(self, node: Node, name: str, dtype: str) -> str:
        """A value in a dtype, made for a reader of it where it is not there yet."""
        if self.sweep.values[name].dtype == dtype:
            return name
        if (name, dtype) not in self._forms:
            array = self.sweep.array(name)
            if array is None:
                made = self.sweep.emit(node, "cast", (name,), to=dtype)
            else:
                made = self.sweep.constant(array.astype(DType(dtype).numpy), name)
            self._forms[name, dtype] = made
        return self._forms[name, dtype]


def _is_float(dtype: str) -> bool:
    return DType(dtype).is_float


def _wide(dtype: str) -> str:
    return "f32" if dtype in HALVES else dtype


def _wide_attr(value: AttrValue) -> AttrValue:
    """Attributes that name the dtype computed in, or given."""
    return "f32" if value in ("f16", "bf16") else value
