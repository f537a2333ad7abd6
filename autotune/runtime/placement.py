"""Placement: on which CPUs the threads of a pool run, and in whose memory the weights lie that they read."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune import machine

Seats = Sequence[Sequence[int]]
"""For each thread of a pool, the logical CPUs that it should run on."""

_PAGE = 4096


def seats_for(threads: int) -> Seats | None:
    """Where so many threads should run that work for the calling one; None where all CPUs are as good."""
    return machine.topology().seats(threads, current_cpu()) if threads > 1 else None


def current_cpu() -> int:
    """The logical CPU that the calling thread runs on at this moment; -1 where the system does not say."""
    return int(ctypes.CDLL(None).sched_getcpu())


def is_spread(seats: Seats | None) -> bool:
    """Whether threads run in several places, so that it matters in whose memory lies what they read."""
    return seats is not None and len({tuple(cpus) for cpus in seats}) > 1


def first_touch(memory: npt.NDArray[Any], seats: Seats | None) -> None:
    """Has the pages of u8 memory that nobody has written yet placed where the threads are that will read them.

    Linux puts a page into the memory of the node that writes it first. Kernels deal what they read in equal parts, in
    order, so each thread's part is begun from its node. Nothing is done for threads of one node: they begin it by
    filling it.
    """
    if seats is None or not is_spread(seats):
        return
    before = os.sched_getaffinity(0)
    try:
        for part, cpus in zip(np.array_split(memory, len(seats)), seats, strict=True):
            os.sched_setaffinity(0, cpus)
            part[::_PAGE] = 0
    except OSError:  # a CPU that went offline: the rest lies where it is filled from
        pass
    finally:
        os.sched_setaffinity(0, before)
