"""`Failure`: what a candidate that did not make it becomes. A value, never an exception."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from autotune.errors import MeasureError
from autotune.measure.protocol import Json

FailureKind = Literal["schedule", "lower", "compile", "crash", "timeout", "memory", "incorrect", "runtime", "spills"]
FAILURE_KINDS: tuple[str, ...] = get_args(FailureKind)

_MESSAGE_LIMIT = 4000  # characters; a database row should not carry a whole core dump


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a candidate has no time.

    Kinds: `schedule` (the config or a step is illegal), `lower` (loop IR refused), `compile` (LLVM refused),
    `crash`, `timeout`, `memory` (the worker process died or was killed), `incorrect` (wrong output),
    `runtime` (anything else that went wrong while running it), `spills` (not run: see `SpillFilter`).
    """

    kind: FailureKind
    message: str

    def __post_init__(self) -> None:
        if self.kind not in FAILURE_KINDS:
            raise MeasureError(f"unknown failure kind {self.kind!r}; use one of {', '.join(FAILURE_KINDS)}")
        if len(self.message) > _MESSAGE_LIMIT:
            half = _MESSAGE_LIMIT // 2
            object.__setattr__(self, "message", f"{self.message[:half]} [...] {self.message[-half:]}")

    def to_json(self) -> dict[str, Json]:
        return {"kind": self.kind, "message": self.message}

    @staticmethod
    def from_json(data: Json) -> Failure:
        """Inverse of `to_json`.

        Raises:
            MeasureError: `data` is no failure.
        """
        match data:
            case {"kind": str(kind), "message": str(message)}:
                return Failure(kind, message)  # type: ignore[arg-type]  # checked by __post_init__
        raise MeasureError(f"no failure: {str(data)[:200]}")
