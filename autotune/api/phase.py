"""Phase: what a tuning run does from now on, told beside the events of its searches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from autotune.search import Event, TuningTask


@dataclass(frozen=True, slots=True)
class Phase:
    """
    Attributes:
        name: in a few words.
        tasks: those that it works on.
        peak_gflops: fp32 FMA peak of the target's threads, which speeds may be compared with; 0 while it is in doubt.
    """

    name: str
    tasks: tuple[TuningTask, ...] = ()
    peak_gflops: float = 0.0


TuneCallback: TypeAlias = Callable[[Event | Phase], None]
