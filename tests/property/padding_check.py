"""One property case of padding: does a model whose open dimensions are padded give what it gives without?

Models are made of any operators that can be applied to what there is, extents and what follows from them included, so
most are refused: of the others, each says what some rule allows.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.graph import open_model
from autotune.graph.frontend.buckets import (
    CannotPad,
    counted_from_zero,
    kept_apart,
    padded_model,
    padding_of,
    valid_name,
)
from autotune.graph.frontend.model import OnnxModel

Array = np.ndarray[Any, Any]
REFUSED = "refused: "
OPSET, MOST_NODES, TRIES, MOST_ELEMENTS = 18, 14, 120, 4000
LENGTHS = ((5, 9), (3, 4), (8, 16), (1, 3))
"""Of an open dimension, without and with padding."""

_rng = np.random.default_rng(0)
CONSTANTS: Mapping[str, Array] = {
    "0": np.asarray(0), "1": np.asarray(1), "2": np.asarray(2), "half": np.asarray(0.5, np.float32),
    **{str(list(n)): np.asarray(n) for n in ((0,), (1,), (2,), (-1,), (0, 1), (1, 1), (1, 1, 1), (-1, 8), (0, -1),
                                             (0, 0, 2, 4), (2, -1, 8), (0, 2, 1), (1, 2, 1))},
    "end": np.asarray([2**40]), "square": _rng.standard_normal((8, 8)).astype(np.float32),
    "table": _rng.standard_normal((32, 8)).astype(np.float32),
    "row": _rng.standard_normal((1, 1, 8)).astype(np.float32), "vector": _rng.standard_normal(8).astype(np.float32),
}  # fmt: skip
UNARY = ("Abs", "Exp", "Floor", "Identity", "IsNaN", "Neg", "Not", "Reciprocal", "Relu", "Sigmoid", "Sqrt", "Tanh")
BINARY = ("Add", "And", "Div", "Equal", "GreaterOrEqual", "Less", "Max", "Min", "Mod", "Mul", "Pow", "Sub")
REDUCTIONS = ("ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")
SIZED = ("ConstantOfShape", "Expand", "Range", "Tile")
ANY = "any"
Form = tuple[Sequence[str], Sequence[Sequence[str]], Mapping[str, Sequence[Any]]]
FORMS: Sequence[Form] = (
    (UNARY, [[ANY]], {}),
    (BINARY, [[ANY], [ANY, ANY, "half", "1", "row", "vector", "[1]"]], {}),
    (BINARY, [[ANY], [ANY, ANY, "half", "1", "row", "vector", "[1]"]], {}),
    (["MatMul"], [[ANY], [ANY, "square"]], {}),
    (["Softmax", "LogSoftmax"], [[ANY]], {"axis": (-1, 1, 0)}),
    (REDUCTIONS, [[ANY], ["[0]", "[1]", "[-1]", "[0, 1]"]], {"keepdims": (0, 1)}),
    (["ArgMax", "ArgMin"], [[ANY]], {"axis": (0, 1, -1), "keepdims": (0, 1)}),
    (["Transpose"], [[ANY]], {"perm": ([0, 2, 1], [2, 0, 1], [1, 0, 2], [1, 0], [0])}),
    (["Reshape"], [[ANY], [ANY, "[-1]", "[-1, 8]", "[0, -1]", "[0, 0, 2, 4]", "[2, -1, 8]", "[1, 1]"]], {}),
    (["Reshape"], [[ANY], ["[-1]", "[-1, 8]"]], {}),
    (["Gemm"], [[ANY], ["square"], ["vector"]], {"transB": (0, 1)}),
    (["Unsqueeze", "Squeeze"], [[ANY], ["[0]", "[1]", "[-1]"]], {}),
    (["Expand"], [[ANY], [ANY, "[1, 1, 1]"]], {}),
    (["Tile"], [[ANY], [ANY, "[1]", "[2]", "[1, 1]", "[1, 1, 1]", "[1, 2, 1]"]], {}),
    (["Concat"], [[ANY], [ANY, "[1]", "[2]", "row", "[-1]"]], {"axis": (0, 1, -1)}),
    (["Slice"], [[ANY, ANY, "table"], [ANY, "[0]", "[1]"], [ANY, "end", "[2]", "[-1]"], ["[0]", "[1]", "[-1]"]], {}),
    (["Gather"], [[ANY, "table"], [ANY, "0", "1", "[0]", "[0, 2, 1]"]], {"axis": (0, 1)}),
    (["GatherND"], [[ANY, "table"], [ANY]], {}),
    (["Shape"], [[ANY]], {"start": (0, 1, 2), "end": (1, 2, 3)}),
    (["Shape"], [[ANY]], {}),
    (["Range"], [["0", "0", ANY], [ANY], ["1"]], {}),
    (["Range"], [[ANY], [ANY], ["1"]], {}),
    (["Cast"], [[ANY]], {"to": (TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL)}),
    (["Where"], [[ANY], [ANY], [ANY, "half", "0"]], {}),
    (["CumSum"], [[ANY], ["0", "1", "2"]], {"exclusive": (0, 1)}),
    (["Trilu"], [[ANY]], {"upper": (0, 1)}),
    (["ConstantOfShape"], [[ANY]], {"value": [numpy_helper.from_array(np.asarray([n])) for n in (0, 1, 0.5)]}),
    (["ScatterND"], [[ANY], [ANY], [ANY]], {}),
    (["GatherElements"], [[ANY], [ANY]], {"axis": (0, 1, -1)}),
    (["ScatterElements"], [[ANY], [ANY], [ANY]], {"axis": (0, 1, -1)}),
    (["Flatten"], [[ANY]], {"axis": (0, 1, 2)}),
    (["TopK"], [[ANY], ["[1]", "[2]", ANY]], {"axis": (0, 1, -1)}),
    (["LayerNormalization"], [[ANY], ["vector"]], {}),
    (["Split"], [[ANY]], {"axis": (0, 1, -1), "num_outputs": (2,)}),
)


def run(seed: int) -> str | None:
    """Case `seed`: None when right, "refused: ..." where nothing is padded, else what is wrong."""
    chance = random.Random(seed)
    sizes = {symbol: chance.choice(LENGTHS) for symbol in ("length", "more")}
    dims: dict[str, Sequence[str | int]] = {
        "x": ["batch", "length", 8], "ids": ["batch", "length"], "z": ["more", 8]
    }  # fmt: skip
    extents = {"batch": 2, **{symbol: size for symbol, (size, _) in sizes.items()}}
    shapes = {name: [extents.get(str(d), 8) for d in dims[name]] for name in dims}
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {
        name: rng.integers(0, 8, shapes[name]) if name == "ids" else rng.standard_normal(shapes[name], np.float32)
        for name in dims
    }
    nodes, values = _nodes(chance, feeds)
    outputs = [name for node in nodes[-3:] for name in node.output]
    inputs = [helper.make_tensor_value_info(name, _code(feeds[name]), dims[name]) for name in dims]
    paddings, padded = [], None
    try:
        padded = open_model(_model(nodes, inputs, outputs, CONSTANTS).SerializeToString())
        padded = counted_from_zero(padded, 0) if chance.random() < 0.5 else padded
    except CannotPad as error:
        return f"{REFUSED}{error}"
    told = " ".join(f"{n.op_type}({', '.join(n.input)}) > {', '.join(n.output)};" for n in nodes)
    if chance.random() < 0.7:
        padded = kept_apart(padded, *chance.sample(list(sizes), 2))
        found = _evaluated(_written(padded, outputs), {i.name: feeds[i.name] for i in padded.inputs})
        for name, array in zip(outputs, found, strict=True):
            if not _same(array, values[name]):
                return f"{name} with dimensions kept apart: {told}"
    refused = ""
    for symbol in chance.sample(list(sizes), 2):
        try:
            paddings.append(padding_of(padded, symbol))
            padded = padded_model(padded, paddings[-1])
        except CannotPad as error:
            refused = str(error)
    if not paddings:
        return f"{REFUSED}{refused}"
    names = [declared.name for declared in padded.inputs]
    wide = {padding.symbol: sizes[padding.symbol][1] for padding in paddings}
    given: dict[str, Array] = {
        name: np.pad(a, [(0, wide.get(str(d), n) - n) for d, n in zip(dims[name], a.shape)])
        for name, a in feeds.items()
    }
    given.update({valid_name(symbol): np.asarray(sizes[symbol][0]) for symbol in wide})
    try:
        found = _evaluated(_written(padded, outputs), {name: given[name] for name in names})
    except Exception as error:  # noqa: BLE001  an index that is in none of the padding: such runs are not padded
        return f"{REFUSED}{error}"
    for name, array in zip(outputs, found, strict=True):
        for padding in paddings:
            for axis in padding.outputs[name]:
                array = array.take(range(min(extents[padding.symbol], array.shape[axis])), axis)
        if not _same(array, values[name]):
            return f"{name} {list(array.shape)} of {told}"
    return None


def _same(found: Array, right: Array) -> bool:
    return found.shape == right.shape and np.allclose(
        found.astype(float), right.astype(float), rtol=1e-4, atol=1e-5, equal_nan=True
    )


def _written(model: OnnxModel, outputs: Sequence[str]) -> onnx.ModelProto:
    """The model that a table of nodes is."""
    inputs = [helper.make_empty_tensor_value_info(declared.name) for declared in model.inputs]
    return _model([entry.proto for entry in model.nodes], inputs, outputs, model.initializers)


def _nodes(chance: random.Random, feeds: Mapping[str, Array]) -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    """Random nodes that the reference evaluates, and all values."""
    values = {**feeds, **CONSTANTS}
    names, nodes = ["x", "x", "ids", "z"], list[onnx.NodeProto]()
    count = chance.randint(4, MOST_NODES)
    for _ in range(TRIES):
        ops, places, attributes = chance.choice(FORMS)
        op, chosen = chance.choice(ops), [chance.choice(place) for place in places]
        reads = [chance.choice(names) if name == ANY else name for name in chosen]
        writes = [f"v{len(nodes)}.{n}" for n in range(2 if op in ("TopK", "Split") else 1)]
        node = helper.make_node(op, reads, writes, **{name: chance.choice(of) for name, of in attributes.items()})
        found = _tried(node, {name: values[name] for name in reads})
        if found is not None:
            values.update(zip(writes, found))
            nodes.append(node)
            names += 3 * writes  # what is new is read more often than the inputs
        if len(nodes) == count:
            break
    return nodes, values


def _tried(node: onnx.NodeProto, feeds: Mapping[str, Array]) -> list[Array] | None:
    """What a node gives; None where it cannot be applied, or gives too much, or nothing."""
    whole = [a for a in feeds.values() if a.dtype.kind == "i"]
    large = any(np.abs(a.astype(float)).max(initial=0) > MOST_ELEMENTS for a in whole)
    if large and (node.op_type in SIZED or node.op_type == "GatherElements"):
        return None  # the reference brings an index into range by adding the extent, again and again
    if node.op_type in SIZED and any(np.abs(np.prod(a, dtype=float)) > MOST_ELEMENTS for a in whole):
        return None
    if node.op_type == "Gemm" and any(a.dtype.kind != "f" for a in feeds.values()):
        return None  # which the reference multiplies, unlike ONNX
    inputs = [helper.make_tensor_value_info(name, _code(array), None) for name, array in feeds.items()]
    try:
        found = _evaluated(_model([node], inputs, list(node.output), {}), feeds)
    except Exception:  # noqa: BLE001  whatever the reference says of nonsense
        return None
    usual = all(0 < a.size <= MOST_ELEMENTS and a.ndim <= 5 and a.dtype.char in "fl?" for a in found)
    return found if usual else None


def _evaluated(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    with np.errstate(all="ignore"):
        return [np.asarray(array) for array in ReferenceEvaluator(model).run(None, dict(feeds))]


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    tensors: Mapping[str, Array],
) -> onnx.ModelProto:
    given = [numpy_helper.from_array(np.asarray(array), name) for name, array in tensors.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(list(nodes), "case", list(inputs), results, given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def _code(array: Array) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))
