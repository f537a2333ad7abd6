"""Reading quantised values: what a `dequantize` or `quantize` of constant parameters says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Array, Node
from autotune.graph.passes.sweep import Sweep
from autotune.tensor import DType

BYTES = ("i8", "u8")
_LEAST = float(np.finfo(np.float32).tiny)
_MOST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Grid:
    """Real numbers as integers: real = (integer - zero) * scale, finite and in f32; both broadcast to the data."""

    dtype: DType
    scale: Array
    zero: Array

    @property
    def is_plain(self) -> bool:
        """One positive scale and one zero point for all elements: greater integers are greater numbers."""
        return self.scale.size == 1 and self.zero.size == 1 and bool((self.scale >= _LEAST).all())

    @property
    def step(self) -> float:
        """The scale of a plain grid."""
        return float(self.scale.reshape(()))

    @property
    def origin(self) -> int:
        """The zero point of a plain grid."""
        return int(self.zero.reshape(()))

    @property
    def least(self) -> int:
        return int(np.iinfo(self.dtype.numpy).min)

    @property
    def most(self) -> int:
        return int(np.iinfo(self.dtype.numpy).max)

    def nearest(self, real: float) -> int:
        """The integer that a real number, infinite ones too, becomes on a plain grid."""
        quotient = np.rint(np.clip(np.float32(real) / np.float32(self.step), -(2.0**20), 2.0**20))
        return int(np.clip(quotient + self.origin, self.least, self.most))

    def same(self, other: Grid) -> bool:
        """Whether two plain grids are one."""
        return (self.dtype, self.step, self.origin) == (other.dtype, other.step, other.origin)


@dataclass(frozen=True, slots=True)
class Dequantized:
    """A real value that stands for integers on a grid."""

    value: str
    grid: Grid
    node: Node


def dequantized(sweep: Sweep, name: str) -> Dequantized | None:
    """The integers behind a value in f32, None where it is another value or a parameter is no constant."""
    node = sweep.producers.get(name)
    if node is None or node.op != "dequantize" or node.output.dtype != "f32":
        return None
    grid = _grid(sweep, node, sweep.values[node.inputs[0]].dtype)
    return None if grid is None else Dequantized(node.inputs[0], grid, node)


def plain(sweep: Sweep, name: str) -> Dequantized | None:
    """The same where they are bytes on a plain grid."""
    found = dequantized(sweep, name)
    return found if found is not None and found.grid.dtype.value in BYTES and found.grid.is_plain else None


def target(sweep: Sweep, node: Node) -> Grid | None:
    """The grid that a `quantize` of f32 puts its operand on; None where a parameter is no constant."""
    if node.op != "quantize" or sweep.values[node.inputs[0]].dtype != "f32":
        return None
    return _grid(sweep, node, node.output.dtype)


def plain_target(sweep: Sweep, node: Node) -> Grid | None:
    """The same where it is a plain grid of bytes."""
    grid = target(sweep, node)
    return grid if grid is not None and grid.dtype.value in BYTES and grid.is_plain else None


def is_normal(array: Array) -> bool:
    """Whether f32 holds these numbers without loss of precision: they are 0, or neither too small nor too large."""
    size = np.abs(array)
    return bool(((size == 0) | ((size >= _LEAST) & (size <= _MOST))).all())


def _grid(sweep: Sweep, node: Node, dtype: str) -> Grid | None:
    scale, zero = (sweep.array(name) for name in node.inputs[1:3])
    if scale is None or zero is None or scale.dtype != np.float32 or not np.isfinite(scale).all():
        return None
    return Grid(DType(dtype), scale, zero)
