"""Graph inputs and outputs: what an ONNX model declares of them, and what one program needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.source import tensor_dtype
from autotune.graph.ir import Array, Value
from autotune.tensor.declared import STRING, Dim, ModelInput, ModelOutput, bind_symbols, check_possible, listed
from autotune.tensor.dtype import DType


def declared_inputs(graph: onnx.GraphProto, initialised: set[str]) -> tuple[ModelInput, ...]:
    """The run-time inputs; those with an initializer are constants and left out.

    Raises:
        ModelError: impossible dimensions. UnsupportedError: an element type without a DType, or a map of tensors.
    """
    found = []
    for info in graph.input:
        if info.name in initialised:
            continue
        where = f"input '{info.name}'"
        if info.type.WhichOneof("value") == "map_type":
            found.append(_map_in(info, where))
            continue
        tensor, wraps = _tensor_in(info.type, where)
        dims = _declared_dims(tensor)
        check_possible(info.name, dims)
        found.append(ModelInput(info.name, tensor_dtype(tensor.elem_type, where), dims, wraps))
    return tuple(found)


def bind_open(
    graph: onnx.GraphProto, inputs: Sequence[ModelInput], extents: Mapping[str, int], denoted: Mapping[str, int]
) -> tuple[ModelInput, ...]:
    """The inputs with open dimensions bound.

    Args:
        extents: by symbol; a symbol is bound wherever it is.
        denoted: by denotation ("DATA_BATCH"), in any case of letters; binds the symbol that a dimension has.

    Raises:
        ModelError: a dimension is known, or bound otherwise, and has another extent.
    """
    wanted = {denotation.lower(): extent for denotation, extent in denoted.items() if denotation}
    types = {info.name: info.type for info in graph.input}
    symbols, found = dict(extents), []
    for declared in inputs:
        dims = list(declared.dims or ())
        tensor = None if declared.keys else _tensor_in(types[declared.name], f"input '{declared.name}'")[0]
        for n, dim in enumerate(() if tensor is None else tensor.shape.dim):
            extent = wanted.get(dim.denotation.lower())
            if extent is None:
                continue
            one = dims[n]
            known = symbols.get(one) if isinstance(one, str) else one
            if known not in (None, extent):
                raise ModelError(
                    f"input '{declared.name}': dimension {n} is {known}, and {dim.denotation} is to be {extent}"
                )
            if isinstance(one, str):
                symbols[one] = extent
            else:
                dims[n] = extent
        found.append(replace(declared, dims=declared.dims and tuple(dims)))
    return bind_symbols(found, symbols)


def declared_outputs(graph: onnx.GraphProto) -> dict[str, ModelOutput]:
    """The outputs by name, in order. Raises ModelError for none at all, or one that is listed twice."""
    outputs: dict[str, ModelOutput] = {}
    if not graph.output:
        raise ModelError("the model has no outputs")
    for info in graph.output:
        if info.name in outputs:
            raise ModelError(f"output '{info.name}' is listed twice")
        if info.type.WhichOneof("value") is None or info.type.sequence_type.elem_type.HasField("map_type"):
            outputs[info.name] = ModelOutput(info.name, None, None)  # of classes' scores: what ZipMap makes
            continue
        where = f"output '{info.name}'"
        tensor, wraps = _tensor_in(info.type, where)
        dtype = tensor_dtype(tensor.elem_type, where) if tensor.elem_type else None
        outputs[info.name] = ModelOutput(info.name, dtype, _declared_dims(tensor), wraps)
    return outputs


def declared_type(info: onnx.ValueInfoProto) -> tuple[str | None, tuple[Dim, ...] | None]:
    """dtype and dimensions of a tensor of numbers that a subgraph declares; None where it does not."""
    tensor = info.type.tensor_type
    known = info.type.HasField("tensor_type") and tensor.elem_type and tensor.elem_type != onnx.TensorProto.STRING
    return (tensor_dtype(tensor.elem_type, f"'{info.name}'"), _declared_dims(tensor)) if known else (None, None)


def _tensor_in(declared: onnx.TypeProto, where: str) -> tuple[onnx.TypeProto.Tensor, tuple[str, ...]]:
    """The tensors that a type is made of, and what is around them. Raises UnsupportedError where there are none."""
    wraps: list[str] = []
    kind = declared.WhichOneof("value")
    while kind in ("sequence_type", "optional_type") and len(wraps) < 3:
        wraps.append("seq" if kind == "sequence_type" else "optional")
        declared = getattr(declared, kind).elem_type
        kind = declared.WhichOneof("value")
    if kind != "tensor_type" or tuple(wraps) not in ((), ("seq",), ("optional",), ("optional", "seq")):
        raise UnsupportedError(f"{where} is no tensor, and no sequence of tensors ({kind or 'no type'})")
    return declared.tensor_type, tuple(wraps)


def _map_in(info: onnx.ValueInfoProto, where: str) -> ModelInput:
    """A map from strings or integers to strings or numbers."""
    declared = info.type.map_type
    value = declared.value_type.tensor_type
    keys = tensor_dtype(declared.key_type, f"a key of {where}")
    if keys not in (STRING, "i64") or not declared.value_type.HasField("tensor_type") or value.shape.dim:
        raise UnsupportedError(f"{where} is a map of {keys} keys, or of values that are no scalars")
    return ModelInput(info.name, tensor_dtype(value.elem_type, f"a value of {where}"), (), ("map",), keys)


def fix_inputs(inputs: Sequence[ModelInput], fixed: Mapping[str, Array]) -> tuple[ModelInput, ...]:
    """The inputs that remain when those in `fixed`, whose shapes are bound, are constants.

    Raises:
        ModelError: a value has another dtype than its input.
    """
    for declared in inputs:
        array = fixed.get(declared.name)
        if array is not None and DType(declared.dtype).numpy != array.dtype:
            raise ModelError(
                f"input '{declared.name}' is {declared.dtype}, and the value to fix it to {array.dtype}: convert it"
            )
    return tuple(declared for declared in inputs if declared.name not in fixed)


def known_types(inputs: Sequence[ModelInput]) -> dict[str, Value]:
    """The types of those inputs that are tensors of numbers whose every dimension is known."""
    return {i.name: Value(i.name, i.dtype, i.shape) for i in inputs if i.is_tensor and i.shape is not None}


def require_static(inputs: Sequence[ModelInput]) -> None:
    """Raises ModelError for the first input with an open dimension, saying what to pass."""
    for declared in inputs:
        name, dims = declared.name, declared.dims
        if not declared.is_tensor:
            raise UnsupportedError(
                f"input '{name}' is no tensor of numbers, which one program takes: run the model by InferenceSession"
            )
        if dims is None:
            raise ModelError(
                f"input '{name}' has no declared shape: pass --shape {name}=1,3,224,224 (its real dimensions)"
            )
        if declared.shape is None:
            example = ",".join(str(dim) if isinstance(dim, int) else "1" for dim in dims)
            raise ModelError(f"input '{name}' has open dimensions ({listed(dims)}): pass --shape {name}={example}")


def _declared_dims(tensor: onnx.TypeProto.Tensor) -> tuple[Dim, ...] | None:
    if not tensor.HasField("shape"):
        return None
    dims: list[Dim] = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value"):
            dims.append(None if dim.dim_value == -1 else dim.dim_value)  # Paddle's exporter: an open one is -1
        else:
            dims.append(dim.dim_param or None)
    return tuple(dims)
