"""Reading an ONNX file or bytes into a ModelProto, and its tensors into arrays; nothing in it is trusted."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Union

import numpy as np
import onnx
from google.protobuf.message import DecodeError, EncodeError
from onnx import GraphProto, NodeProto, SparseTensorProto, TensorProto, numpy_helper

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.packed import unpacked
from autotune.graph.frontend.weights import without_weights
from autotune.graph.ir import Array
from autotune.tensor import DType
from autotune.tensor.declared import STRING, is_possible
from autotune.tensor.extents import MAX_RANK
from autotune.tensor.storage import MINIFLOATS, width

ModelSource = Union[str, "os.PathLike[str]", bytes, onnx.ModelProto]
"""A file, its contents, or the model itself."""

OLDEST_OPSET = 1
FIRST_WITH_IMPORTS = 3  # version of the IR
MAX_NAME = 200
MAX_SPARSE_ELEMENTS = 2**28

_NAMES = {
    "FLOAT": DType.f32, "DOUBLE": DType.f64, "FLOAT16": DType.f16, "BFLOAT16": DType.bf16, "BOOL": DType.bool,
    **{f"{word}{bits}": DType(f"{letter}{bits}")
       for word, letter in (("INT", "i"), ("UINT", "u")) for bits in (2, 4, 8, 16, 32, 64)},
    **{f"FLOAT{dtype.value[1:].upper()}": dtype for dtype in (*MINIFLOATS, DType.f8e8m0)},
}  # fmt: skip
_DTYPES: dict[int, DType] = {number: _NAMES[name] for name, number in TensorProto.DataType.items() if name in _NAMES}


COMPILED = b"ATMODEL"
"""How files of `autotune compile` begin (`runtime.artifact`)."""


@dataclass(frozen=True, slots=True)
class Source:
    """A model as it was read.

    Attributes:
        folder: holds its external data; None when there is none, or it came from no file.
        weights: the data, u8, of initializers that have none in the message, by their places among all.
    """

    proto: onnx.ModelProto
    folder: Path | None = None
    weights: Mapping[int, Array] = field(default_factory=dict)


def read_model(source: ModelSource | Source) -> Source:
    """Parse a model; what was read already stays as it is.

    Raises:
        ModelError: no such file, unreadable, not ONNX, truncated, or of an opset that is too old or too new.
    """
    if isinstance(source, Source):
        return source
    folder, where, weights = None, "the given bytes", dict[int, Array]()
    if isinstance(source, onnx.ModelProto):
        try:
            data, where = source.SerializeToString(), "the given model"
        except (EncodeError, ValueError) as error:  # above 2 GiB
            raise ModelError(f"the given model cannot be serialized ({error}): save it, and give the path") from error
    elif isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
    elif not isinstance(source, (str, os.PathLike)):
        raise ModelError(f"a model is a path, bytes or an onnx.ModelProto, not {type(source).__name__}")
    else:
        if not os.fspath(source):
            raise ModelError("the name of the model is empty")
        path = Path(source)
        where = f"'{path}'"
        try:
            if not (path.is_file() or path.is_dir()):
                path.stat()  # says why, unless it is a device or a pipe: those may never end
                raise ModelError(f"cannot read model {where}: it is no file")
            folder = path.parent
            data, weights = _read(path)
        except (OSError, ValueError) as error:  # ValueError: a name with a null byte
            raise ModelError(f"cannot read model {where}: {getattr(error, 'strerror', None) or error}") from error
    if data.startswith(COMPILED):
        raise ModelError(f"{where} is a compiled model: give the ONNX model it was made from")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(f"{where}: not an ONNX model, or truncated (export or download it again)") from error
    if not model.ir_version or not model.HasField("graph"):
        raise ModelError(f"{where}: not an ONNX model (it has no graph)")
    _check_text(model, where)
    return Source(model, folder if _has_external_data(model) else None, weights)


def _read(path: Path) -> tuple[bytes, dict[int, Array]]:
    """A file, large weights apart."""
    with path.open("rb") as file:
        found = without_weights(file, os.fstat(file.fileno()).st_size)
        if found is not None:
            return found
        file.seek(0)
        return file.read(), {}


def _check_text(model: onnx.ModelProto, where: str) -> None:
    """Refuse names that are not text: protobuf hands damaged strings over as bytes."""
    names: list[object] = [entry.domain for entry in model.opset_import]
    for function in model.functions:
        names += [function.name, function.domain, function.overload, *function.input, *function.output]
        names += [entry.domain for entry in function.opset_import]
        names += [attribute.name for attribute in function.attribute_proto]
    for part in _parts(model):
        if isinstance(part, GraphProto):
            names += [part.name, *(tensor.name for tensor in part.initializer)]
            for value in (*part.input, *part.output):
                names += [value.name, *(dim.dim_param for dim in value.type.tensor_type.shape.dim)]
            continue
        names += [part.op_type, part.domain, part.overload, part.name, *part.input, *part.output]
        for attribute in part.attribute:
            names += [attribute.name, attribute.ref_attr_name]
    if not all(isinstance(name, str) for name in names):
        raise ModelError(f"{where}: damaged, a name in it is not valid text (export or download the model again)")


def _has_external_data(model: onnx.ModelProto) -> bool:
    """Whether some tensor lies in another file."""
    return any(tensor.data_location == TensorProto.EXTERNAL for tensor in tensors_of(model))


def tensors_of(model: onnx.ModelProto) -> list[TensorProto]:
    """All tensors, those of nodes and of their bodies included."""
    sparse: list[SparseTensorProto] = []
    tensors: list[TensorProto] = []
    attributes = [attribute for function in model.functions for attribute in function.attribute_proto]
    for part in _parts(model):
        if isinstance(part, GraphProto):
            tensors += part.initializer
            sparse += part.sparse_initializer
        else:
            attributes += part.attribute
    for attribute in attributes:
        tensors += [attribute.t] if attribute.HasField("t") else attribute.tensors
        sparse += [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else attribute.sparse_tensors
    return tensors + [tensor for one in sparse for tensor in (one.values, one.indices)]


def _parts(model: onnx.ModelProto) -> Iterator[GraphProto | NodeProto]:
    """All graphs and nodes, those of functions and of nodes' bodies included."""
    graphs = [model.graph]
    nodes = [node for function in model.functions for node in function.node]
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            nodes += list(graph.node)
            yield graph
        else:
            node = nodes.pop()
            graphs += [attribute.g for attribute in node.attribute if attribute.HasField("g")]
            yield node


def opset_of(model: onnx.ModelProto) -> int:
    """The opset of the default domain, checked against what this frontend and the installed onnx know.

    A model that imports others only (XGBoost's exporter) means the newest by it, one from before there were imports
    the first.
    """
    newest = onnx.defs.onnx_opset_version()
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if not versions and not model.opset_import and model.ir_version >= FIRST_WITH_IMPORTS:
        raise ModelError("the model imports no opset at all; add one with onnx.helper.make_opsetid")
    versions = versions or [newest if model.opset_import else OLDEST_OPSET]
    if versions[0] < OLDEST_OPSET:
        raise UnsupportedError(
            f"the model uses opset {versions[0]}; opset {OLDEST_OPSET} or later is needed"
            " (convert it with onnx.version_converter)"
        )
    if versions[0] > newest:
        raise UnsupportedError(
            f"the model uses opset {versions[0]}; the installed onnx knows up to {newest}: upgrade onnx"
        )
    return int(versions[0])


def dtype_of(elem_type: int, where: str) -> DType:
    """The DType of an ONNX element type, or UnsupportedError."""
    dtype = _DTYPES.get(elem_type)
    if dtype is None:
        known = elem_type in TensorProto.DataType.values()
        name = TensorProto.DataType.Name(elem_type) if known else f"number {elem_type}"
        raise UnsupportedError(f"{where} has the unsupported element type {name}")
    return dtype


def tensor_dtype(elem_type: int, where: str) -> str:
    """The `DType` string of an ONNX element type, or STRING. Raises UnsupportedError for any other."""
    return STRING if elem_type == TensorProto.STRING else dtype_of(elem_type, where).value


def elem_type_of(dtype: str) -> int:
    """The ONNX element type of a DType."""
    return next(number for number, known in _DTYPES.items() if known.value == dtype)


def type_name(dtype: str) -> str:
    """What ONNX calls a tensor of a DType: tensor(float)."""
    return f"tensor({TensorProto.DataType.Name(elem_type_of(dtype)).lower()})"


def tensor_array(tensor: TensorProto, folder: Path | None, where: str, data: Array | None = None) -> Array:
    """The array of an initializer or attribute, by reference to its bytes where possible.

    Args:
        tensor: the ONNX tensor, inline or external.
        folder: where external data may live; None forbids it.
        where: names the tensor in messages.
        data: u8, the raw data where the message has it not.

    Raises:
        ModelError: the data does not fit the dims, or lies outside the model's folder.
    """
    dims = tuple(tensor.dims)
    if not is_possible(dims):
        raise ModelError(f"{where} has impossible dimensions {dims if len(dims) <= MAX_RANK else len(dims)}")
    if tensor.data_type == TensorProto.STRING:
        return _string_array(tensor, dims, where)
    dtype = dtype_of(tensor.data_type, where)
    nbytes = -(-math.prod(dims) * width(dtype) // 8)
    raw: bytes | Array
    if tensor.data_location == TensorProto.EXTERNAL:
        raw = _external_bytes(tensor, folder, nbytes, where)
    elif data is not None:
        raw = data
    elif tensor.HasField("raw_data"):
        raw = tensor.raw_data
    else:
        try:
            array = numpy_helper.to_array(tensor)
        except (ValueError, TypeError) as error:
            raise ModelError(f"{where}: its data does not fit its dimensions {dims}") from error
        return array
    if len(raw) != nbytes:
        raise ModelError(f"{where} has {len(raw)} bytes of data, its dimensions {dims} need {nbytes}")
    if width(dtype) < 8:
        return unpacked(raw, width(dtype), math.prod(dims)).view(dtype.numpy).reshape(dims)
    array = np.frombuffer(raw, dtype=dtype.numpy).reshape(dims)
    # A byte of a bool may be anything; generated code takes it for 0 or 1.
    return np.asarray(array.view(np.uint8) != 0) if dtype is DType.bool else array


def _string_array(tensor: TensorProto, dims: tuple[int, ...], where: str) -> Array:
    """Strings as an array of objects."""
    if len(tensor.string_data) != math.prod(dims):
        raise ModelError(f"{where} has {len(tensor.string_data)} strings, its dimensions are {dims}")
    array = np.empty(len(tensor.string_data), object)
    array[:] = [text.decode("utf-8", "replace") for text in tensor.string_data]
    return array.reshape(dims)


def sparse_array(sparse: onnx.SparseTensorProto, folder: Path | None, where: str) -> Array:
    """A sparse tensor, written out.

    Raises:
        ModelError: values, indices and dims do not fit together. UnsupportedError: written out it is very large.
    """
    values, indices = (tensor_array(t, folder, where) for t in (sparse.values, sparse.indices))
    dims = tuple(sparse.dims)
    if min(dims, default=0) < 0 or math.prod(dims) > MAX_SPARSE_ELEMENTS:
        raise UnsupportedError(f"{where} is sparse, of dimensions {dims}")
    places = indices if indices.ndim == 1 else None
    if indices.ndim == 2 and indices.shape[1] == len(dims) and indices.dtype == np.int64:
        inside = ((indices >= 0) & (indices < np.asarray(dims, np.int64))).all()
        places = np.ravel_multi_index(tuple(indices.T), dims) if inside and len(indices) else indices[:, 0]
        places = places if inside else None
    fits = places is not None and values.shape == places.shape and places.dtype == np.int64
    if places is None or not fits or (places.size and not 0 <= places.min() <= places.max() < math.prod(dims)):
        raise ModelError(f"{where}: the indices of a sparse tensor do not fit its values and dimensions {dims}")
    result = np.zeros(math.prod(dims), values.dtype)
    result[places] = values
    return result.reshape(dims)


def shortened(name: str) -> str:
    """A name for a message: one of thousands of letters is damage or attack."""
    return name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}..."


def read_raw(tensor: TensorProto, folder: Path | None, where: str) -> bytes:
    """External data of a tensor. Raises ModelError as `tensor_array`."""
    dims = tuple(tensor.dims)
    if not is_possible(dims):
        raise ModelError(f"{where} has impossible dimensions {dims if len(dims) <= MAX_RANK else len(dims)}")
    nbytes = -(-math.prod(dims) * width(dtype_of(tensor.data_type, where)) // 8)
    return _external_bytes(tensor, folder, nbytes, where)


def _external_bytes(tensor: TensorProto, folder: Path | None, nbytes: int, where: str) -> bytes:
    """Read external data from a file that really (after links) lies inside `folder`."""
    if folder is None:
        raise ModelError(f"{where} has external data: load the model by path, not from bytes")
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", nbytes))
    except ValueError as error:
        raise ModelError(f"{where}: external data has a malformed offset or length") from error
    path = Path(location)
    root = folder.resolve()
    try:
        real = (root / path).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a null byte
        raise ModelError(f"{where}: external data {shortened(location)!r} cannot be found: {error}") from error
    if not location or path.is_absolute() or ".." in path.parts or not real.is_relative_to(root):
        raise ModelError(
            f"{where}: external data '{shortened(location)}' is outside the model's folder '{folder}'; refused"
        )
    if offset < 0 or length != nbytes:
        raise ModelError(f"{where}: external data offset={offset} length={length} does not fit its {nbytes} bytes")
    try:
        found = real.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ModelError(f"{where}: cannot read external data '{real}': it is no file")
        raw = b""
        if offset + nbytes <= found.st_size:  # before any memory is taken
            with real.open("rb") as file:
                file.seek(offset)
                raw = file.read(nbytes)
    except OSError as error:
        name = shortened(str(real))
        raise ModelError(f"{where}: cannot read external data '{name}': {error.strerror or error}") from error
    if len(raw) != nbytes:
        raise ModelError(f"{where}: external data file '{real}' is too short (truncated copy?)")
    return raw
