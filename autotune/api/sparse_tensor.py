"""SparseTensor: a tensor of which only some elements are kept, as ONNX Runtime has it; models take dense ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NoReturn

import numpy as np

from autotune.api.node_arg import tensor_type
from autotune.api.ort_device import OrtDevice
from autotune.api.ort_memory import CPU_DEVICE
from autotune.errors import InputError
from autotune.runtime.executor import Array
from autotune.tensor.dtype import DType


class OrtSparseFormat(IntEnum):
    """How the places of the elements are written."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


@dataclass(frozen=True, slots=True, eq=False)
class SparseCooView:
    """Coordinates, i64: flat ones `[n]`, or rows and columns `[n, 2]`."""

    _indices: Array

    def indices(self) -> Array:
        return self._indices


@dataclass(frozen=True, slots=True, eq=False)
class SparseCsrView:
    """Compressed rows, i64: the column of each element `[n]`, and where each row begins `[rows + 1]`."""

    _inner: Array
    _outer: Array

    def inner(self) -> Array:
        return self._inner

    def outer(self) -> Array:
        return self._outer


class SparseTensor:
    """Elements and their places, which share their memory with NumPy. Made by `sparse_coo_from_numpy` and
    `sparse_csr_from_numpy`."""

    def __init__(self, shape: tuple[int, ...], values: Array, places: SparseCooView | SparseCsrView) -> None:
        self._shape = shape
        self._values = values
        self._places = places

    @classmethod
    def sparse_coo_from_numpy(
        cls, dense_shape: Sequence[int], values: Array, coo_indices: Array, ort_device: OrtDevice
    ) -> SparseTensor:
        """A tensor by coordinates.

        Args:
            values: the elements, `[n]`.
            coo_indices: i64, flat `[n]` or in pairs `[n, 2]` or `[2 * n]`.

        Raises:
            InputError: lengths or dtypes do not fit, or an element lies outside.
        """
        shape, numbers = _checked(dense_shape, values, ort_device)
        indices = _integers(coo_indices, "coo_indices")
        pairs = indices.size == 2 * numbers.size != 0
        if indices.size not in (numbers.size, 2 * numbers.size) or (pairs and len(shape) != 2):
            raise InputError(
                f"coo_indices are one per element, or two of a matrix: there are {indices.size} for {numbers.size}"
                f" elements of {list(shape)}"
            )
        flat = indices.reshape(-1, 2) @ np.array([shape[1], 1]) if pairs else indices.reshape(-1)
        inside = not pairs or bool((indices.reshape(-1, 2) < shape).all())
        if indices.size and (indices.min() < 0 or not inside or flat.max() >= np.prod(shape, dtype=np.int64)):
            raise InputError(f"coo_indices name an element outside of {list(shape)}")
        return cls(shape, numbers, SparseCooView(indices))

    @classmethod
    def sparse_csr_from_numpy(
        cls,
        dense_shape: Sequence[int],
        values: Array,
        inner_indices: Array,
        outer_indices: Array,
        ort_device: OrtDevice,
    ) -> SparseTensor:
        """A matrix by compressed rows.

        Args:
            values: the elements, `[n]`.
            inner_indices: i64, the column of each, `[n]`.
            outer_indices: i64, where each row begins, and n, `[rows + 1]`.

        Raises:
            InputError: lengths or dtypes do not fit, it is no matrix, or an element lies outside.
        """
        shape, numbers = _checked(dense_shape, values, ort_device)
        inner, outer = _integers(inner_indices, "inner_indices"), _integers(outer_indices, "outer_indices")
        if not outer.size and not numbers.size and shape:
            outer = np.zeros(shape[0] + 1, np.int64)  # ONNX Runtime's way to write that all rows are empty
        if len(shape) != 2 or inner.shape != numbers.shape or outer.shape != (shape[0] + 1,):
            raise InputError(
                f"compressed rows are of a matrix, with a column per element and its rows + 1 beginnings: not"
                f" {inner.size} and {outer.size} for {numbers.size} elements of {list(shape)}"
            )
        rows = (np.diff(outer, prepend=0, append=numbers.size) >= 0).all() and outer[-1] == numbers.size
        if not rows or (inner.size and not 0 <= inner.min() <= inner.max() < shape[1]):
            raise InputError(f"inner_indices and outer_indices name an element outside of {list(shape)}")
        return cls(shape, numbers, SparseCsrView(inner, outer))

    def values(self) -> Array:
        """The elements, `[n]`."""
        return self._values

    def as_coo_view(self) -> SparseCooView:
        """Raises InputError for a tensor of another format."""
        if not isinstance(self._places, SparseCooView):
            raise InputError(f"{self!r} has no coordinates: as_csrc_view() has its places")
        return self._places

    def as_csrc_view(self) -> SparseCsrView:
        """Raises InputError for a tensor of another format."""
        if not isinstance(self._places, SparseCsrView):
            raise InputError(f"{self!r} has no compressed rows: as_coo_view() has its places")
        return self._places

    def as_blocksparse_view(self) -> NoReturn:
        """Raises InputError: there is no way to make one from Python."""
        raise InputError(f"{self!r} has no blocks")

    def to_cuda(self, ort_device: object) -> NoReturn:
        """Raises InputError: autotune runs on the CPU."""
        raise InputError("there is no device 'cuda': autotune runs on the CPU")

    def format(self) -> OrtSparseFormat:
        coordinates = isinstance(self._places, SparseCooView)
        return OrtSparseFormat.ORT_SPARSE_COO if coordinates else OrtSparseFormat.ORT_SPARSE_CSRC

    def dense_shape(self) -> list[int]:
        return list(self._shape)

    def data_type(self) -> str:
        """As `sparse_tensor(float)`."""
        return f"sparse_{tensor_type(DType.of(self._values.dtype).value)}"

    def device_name(self) -> str:
        return CPU_DEVICE

    def __repr__(self) -> str:
        return f"<SparseTensor {self.data_type()} {self.dense_shape()}, {self._values.size} elements>"


def _checked(dense_shape: Sequence[int], values: Any, device: object) -> tuple[tuple[int, ...], Array]:
    if not isinstance(device, OrtDevice):
        raise InputError(f"a device is made by OrtDevice.make('{CPU_DEVICE}', 0), not {device!r}")
    try:
        shape = tuple(int(extent) for extent in dense_shape)
    except (TypeError, ValueError):
        raise InputError(f"a dense_shape is a list of numbers, not {dense_shape!r}") from None
    if any(extent < 0 for extent in shape):
        raise InputError(f"no tensor has the shape {list(shape)}")
    try:
        DType.of(values.dtype)
    except (AttributeError, KeyError):
        raise InputError("the values of a SparseTensor are a NumPy array of numbers") from None
    if values.ndim != 1:
        raise InputError(f"the values of a SparseTensor have one dimension, not {values.ndim}")
    return shape, np.ascontiguousarray(values)


def _integers(indices: Any, name: str) -> Array:
    found = np.asarray(indices)
    if found.dtype.kind not in "iu":
        raise InputError(f"{name} are whole numbers, not {found.dtype}")
    return np.ascontiguousarray(found, np.int64)
