"""OrtValue: a tensor as ONNX Runtime hands it around. Here it is a NumPy array, shared and never copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.api.node_arg import tensor_type
from autotune.errors import InputError
from autotune.runtime.executor import Array
from autotune.tensor.dtype import DType

_NUMBERS = {  # dtype -> its number in ONNX
    "f32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "bool": 9, "f16": 10, "f64": 11, "u32": 12,
    "u64": 13, "bf16": 16,
}  # fmt: skip
CPU_DEVICE = "cpu"


class OrtValue:
    """A tensor in main memory.

    Args:
        array: what it holds, by reference.
    """

    def __init__(self, array: Array) -> None:
        self._array = array

    @classmethod
    def ortvalue_from_numpy(cls, numpy_obj: Array, device_type: str = CPU_DEVICE, device_id: int = 0) -> OrtValue:
        """The array itself, made contiguous. Raises InputError for another device, or for what is no array."""
        require_cpu(device_type)
        if not isinstance(numpy_obj, np.ndarray):
            raise InputError(f"an OrtValue is made of a NumPy array, not of {type(numpy_obj).__name__}")
        return cls(np.asarray(numpy_obj, order="C"))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, onnx_element_type: int) -> OrtValue:
        """The memory of an array, read as ONNX's type of that number: u16 as bf16. Raises InputError where their sizes
        differ."""
        value, dtype = cls.ortvalue_from_numpy(data), numpy_dtype(int(onnx_element_type))
        if dtype.itemsize != data.dtype.itemsize:
            raise InputError(f"elements of {data.dtype} cannot be read as {dtype}: their sizes differ")
        return cls(value.numpy().view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: object = None, device_type: str = CPU_DEVICE, device_id: int = 0
    ) -> OrtValue:
        """An uninitialised tensor. Raises InputError for another device, or an unknown type."""
        require_cpu(device_type)
        return cls(np.empty(tuple(shape), numpy_dtype(np.float32 if element_type is None else element_type)))

    @classmethod
    def from_dlpack(cls, data: Any) -> OrtValue:
        """What another library's tensor holds, without a copy. Raises InputError when NumPy cannot share it."""
        try:
            return cls(np.from_dlpack(data))
        except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"no tensor that can be shared: {' '.join(str(error).split())}") from error

    def numpy(self) -> Array:
        """The tensor itself: who writes into it changes the value."""
        return self._array

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        array = self._array if dtype is None else self._array.astype(dtype, copy=False)
        return array.copy() if copy else array

    def __dlpack__(self, *, stream: object = None) -> Any:
        return self._array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # DLPack's number of main memory

    def update_inplace(self, np_arr: Array) -> None:
        """Copy an array of the same shape and dtype into it. Raises InputError for another."""
        if np_arr.shape != self._array.shape or np_arr.dtype != self._array.dtype:
            raise InputError(f"{np_arr.dtype}{list(np_arr.shape)} does not fit {self!r}")
        np.copyto(self._array, np_arr)

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def data_type(self) -> str:
        """As `tensor(float)`."""
        return tensor_type(DType.of(self._array.dtype).value)

    def element_type(self) -> int:
        """ONNX's number of its dtype."""
        return _NUMBERS[DType.of(self._array.dtype).value]

    def data_ptr(self) -> int:
        return int(self._array.ctypes.data)

    def device_name(self) -> str:
        return CPU_DEVICE

    def tensor_size_in_bytes(self) -> int:
        return int(self._array.nbytes)

    def has_value(self) -> bool:
        return True

    def is_tensor(self) -> bool:
        return True

    def is_sparse_tensor(self) -> bool:
        return False

    def is_tensor_sequence(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<OrtValue {self.data_type()} {self.shape()}>"


def numpy_dtype(element_type: object) -> np.dtype[Any]:
    """A dtype by NumPy's name or ONNX's number. Raises InputError for an unknown one."""
    if isinstance(element_type, int):
        names = [name for name, number in _NUMBERS.items() if number == element_type]
        if not names:
            raise InputError(f"no dtype has ONNX's number {element_type}")
        return DType(names[0]).numpy
    try:
        dtype: np.dtype[Any] = np.dtype(element_type)  # type: ignore[call-overload]
        DType.of(dtype)
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(f"{element_type!r} is no dtype of a tensor") from error
    return dtype


def require_cpu(device_type: str) -> None:
    """Raises InputError for another device than the CPU."""
    if device_type != CPU_DEVICE:
        raise InputError(f"there is no device {device_type!r}: autotune runs on the CPU")
