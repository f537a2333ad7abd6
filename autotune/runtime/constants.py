"""Packed weights of a program: one array, or parts of arrays that several programs share."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.runtime.address import address as address_of

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Constants:
    """Where the bytes of a program's constants are; programs that share arrays hold them once.

    Attributes:
        nbytes: of all of them, gaps included.
        starts: the place of each part among the constants, ascending.
        parts: u8 arrays; what lies between them is never read.
    """

    nbytes: int
    starts: tuple[int, ...]
    parts: tuple[Array, ...]

    @classmethod
    def of(cls, array: Array) -> Constants:
        """Constants that lie in one u8 array."""
        return cls(array.nbytes, (0,), (array,))

    def view(self, offset: int, nbytes: int) -> Array:
        """The u8 array (nbytes,) at a place."""
        number, within = self.locate(offset)
        return self.parts[number][within : within + nbytes]

    def address(self, offset: int) -> int:
        """Where in memory the byte at a place is."""
        number, within = self.locate(offset)
        return address_of(self.parts[number]) + within

    def chunks(self) -> Iterator[Array]:
        """All bytes in order, zeros where nothing is."""
        end = 0
        for start, part in zip(self.starts, self.parts):
            if start > end:
                yield np.zeros(start - end, np.uint8)
            yield part
            end = start + part.nbytes
        if self.nbytes > end:
            yield np.zeros(self.nbytes - end, np.uint8)

    @property
    def memory(self) -> dict[int, int]:
        """Bytes of each part by where it is: what several programs share counts once in a union."""
        return {address_of(part): part.nbytes for part in self.parts}

    def locate(self, offset: int) -> tuple[int, int]:
        """The number of the part that holds the byte at a place, and where in the part it is."""
        number = bisect.bisect_right(self.starts, offset) - 1
        return number, offset - self.starts[number]
