"""Host operators that move rows, as native code for any extents that data decides.

An operator is written down once for values whose extents are numbers, where runs have shown no others, or symbols. What
it gives lies in memory of its own, with room for as many rows as symbols may be; what is only another shape of a value
lies where that does.
"""

from __future__ import annotations

import logging
import math
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union

import numpy as np

from autotune.codegen.moves_ir import ADDS
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.ir import Array
from autotune.runtime.address import address
from autotune.runtime.moves import Cell, Moves
from autotune.runtime.shape_use import ShapeUse
from autotune.tensor.aligned import aligned_empty

_log = logging.getLogger(__name__)

Dims = tuple[Union[int, str], ...]

MOST_BYTES = 1 << 24
"""Of the result of an operator: moving more takes longer than what is around it."""


class NotNative(Exception):
    """There is no native code for this."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A value.

    Attributes:
        cell: holds its address.
        lies: in memory of ours, or in what programs give for such extents; None where in a value of somebody else.
        whole: the memory has no other name.
        known: what it is, of constants.
        name: of the value of somebody else.
    """

    cell: Cell
    dims: Dims
    dtype: np.dtype[Any]
    lies: Array | Callable[[Mapping[str, int]], Array] | None = None
    whole: bool = False
    known: Array | None = None
    name: str = ""


class RowMemory:
    """The memory in which native code of a session moves rows, all of it counted.

    Args:
        limit: bytes that this may be with what else a run takes; None for as many as there are.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit, self._lock = limit, threading.Lock()
        self._held: weakref.WeakSet[RowMoves] = weakref.WeakSet()

    def take(self, moves: RowMoves, nbytes: int, others: int = 0) -> None:
        """Before moves take so much more; `others` is what the run takes beside this.

        Raises:
            NotNative: that is more than there may be.
        """
        with self._lock:
            whole = sum(one.nbytes for one in self._held) + nbytes + others
            if self._limit is not None and whole > self._limit:
                _log.info(
                    "rows are moved operator by operator: natively, a run would take %d bytes, more than the %d that"
                    " max_memory allows", whole, self._limit,
                )  # fmt: skip
                raise NotNative
            moves.nbytes += nbytes
            self._held.add(moves)

    def uses(self) -> list[ShapeUse]:
        """One entry for all that follow one another at a stop, on each way that runs take."""
        with self._lock:
            return [one.use() for one in self._held]


Take = Callable[["RowMoves", int], None]
"""`RowMemory.take` of a run."""


class RowMoves:
    """Writes operators down.

    Args:
        most: what symbols are at most.
        reads: how often each name is read.
        take: told of memory before it is taken.

    Attributes:
        nbytes: of the memory that was taken. `runs`: that have moved rows in it.
    """

    def __init__(self, most: Mapping[str, int], reads: Counter[str], take: Take) -> None:
        self.moves = Moves()
        self.symbols = {symbol: self.moves.cell() for symbol in most}
        self.nbytes = self.runs = 0
        self._most, self._reads, self._take = most, reads, take
        self._given: dict[str, tuple[int, ...]] = {}
        self._sizes: dict[tuple[Dims, int], Cell] = {}
        self._keep: list[Array] = []  # what native code has the addresses of

    def extent(self, dim: int | str) -> Cell:
        return self.moves.number(dim) if isinstance(dim, int) else self.symbols[dim]

    def constant(self, array: Array) -> Rows:
        """A value that is the same in every run."""
        array = np.asarray(array, order="C")  # ascontiguousarray makes a row of a number
        self._keep.append(array)
        return Rows(self.moves.number(address(array)), array.shape, array.dtype, known=array)

    def given(self, name: str, dims: Dims, dtype: np.dtype[Any]) -> Rows:
        """A value of somebody else, whose cell is to be set in every run."""
        self._given[name] = self._room(dims)
        return Rows(self.moves.cell(), dims, dtype, name=name)

    def add(self, node: NodeAttributes, given: Sequence[Rows]) -> Rows:
        """What an operator gives of these.

        Raises:
            NotNative: it moves no rows.
        """
        if node.op not in MAKERS or node.proto.domain not in ("", "ai.onnx"):
            raise NotNative
        return MAKERS[node.op](self, node, given)

    def fresh(self, dims: Dims, dtype: np.dtype[Any]) -> Rows:
        """Memory for a value."""
        nbytes = math.prod(self._room(dims)) * dtype.itemsize
        if nbytes > MOST_BYTES:
            raise NotNative
        self.take(nbytes)
        memory, cell = aligned_empty(nbytes), self.moves.cell()
        cell.value = address(memory)
        self._keep.append(memory)
        return Rows(cell, dims, dtype, memory, True)

    def take(self, nbytes: int) -> None:
        """Before so much more memory is taken. Raises NotNative: it must not be."""
        self._take(self, nbytes)

    def use(self) -> ShapeUse:
        """What is taken for values that are as large as there is room for."""
        return ShapeUse(dict(self._given), self.runs, seconds=0.0, weight_bytes=0, own_bytes=0, arena_bytes=self.nbytes)

    def _room(self, dims: Dims) -> tuple[int, ...]:
        return tuple(self._most[dim] if isinstance(dim, str) else dim for dim in dims)

    def size(self, dims: Dims, factor: int = 1) -> Cell:
        """The product of extents, so many times."""
        if (dims, factor) not in self._sizes:
            found = self.moves.number(factor * math.prod(d for d in dims if isinstance(d, int)))
            for dim in dims:
                if isinstance(dim, str):
                    found = self.moves.times(found, self.symbols[dim])
            self._sizes[dims, factor] = found
        return self._sizes[dims, factor]

    def rows(self, how: str, target: Rows, source: Rows, places: Rows, of: Rows) -> None:
        """Move rows of one value to the other, as `Moves.rows`; `of` is the one that has the places."""
        rank = places.dims[-1]
        if not isinstance(rank, int) or not 1 <= rank <= len(of.dims) or places.dtype != np.int64:
            raise NotNative
        count, each = self.size(places.dims[:-1]), self.size(of.dims[rank:], of.dtype.itemsize)
        extents = [self.extent(dim) for dim in of.dims[:rank]]
        self.moves.rows(how, target.cell, source.cell, places.cell, count, each, extents)

    def shaped(self, value: Rows, dims: Dims) -> Rows:
        """The same elements in another shape."""
        known = None if value.known is None else value.known.reshape([d for d in dims if isinstance(d, int)])
        return replace(value, dims=dims, whole=False, known=known)

    def read_once(self, value: Rows, name: str) -> bool:
        """Whether nobody but one operator looks at memory of ours."""
        return value.whole and self._reads[name] == 1


Make = Callable[[RowMoves, NodeAttributes, Sequence[Rows]], Rows]


def _gather(rows: RowMoves, node: NodeAttributes, given: Sequence[Rows]) -> Rows:
    x, places = given
    if node.attr_int("axis", 0) not in (0, -len(x.dims)) or not x.dims:
        raise NotNative
    found = rows.fresh((*places.dims, *x.dims[1:]), x.dtype)
    rows.rows("gather", found, x, replace(places, dims=(*places.dims, 1)), x)
    return found


def _gather_nd(rows: RowMoves, node: NodeAttributes, given: Sequence[Rows]) -> Rows:
    x, places = given
    rank = places.dims[-1] if places.dims else 0
    if node.attr_int("batch_dims", 0) or not isinstance(rank, int):
        raise NotNative
    found = rows.fresh((*places.dims[:-1], *x.dims[rank:]), x.dtype)
    rows.rows("gather", found, x, places, x)
    return found


def _scatter_nd(rows: RowMoves, node: NodeAttributes, given: Sequence[Rows]) -> Rows:
    """In place where nobody else sees the data, as that of one of several behind one another."""
    x, places, more = given
    rank = places.dims[-1] if places.dims else 0
    if not isinstance(rank, int) or more.dims != (*places.dims[:-1], *x.dims[rank:]) or more.dtype != x.dtype:
        raise NotNative
    how, kind = node.attr_string("reduction", "none"), f"{x.dtype.kind}{8 * x.dtype.itemsize}"
    if how not in ("none", "add") or (how == "add" and kind not in ADDS):
        raise NotNative
    found = x
    if not rows.read_once(x, node.proto.input[0]):
        found = rows.fresh(x.dims, x.dtype)
        rows.moves.copy(found.cell, x.cell, rows.size(x.dims, x.dtype.itemsize))
    rows.rows("scatter" if how == "none" else f"scatter_add_{kind}", found, more, places, x)
    return found


def _transpose(rows: RowMoves, node: NodeAttributes, given: Sequence[Rows]) -> Rows:
    (x,) = given
    if len(x.dims) != 2 or x.dtype.itemsize != 8 or tuple(node.attr_ints("perm") or (1, 0)) != (1, 0):
        raise NotNative
    found = rows.fresh(x.dims[::-1], x.dtype)
    rows.moves.transpose(found.cell, x.cell, rows.extent(x.dims[0]), rows.extent(x.dims[1]))
    return found


def _reshape(rows: RowMoves, node: NodeAttributes, given: Sequence[Rows]) -> Rows:
    x, form = given
    if form.known is None or form.known.ndim != 1 or node.attr_flag("allowzero"):
        raise NotNative
    wanted: list[int | str] = list(form.known.tolist())
    for n, extent in enumerate(wanted):
        if extent == 0:
            if n >= len(x.dims):
                raise NotNative
            wanted[n] = x.dims[n]
    if wanted.count(-1) == 1:
        wanted[wanted.index(-1)] = _quotient(x.dims, [dim for dim in wanted if dim != -1])
    elif -1 in wanted or _quotient(x.dims, wanted) != 1:
        raise NotNative
    return rows.shaped(x, tuple(wanted))


def _quotient(dims: Sequence[int | str], others: Sequence[int | str]) -> int | str:
    """The extent that makes others as many elements, whatever symbols are."""
    number, more = (math.prod(dim for dim in part if isinstance(dim, int)) for part in (dims, others))
    symbols = Counter(dim for dim in dims if isinstance(dim, str))
    less = Counter(dim for dim in others if isinstance(dim, str))
    left = list((symbols - less).elements())
    if (
        less - symbols
        or any(isinstance(dim, int) and dim < 1 for dim in others)
        or number % more
        or len(left) > 1
        or (left and number != more)
    ):
        raise NotNative
    return left[0] if left else number // more


def _axes(node: NodeAttributes, given: Sequence[Rows], rank: int) -> set[int]:
    axes: Sequence[int] | None = node.attr_ints("axes")
    if len(given) == 2:
        axes = None if given[1].known is None else given[1].known.reshape(-1).tolist()
    if not axes or not all(-rank <= axis < rank for axis in axes):
        raise NotNative
    found = {axis % rank for axis in axes}
    if len(found) < len(axes):
        raise NotNative
    return found


def _squeeze(rows: RowMoves, node: NodeAttributes, given: Sequence[Rows]) -> Rows:
    x = given[0]
    axes = _axes(node, given, len(x.dims))
    if any(x.dims[axis] != 1 for axis in axes):
        raise NotNative
    return rows.shaped(x, tuple(dim for axis, dim in enumerate(x.dims) if axis not in axes))


def _unsqueeze(rows: RowMoves, node: NodeAttributes, given: Sequence[Rows]) -> Rows:
    x, dims = given[0], iter(given[0].dims)
    told = given[1].known if len(given) == 2 else None
    whole = len(x.dims) + (len(node.attr_ints("axes") or ()) if told is None else told.size)
    axes = _axes(node, given, whole)
    return rows.shaped(x, tuple(1 if axis in axes else next(dims) for axis in range(whole)))


MAKERS: Mapping[str, Make] = {
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Reshape": _reshape,
    "ScatterND": _scatter_nd,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
