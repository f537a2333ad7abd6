"""OnnxModel: a parsed model as a table of nodes in topological order, which grows when a node is expanded."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from autotune.errors import ModelError
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.entry import Entry, sorted_entries
from autotune.graph.frontend.expand import MAX_NODES, Functions, Node, branch_body, functions_of, inlined
from autotune.graph.frontend.inputs import bind_open, declared_inputs, declared_outputs, fix_inputs
from autotune.graph.frontend.learned.labels import with_numbers
from autotune.graph.frontend.masked import with_masked_selects
from autotune.graph.frontend.rewritten import as_onnx
from autotune.graph.frontend.source import Source, opset_of, sparse_array, tensor_array
from autotune.graph.frontend.unroll import loop_steps, map_steps, scan_steps
from autotune.graph.ir import Array, Value
from autotune.metadata import ModelMetadata
from autotune.tensor.declared import ModelInput, ModelOutput, bind_shapes, check_given


@dataclass(frozen=True)
class OnnxModel:
    """A model whose names are checked: everything read is defined, nothing twice, no cycles.

    Attributes:
        folder: where its external data may live; None forbids external data.
        outputs: by name, in order.
        nodes: the table. Parts of a model refer to nodes by their place in it.
        metadata: what the file says about the model.
    """

    name: str
    folder: Path | None
    inputs: tuple[ModelInput, ...]
    outputs: Mapping[str, ModelOutput]
    initializers: dict[str, Array]
    nodes: list[Entry]
    functions: Functions = field(default_factory=dict)
    metadata: ModelMetadata = field(default=ModelMetadata())
    _expanded: dict[tuple[int, Hashable], tuple[int, ...]] = field(default_factory=dict)

    def expand(self, index: int, form: Hashable, nodes: Callable[[str], Iterable[Node]]) -> tuple[int, ...]:
        """Write a node out: places of the nodes that it stands for, in topological order.

        Args:
            form: what its body depends on; the same form is written out once.
            nodes: gives the body for a prefix of its names.
        """
        key = (index, form)
        if key not in self._expanded:
            proto = self.nodes[index].proto
            name = proto.name or next(iter(proto.output), proto.op_type)
            prefix = f"{name.rpartition('/')[2]}.{len(self._expanded)}/"  # its own name alone: names stay short
            entries = [Entry.of(proto, opset) for proto, opset in inlined(nodes(prefix), self.functions, prefix)]
            if len(self.nodes) + len(entries) > MAX_NODES:
                raise ModelError(f"the model is more than {MAX_NODES} nodes when its functions are written out")
            written = {name for entry in entries for name in entry.writes}
            outside = {name for entry in entries for name in entry.reads}.difference(written)
            start = len(self.nodes)
            self.nodes.extend(sorted_entries(entries, outside))
            self._expanded[key] = tuple(range(start, len(self.nodes)))
        return self._expanded[key]

    def branch(self, index: int, condition: bool) -> tuple[int, ...]:
        """The nodes of a branch of the If at `index`."""
        entry, name = self.nodes[index], "then_branch" if condition else "else_branch"
        return self._with_tensors(index, name, lambda prefix: branch_body(entry.proto, name, entry.opset, prefix))

    def scan(self, index: int, inputs: Sequence[Value | None]) -> tuple[int, ...]:
        """The steps of the Scan at `index` for inputs of these types."""
        node, form = self.attributes(index), tuple(v and v.shape for v in inputs)
        return self._with_tensors(index, form, lambda prefix: scan_steps(node, inputs, prefix))

    def loop(self, index: int, steps: int) -> tuple[int, ...]:
        """The steps of the Loop at `index`."""
        return self._with_tensors(index, steps, lambda prefix: loop_steps(self.attributes(index), steps, prefix))

    def map(self, index: int, lists: Mapping[int, int]) -> tuple[int, ...]:
        """The steps of the SequenceMap at `index`; `lists` has the lengths of the inputs that are sequences."""
        node, form = self.attributes(index), tuple(lists.items())
        return self._with_tensors(index, form, lambda prefix: map_steps(node, lists, prefix))

    def attributes(self, index: int) -> NodeAttributes:
        entry = self.nodes[index]
        return NodeAttributes(entry.proto, entry.opset, self.folder)

    def _with_tensors(
        self, index: int, form: Hashable, make: Callable[[str], tuple[list[Node], list[onnx.TensorProto]]]
    ) -> tuple[int, ...]:
        def body(prefix: str) -> Iterable[Node]:
            nodes, tensors = make(prefix)
            for tensor in tensors:
                self.initializers[tensor.name] = tensor_array(tensor, self.folder, f"initializer '{tensor.name}'")
            return nodes

        return self.expand(index, form, body)


def parse_model(
    source: Source,
    shapes: Mapping[str, Sequence[int]],
    fixed: Mapping[str, Array] | None = None,
    extents: Mapping[str, int] | None = None,
    denoted: Mapping[str, int] | None = None,
) -> OnnxModel:
    """
    Args:
        shapes: dimensions of inputs by name.
        fixed: inputs that are to be constants, with their values.
        extents, denoted: open dimensions by symbol and by denotation; those that no input has are passed over.

    Raises:
        ModelError: the model is inconsistent, or `shapes` or `fixed` do not fit it.
        UnsupportedError: an element type, or an opset, that this compiler has not.
    """
    check_given(shapes)
    model, folder = source.proto, source.folder
    opset, graph = opset_of(model), model.graph
    initializers: dict[str, Array] = {}
    for place, tensor in enumerate(graph.initializer):
        if tensor.name in initializers:
            raise ModelError(f"'{tensor.name}' is defined twice in the model")
        data = source.weights.get(place)
        initializers[tensor.name] = tensor_array(tensor, folder, f"initializer '{tensor.name}'", data)
    for sparse in graph.sparse_initializer:
        name = sparse.values.name
        if name in initializers:
            raise ModelError(f"'{name}' is defined twice in the model")
        initializers[name] = sparse_array(sparse, folder, f"initializer '{name}'")
    fixed = fixed or {}
    bound = {name: array.shape for name, array in fixed.items()}
    inputs = bind_open(graph, declared_inputs(graph, set(initializers)), extents or {}, denoted or {})
    inputs = fix_inputs(bind_shapes(inputs, {**shapes, **bound}), fixed)
    initializers.update(fixed)
    defined = set(initializers)
    for declared in inputs:
        if declared.name in defined:
            raise ModelError(f"'{declared.name}' is defined twice in the model")
        defined.add(declared.name)
    functions = functions_of(model)
    protos = as_onnx(with_numbers(inlined(((proto, opset) for proto in graph.node), functions)))
    outputs = declared_outputs(graph)
    entries = with_masked_selects([Entry.of(proto, version) for proto, version in protos], outputs)
    nodes = sorted_entries(entries, defined)
    written = {name for entry in nodes for name in entry.writes}
    for name in outputs:
        if name not in defined and name not in written:
            raise ModelError(f"output '{name}' is defined by nothing")
    return OnnxModel(graph.name or "model", folder, inputs, outputs, initializers, nodes, functions, _metadata(model))


def _metadata(model: onnx.ModelProto) -> ModelMetadata:
    custom = {entry.key: entry.value for entry in model.metadata_props}
    return ModelMetadata(
        model.producer_name, model.graph.name, model.domain, model.doc_string, model.graph.doc_string,
        model.model_version, custom,
    )  # fmt: skip
