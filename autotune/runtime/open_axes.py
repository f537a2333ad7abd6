"""Runs along the open dimensions of a model: padded into larger programs, cut into pieces, put together again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from autotune.runtime.executor import Array
from autotune.tensor.declared import ModelInput

Extents = tuple[int, ...]
"""Of the open dimensions, in the order of `OpenAxes.symbols`."""


class Piece(NamedTuple):
    """A part of a run: the program that it runs in, where along the dimension that is cut it starts, and how long it
    is there; the length means nothing where no dimension is cut."""

    bucket: Extents
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class OpenAxis:
    """An open dimension along which runs may be padded.

    Attributes:
        symbol: its name.
        outputs: its axes in each output, in the model's order.
        cut: elements along it never meet, so that a run is the sum of its pieces.
        end: the program's input that is told where the padding begins; empty where there is none.
    """

    symbol: str
    outputs: tuple[tuple[int, ...], ...]
    cut: bool
    end: str


@dataclass(frozen=True)
class OpenAxes:
    """What a model takes, and what may be done with its open dimensions.

    Attributes:
        inputs: every open dimension that matters has a symbol.
        free: dimensions that need not be exact; the others are as they are in each run.
    """

    inputs: tuple[ModelInput, ...]
    free: tuple[OpenAxis, ...]

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """All open dimensions, in the order of the inputs."""
        return tuple(dict.fromkeys(d for i in self.inputs for d in i.dims or () if isinstance(d, str)))

    @cached_property
    def cut(self) -> OpenAxis | None:
        """The dimension that is cut; others that might be are padded."""
        return next((axis for axis in self.free if axis.cut), None)

    def run(
        self,
        values: Mapping[str, Array],
        extents: Mapping[str, int],
        pieces: Sequence[Piece],
        call: Callable[[Extents, dict[str, Array]], list[Array]],
    ) -> list[Array]:
        """The outputs of a run, from those of its pieces.

        Args:
            values: the model's inputs.
            extents: of the run.
            call: runs the program of such extents.
        """
        parts: list[list[Array]] = []
        for piece in pieces:
            bucket = dict(zip(self.symbols, piece.bucket))
            inside = {**extents, **({self.cut.symbol: piece.length} if self.cut is not None else {})}
            results = call(piece.bucket, self._feeds(values, bucket, inside, piece.start))
            parts.append([self._cropped(n, found, bucket, inside) for n, found in enumerate(results)])
        if len(parts) == 1:
            return parts[0]
        assert self.cut is not None
        return [
            np.concatenate(found, axis=axes[0]) if axes else found[0]
            for axes, found in zip(self.cut.outputs, zip(*parts))
        ]

    def _feeds(
        self, values: Mapping[str, Array], bucket: Mapping[str, int], inside: Mapping[str, int], start: int
    ) -> dict[str, Array]:
        """What a piece's program reads, zeros in the padding."""
        found: dict[str, Array] = {
            axis.end: np.asarray(inside[axis.symbol], np.int64) for axis in self.free if axis.end
        }
        for declared in self.inputs:
            dims = declared.dims or ()
            array = values[declared.name]
            if self.cut is not None and self.cut.symbol in dims:
                part = slice(start, start + inside[self.cut.symbol])
                array = array[tuple(part if dim == self.cut.symbol else slice(None) for dim in dims)]
            shape = tuple(dim if isinstance(dim, int) else bucket[str(dim)] for dim in dims)
            found[declared.name] = padded(array, shape)
        return found

    def _cropped(self, output: int, found: Array, bucket: Mapping[str, int], inside: Mapping[str, int]) -> Array:
        """An output without padding."""
        kept: dict[int, int] = {}
        for axis in self.free:
            if bucket[axis.symbol] != inside[axis.symbol]:
                kept.update(dict.fromkeys(axis.outputs[output], inside[axis.symbol]))
        return cropped(found, kept)

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value; `from_json` is its inverse."""
        return {
            "inputs": [[i.name, i.dtype, list(i.dims or ())] for i in self.inputs],
            "free": [[axis.symbol, [list(axes) for axes in axis.outputs], axis.cut, axis.end] for axis in self.free],
        }

    @staticmethod
    def from_json(data: Any) -> OpenAxes:
        """Raises KeyError, TypeError or ValueError for what is none."""
        inputs = tuple(
            ModelInput(str(name), str(dtype), tuple(d if isinstance(d, str) else int(d) for d in dims))
            for name, dtype, dims in data["inputs"]
        )
        free = tuple(
            OpenAxis(str(symbol), tuple(tuple(map(int, axes)) for axes in outputs), bool(cut), str(end))
            for symbol, outputs, cut, end in data["free"]
        )
        found = OpenAxes(inputs, free)
        if not {axis.symbol for axis in free} <= set(found.symbols):
            raise ValueError("an open dimension that no input has")
        return found


def padded(array: Array, shape: tuple[int, ...]) -> Array:
    """The array in a larger shape, zeros behind it."""
    if array.shape == shape:
        return array
    found = np.zeros(shape, array.dtype)
    found[tuple(map(slice, array.shape))] = array
    return found


def cropped(array: Array, extents: Mapping[int, int]) -> Array:
    """What is no padding: so many elements along these axes."""
    inside = [slice(None)] * array.ndim
    for axis, extent in extents.items():
        inside[axis] = slice(extent)
    found = array[tuple(inside)]
    return array if found.shape == array.shape else found.copy()
