"""OrtValue: what ONNX Runtime hands around. Here it is a NumPy array, shared and never copied, or what holds some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Union, cast

import numpy as np
import numpy.typing as npt

from autotune.api.node_arg import tensor_type
from autotune.api.ort_memory import CPU_DEVICE, OrtMemoryInfo, require_cpu
from autotune.api.sparse_tensor import SparseTensor
from autotune.errors import InputError
from autotune.runtime.executor import Array
from autotune.tensor.dtype import DType

_NUMBERS = {  # dtype -> its number in ONNX
    "f32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "bool": 9, "f16": 10, "f64": 11, "u32": 12,
    "u64": 13, "bf16": 16, "f8e4m3fn": 17, "f8e4m3fnuz": 18, "f8e5m2": 19, "f8e5m2fnuz": 20, "u4": 21, "i4": 22,
    "f4e2m1": 23, "f8e8m0": 24, "u2": 25, "i2": 26, "f6e2m3": 27, "f6e3m2": 28,
}  # fmt: skip
_STRINGS = 8  # their number in ONNX
_TEXTS = "OUST"  # NumPy's kinds of dtypes that hold texts

Content = Union[Array, Sequence[object], Mapping[object, object], SparseTensor, None]
"""A tensor (one of strings has elements of dtype object), a sequence, a map, a sparse tensor, an empty optional."""


class OrtValue:
    """A tensor in main memory; or a sequence, a map, a sparse tensor or an empty optional, as a session hands them out.

    Args:
        content: what it holds, by reference.
    """

    def __init__(self, content: Content) -> None:
        self._content = content

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Array, /, device_type: str = CPU_DEVICE, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """The array itself, made contiguous. Raises InputError for another device, or for what is no array."""
        require_cpu(device_type)
        if not isinstance(numpy_obj, np.ndarray):
            raise InputError(f"an OrtValue is made of a NumPy array, not of {type(numpy_obj).__name__}")
        return cls(np.asarray(numpy_obj, order="C"))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, /, onnx_element_type: int) -> OrtValue:
        """The memory of an array, read as ONNX's type of that number: u16 as bf16. Raises InputError where their sizes
        differ."""
        if not isinstance(onnx_element_type, int):
            raise InputError(f"ONNX's types have numbers: {onnx_element_type!r} is none")
        value, dtype = cls.ortvalue_from_numpy(data), numpy_dtype(int(onnx_element_type))
        if dtype.itemsize != data.dtype.itemsize:
            raise InputError(f"elements of {data.dtype} cannot be read as {dtype}: their sizes differ")
        return cls(value.numpy().view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: object = None,
        device_type: str = CPU_DEVICE,
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """An uninitialised tensor in main memory, of which there can be no other `memory_info`.

        Raises:
            InputError: another device, an unknown type, a negative extent, or `memory_info` is none.
        """
        if memory_info is None:
            require_cpu(device_type)
        elif not isinstance(memory_info, OrtMemoryInfo):
            raise InputError(f"memory_info is an OrtMemoryInfo, not {memory_info!r}")
        dtype = numpy_dtype(np.float32 if element_type is None else element_type)
        try:
            return cls(np.empty(tuple(shape), dtype))
        except (TypeError, ValueError, MemoryError) as error:
            raise InputError(f"no tensor can be made of the shape {shape!r}: {error}") from error

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: SparseTensor) -> OrtValue:
        """A sparse tensor as a value. Raises InputError for what is none."""
        if not isinstance(sparse_tensor, SparseTensor):
            raise InputError(f"a SparseTensor is wanted, not {type(sparse_tensor).__name__}")
        return cls(sparse_tensor)

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """What another library's tensor holds, without a copy. Raises InputError when NumPy cannot share it."""
        try:
            return cls(np.from_dlpack(data))
        except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"no tensor that can be shared: {' '.join(str(error).split())}") from error

    @property
    def content(self) -> Content:
        """What it holds, as `InferenceSession.run` takes and gives it."""
        return self._content

    def numpy(self) -> Array:
        """The tensor itself: who writes into it changes the value. Raises InputError when it is none."""
        if not isinstance(self._content, np.ndarray):
            raise InputError(f"{self!r} is no tensor: its `content` has what it holds")
        return self._content

    def as_sparse_tensor(self) -> SparseTensor:
        """The sparse tensor itself. Raises InputError when it is none."""
        if not isinstance(self._content, SparseTensor):
            raise InputError(f"{self!r} is no sparse tensor")
        return self._content

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        array = self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)
        return array.copy() if copy else array

    def __dlpack__(self, *, stream: object = None) -> Any:
        return self.numpy().__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # DLPack's number of main memory

    def update_inplace(self, data: Array) -> None:
        """Copy an array of the same shape and dtype into it. Raises InputError for another."""
        here = self.numpy()
        if not isinstance(data, np.ndarray) or data.shape != here.shape or data.dtype != here.dtype:
            form = f"{data.dtype}{list(data.shape)}" if isinstance(data, np.ndarray) else type(data).__name__
            raise InputError(f"{form} does not fit {self!r}")
        np.copyto(here, data)

    def shape(self) -> list[int]:
        """Raises InputError for what is neither a tensor nor a sparse one."""
        if isinstance(self._content, SparseTensor):
            return self._content.dense_shape()
        return list(self.numpy().shape)

    def data_type(self) -> str:
        """As `tensor(float)`, `seq(tensor(float))`, `map(int64,tensor(float))`; "" of what is empty."""
        return _type_of(self._content)

    def element_type(self) -> int:
        """ONNX's number of the dtype of what it holds, 0 where there is nothing."""
        content = self._content
        while isinstance(content, (list, tuple, Mapping)):
            inner = [*(content.values() if isinstance(content, Mapping) else content)]
            content = cast("Content", inner[0]) if inner else None
        found = content.values() if isinstance(content, SparseTensor) else content
        if found is None:
            return 0
        dtype = _dtype_of(found)
        return _STRINGS if dtype.kind in _TEXTS else _NUMBERS[DType.of(dtype).value]

    def data_ptr(self) -> int:
        return int(self.numpy().ctypes.data)

    def device_name(self) -> str:
        return CPU_DEVICE

    def tensor_size_in_bytes(self) -> int:
        return int(self.numpy().nbytes)

    def has_value(self) -> bool:
        return self._content is not None

    def is_tensor(self) -> bool:
        return isinstance(self._content, np.ndarray)

    def is_sparse_tensor(self) -> bool:
        return isinstance(self._content, SparseTensor)

    def is_tensor_sequence(self) -> bool:
        return isinstance(self._content, (list, tuple)) and not any(isinstance(one, Mapping) for one in self._content)

    def __repr__(self) -> str:
        if not isinstance(self._content, (np.ndarray, SparseTensor)):
            return f"<OrtValue {self.data_type() or 'without a value'}>"
        return f"<OrtValue {self.data_type()} {self.shape()}>"


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: object = None) -> None:
    """Copy tensors into others of the same shapes and dtypes.

    Raises:
        InputError: there are not as many, they differ, one is no tensor, or there is a stream, which is of a device.
    """
    contents_of(src)
    contents_of(dst)
    if stream is not None:
        raise InputError("copy_tensors with a stream: autotune runs on the CPU, which has none")
    if len(src) != len(dst):
        raise InputError(f"there are {len(src)} tensors to copy into {len(dst)}")
    for one, other in zip(src, dst):
        if one.shape() != other.shape() or one.element_type() != other.element_type():
            raise InputError(f"{one!r} does not fit {other!r}")
    for one, other in zip(src, dst):
        other.update_inplace(one.numpy())


def contents_of(values: object) -> list[Content]:
    """What values hold. Raises InputError where one is none, as an array."""
    if not isinstance(values, Sequence):
        raise InputError(f"a list of OrtValues is wanted, not {type(values).__name__}")
    for value in values:
        if not isinstance(value, OrtValue):
            raise InputError(
                f"an OrtValue is wanted, not {type(value).__name__}: OrtValue.ortvalue_from_numpy makes one"
            )
    return [value.content for value in values]


def _type_of(content: object) -> str:
    """ONNX Runtime's name of what a value holds."""
    if content is None:
        return ""
    if isinstance(content, SparseTensor):
        return content.data_type()
    if isinstance(content, (list, tuple)):
        return f"seq({_type_of(content[0])})" if content else ""
    if isinstance(content, Mapping):
        if not content:
            return ""
        key, value = next(iter(content.items()))
        return f"map({'string' if isinstance(key, str) else 'int64'},{_type_of(value)})"
    dtype = _dtype_of(content)
    return tensor_type("string" if dtype.kind in _TEXTS else DType.of(dtype).value)


def _dtype_of(content: object) -> np.dtype[Any]:
    """Of an array, or of a number of a map, of which ONNX has floats of 32 bits alone."""
    return np.dtype(np.float32) if type(content) is float else np.asarray(content).dtype


def numpy_dtype(element_type: object) -> np.dtype[Any]:
    """A dtype by NumPy's name or ONNX's number. Raises InputError for an unknown one."""
    if isinstance(element_type, int):
        names = [name for name, number in _NUMBERS.items() if number == element_type]
        if not names:
            raise InputError(f"no dtype has ONNX's number {element_type}")
        return DType(names[0]).numpy
    try:
        return DType.of(element_type).numpy  # type: ignore[arg-type]  # an error says that it is none
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(f"{element_type!r} is no dtype of a tensor") from error
