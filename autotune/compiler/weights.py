"""Packed weights: each is written once, also where the programs of many shapes read it.

A weight is known by what it is made from, so that programs of one model find what an earlier one has packed. Arrays of
the model are told apart by their contents, looked at once as long as they live.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from autotune import machine
from autotune.compiler.memory import ALIGN
from autotune.runtime.constants import Constants
from autotune.runtime.executor import Array
from autotune.runtime.placement import Seats, first_touch
from autotune.search_spaces import Config
from autotune.tensor.aligned import aligned_empty

_log = logging.getLogger(__name__)

Fill = Callable[[Array], None]

WORTH_SHARING = 1 << 20
"""Bytes of a constant that programs read where the model has it; smaller ones lie together."""


class PackedWeights:
    """What the programs of one model have packed. A weight stays as long as one of the programs does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: weakref.WeakValueDictionary[Hashable, Array] = weakref.WeakValueDictionary()
        self._configs: dict[Hashable, list[Config]] = {}
        self._alike: dict[Hashable, Config] = {}
        self._contents: dict[Hashable, tuple[weakref.ref[Array], bytes]] = {}

    def identity(self, array: Array) -> Hashable:
        """What two arrays have in common that have the same elements."""
        return (self.contents(array), array.shape, array.dtype.str)

    def contents(self, array: Array) -> bytes:
        """The SHA-256 of an array's elements."""
        place, owner = _place(array)
        known = self._contents.get(place)
        if known is None or known[0]() is not owner:
            return self.tell(array, hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).data).digest())
        return known[1]

    def tell(self, array: Array, contents: bytes) -> bytes:
        """Of an array whose `contents` somebody knows; they come back."""
        place, owner = _place(array)
        forget = self._contents.pop
        self._contents[place] = weakref.ref(owner, lambda _: forget(place, None)), contents
        return contents

    def config(self, kind: Hashable, kernel: Hashable, own: Config, alike: Callable[[Config], Config | None]) -> Config:
        """A config for a kernel that reads weights of this kind: one in which they lie as in an earlier one's if
        `alike` finds it, else its own, which counts for later ones. It is the same for the same kernel of other
        programs: `alike` takes longer than everything else that is done for a kernel that is there."""
        with self._lock:
            known = list(self._configs.get(kind, ()))
            kept = self._alike.get((kernel, own))
        if kept is not None:
            return kept
        found = next((config for like in known if (config := alike(like)) is not None), None)
        with self._lock:
            if found is None:
                self._configs.setdefault(kind, []).append(own)
            return self._alike.setdefault((kernel, own), own if found is None else found)

    def get(self, key: Hashable) -> Array | None:
        """A weight that is packed already."""
        return self._held.get(key)

    def hold(self, key: Hashable, packed: Array) -> Array:
        """Share a weight that was packed now; the one that is held where another thread was faster."""
        with self._lock:
            return self._held.setdefault(key, packed)


def _place(array: Array) -> tuple[Hashable, Array]:
    """Where the elements of an array are, and who owns the memory."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    place = (id(owner), array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str)
    return place, owner


class Packing:
    """The packed weights of one program, one after another; equal ones once. Each is written where it belongs: there
    are no copies.

    Args:
        shared: what other programs of the model have packed; None for a program alone.
        seats: where the threads run that will read them; None where that makes no difference.
    """

    def __init__(self, shared: PackedWeights | None, seats: Seats | None = None) -> None:
        self.size = 0
        self._seats = seats
        self._shared = shared
        self._places: dict[Hashable, int] = {}
        self._fills: list[tuple[Hashable, int, int, Fill]] = []
        self._lying: dict[Hashable, Array] = {}

    def identity(self, name: str, array: Array) -> Hashable:
        """What stands for a constant of the graph in a key."""
        return name if self._shared is None else self._shared.identity(array)

    def add(self, key: Hashable, nbytes: int, fill: Fill, lies: Array | None = None) -> int:
        """Byte offset of the array under `key`; `fill` writes it to bytes.

        Args:
            lies: the same bytes where they are anyway, None where they are nowhere: several programs of one model read
                large ones there, as far as they lie well.
        """
        if key not in self._places:
            self._places[key] = self.size
            if lies is not None and self._shared is not None and self._seats is None and _lies_well(lies):
                self._lying[key] = lies.reshape(-1).view(np.uint8)
            self._fills.append((key, self.size, nbytes, fill))
            self.size += _aligned(nbytes)
        return self._places[key]

    def packed(self) -> Constants:
        """All of them; what is new lies in one array."""
        start = time.perf_counter()
        found: dict[Hashable, Array] = {}
        if self._shared is not None:
            known = {key: self._shared.get(key) for key, *_ in self._fills}
            found = {key: held for key, held in known.items() if held is not None}
            found |= {key: self._shared.hold(key, lies) for key, lies in self._lying.items() if key not in found}
        new = [entry for entry in self._fills if entry[0] not in found]
        ends = list(itertools.accumulate((_aligned(nbytes) for _, _, nbytes, _ in new), initial=0))
        memory = aligned_empty(max(ends[-1], ALIGN))

        def pack(entry: tuple[Hashable, int, int, Fill], at: int) -> tuple[Hashable, Array]:
            key, _, nbytes, fill = entry
            packed = memory[at : at + nbytes]
            first_touch(packed, self._seats)
            fill(packed)
            memory[at + nbytes : at + _aligned(nbytes)] = 0  # files hold the gaps, too
            return key, packed if self._shared is None else self._shared.hold(key, packed)

        # NumPy computes and copies without Python's lock.
        with ThreadPoolExecutor(machine.allowed_cores(), "autotune-pack") as threads:
            found |= threads.map(pack, new, ends)
        end = ends[-1]
        seconds = time.perf_counter() - start
        _log.info("packed %d of %d bytes of weights in %.2f s", end, self.size, seconds)
        if self._shared is None:
            return Constants.of(memory)
        return Constants(self.size, tuple(at for _, at, _, _ in self._fills), tuple(found[k] for k, *_ in self._fills))


def _lies_well(array: Array) -> bool:
    """Whether a constant is large, begins where packed ones do, and is nobody's to change: a user's array may be."""
    place, flags = array.__array_interface__["data"][0], array.flags
    return array.nbytes >= WORTH_SHARING and flags.c_contiguous and not flags.writeable and place % ALIGN == 0


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN
