"""A model with all of its data in hand, so that one file can hold it: external data is folded in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto

from autotune.errors import ModelError
from autotune.graph.frontend.source import Source, read_raw, tensors_of
from autotune.graph.frontend.weights import LARGE
from autotune.graph.ir import Array


def whole_source(source: Source) -> Source:
    """The same model, no tensor of which lies in another file; the data of large initializers is beside the message.

    Raises:
        ModelError: external data cannot be read.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(source.proto)
    weights = dict(source.weights)
    for place, tensor in enumerate(proto.graph.initializer):
        _fold(tensor, source.folder)
        if place not in weights and len(tensor.raw_data) >= LARGE:
            weights[place] = np.frombuffer(tensor.raw_data, np.uint8)
            tensor.ClearField("raw_data")
    for tensor in tensors_of(proto):
        _fold(tensor, source.folder)
    return Source(proto, None, weights)


def to_bytes(source: Source) -> bytes:
    """The message, the same bytes for the same model. Raises ModelError where it is too large without its weights."""
    try:
        data: bytes = source.proto.SerializeToString(deterministic=True)
    except ValueError as error:  # above 2 GiB
        raise ModelError(f"the model cannot be serialized: {error}") from error
    return data


def from_bytes(data: bytes, weights: dict[int, Array]) -> Source:
    """What `to_bytes` gave of a source, and its weights. Raises ValueError where it is none."""
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise ValueError("the model does not parse") from error
    return Source(proto, None, weights)


def _fold(tensor: TensorProto, folder: Path | None) -> None:
    """Put external data into a message."""
    if tensor.data_location == TensorProto.EXTERNAL:
        tensor.raw_data = read_raw(tensor, folder, f"tensor '{tensor.name}'")
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
