"""dtypes and dimensions of a model's values, as far as ONNX's own inference knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Union

import numpy as np
import onnx
from onnx import helper

from autotune.graph.frontend.buckets.at import SHAPE_ELEMENTS
from autotune.graph.frontend.buckets.facts import CannotPad, Extent
from autotune.graph.frontend.cache_joints import OWN
from autotune.graph.frontend.model import OnnxModel
from autotune.graph.frontend.node import MICROSOFT
from autotune.graph.frontend.source import elem_type_of
from autotune.tensor.dtype import DType

_ALIKE = {
    (MICROSOFT, op)
    for op in ("BiasGelu", "FastGelu", "Gelu", "QuickGelu", "RotaryEmbedding", "SkipLayerNormalization",
               "SkipSimplifiedLayerNormalization")
}  # fmt: skip
"""Operators whose first result is like their first input."""


_OF_BYTES = {(MICROSOFT, "DynamicQuantizeMatMul"), (MICROSOFT, "MatMulIntegerToFloat")}
"""Products of bytes with results in f32."""


Types = Mapping[str, tuple[str | None, Union[tuple[Extent, ...], None]]]
"""dtype and dimensions of values by their names."""


def inferred_types(model: OnnxModel) -> Types:
    """dtype and dimensions of values, as far as ONNX's own inference knows them."""
    inputs, tensors = [], []
    for declared in model.inputs:
        if declared.is_tensor:
            inputs.append(helper.make_tensor_value_info(declared.name, elem_type_of(declared.dtype), declared.dims))
    for name, array in model.initializers.items():
        if array.dtype == object:
            continue
        if array.size <= SHAPE_ELEMENTS and array.dtype.kind in "iufb":
            tensors.append(onnx.numpy_helper.from_array(np.asarray(array, order="C"), name))
        else:
            kind = elem_type_of(DType.of(array.dtype).value)
            inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
    outputs = [helper.make_empty_tensor_value_info(name) for name in model.outputs]
    nodes = [typed for entry in model.nodes for typed in _typed(entry.proto)]
    graph = helper.make_graph(nodes, "model", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", max((entry.opset for entry in model.nodes), default=1))]
    domains = {node.domain for node in nodes} - {"", "ai.onnx"}
    opsets += [helper.make_opsetid(domain, 1) for domain in domains]
    try:
        found = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets), data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError) as error:
        raise CannotPad(f"its shapes cannot be inferred: {' '.join(str(error).split())}") from error
    known: dict[str, tuple[str | None, tuple[Extent, ...] | None]] = {}
    for info in (*found.graph.value_info, *found.graph.input, *found.graph.output):
        tensor = info.type.tensor_type
        if not info.type.HasField("tensor_type"):
            continue
        dims = None
        if tensor.HasField("shape"):
            dims = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim)
        known[info.name] = (_dtype(tensor.elem_type), dims)
    return known


def _typed(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Nodes of the same types: onnx has no schema of operators of other domains, and opsets of models that grow caches
    may not have the one that writes to them."""
    if (node.domain, node.op_type) in _OF_BYTES:
        casts = [helper.make_node("Cast", [n], [f"{node.output[0]}/real{k}"], to=onnx.TensorProto.FLOAT)
                 for k, n in enumerate(node.input[:2])]  # fmt: skip
        return [*casts, helper.make_node("MatMul", [cast.output[0] for cast in casts], node.output)]
    if node.op_type != "TensorScatter" and node.domain != OWN and (node.domain, node.op_type) not in _ALIKE:
        return [node]
    return [helper.make_node("Identity", node.input[:1], node.output[:1])]


def _dtype(elem_type: int) -> str | None:
    try:
        return DType.of(helper.tensor_dtype_to_np_dtype(elem_type)).value
    except (KeyError, ValueError, TypeError):
        return None
