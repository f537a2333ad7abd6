"""Block: what a segment of a layer has of one task: where its lines are, and as much of them as lists and counts need.

So a layer is opened without its trials: those of a task are read when somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.errors import DatabaseError
from autotune.records import fields
from autotune.records.record import TuningRecord

MAX_BYTES = 64 * 2**20
"""Of one block: a task with more has several. What a hostile index claims costs no more memory than that."""
_SHA256 = 64
_LEAST_LINE = len('{"trial":{}}\n')


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A workload on a target, as records name them."""

    workload_key: str
    workload: str  # canonical JSON
    anchor_key: str | None = None
    family_key: str | None = None
    description: str = ""
    target_key: str
    target: str  # canonical JSON

    def __post_init__(self) -> None:
        checked = {
            "workload_key": fields.key("workload_key", self.workload_key),
            "workload": fields.shared_json("workload", self.workload),
            "anchor_key": fields.optional_key("anchor_key", self.anchor_key),
            "family_key": fields.optional_key("family_key", self.family_key),
            "description": fields.text("description", self.description),
            "target_key": fields.key("target_key", self.target_key),
            "target": fields.shared_json("target", self.target),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def key(self) -> tuple[str, str]:
        return (self.workload_key, self.target_key)

    @classmethod
    def of(cls, record: TuningRecord) -> Task:
        """The task of a trial."""
        return cls(**{name: getattr(record, name) for name in cls.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Lines of a file.

    Attributes:
        ranges: first byte and the one after the last of each run of lines, ascending.
        sha256: of their bytes, one run after the other; 64 hex digits.
    """

    ranges: tuple[tuple[int, int], ...]
    sha256: str

    def __post_init__(self) -> None:
        if len(fields.key("sha256", self.sha256)) != _SHA256:
            raise DatabaseError(f"sha256 must be {_SHA256} hex digits, got {fields.shown(self.sha256)}")
        last = 0
        for start, end in self.ranges:
            if not last <= start < end:
                raise DatabaseError("ranges must be ascending, each of at least one byte")
            last = end
        if not 0 < self.size <= MAX_BYTES:
            raise DatabaseError(f"a block has 1 to {MAX_BYTES} bytes, got {self.size}")

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(end - start for start, end in self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the trials of a block come to; times in seconds, dates in seconds since the epoch.

    Attributes:
        failures: how many, by kind.
        best_seconds: of the fastest verified trial that was not disturbed; of a disturbed one where all are.
    """

    trials: int
    verified: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    best_seconds: float | None = None
    oldest: float
    newest: float

    def __post_init__(self) -> None:
        trials = fields.optional_count("trials", self.trials) or 0
        verified = fields.count("verified", self.verified)
        failed = sum(fields.count("failures", number) for number in self.failures.values())
        for kind in self.failures:
            fields.failure_kind("failures", kind)
        if not trials or verified + failed > trials:
            raise DatabaseError(f"{trials} trials cannot have {verified} verified and {failed} failed ones")
        if (fields.positive("best_seconds", self.best_seconds) is None) != (verified == 0):
            raise DatabaseError("best_seconds belongs to verified trials")
        fields.number("oldest", self.oldest)
        fields.number("newest", self.newest)


@dataclass(frozen=True, slots=True)
class Block:
    """Some trials of one task; without one, sessions."""

    extent: Extent
    task: Task | None = None
    summary: Summary | None = None

    def __post_init__(self) -> None:
        if self.summary is not None and self.summary.trials * _LEAST_LINE > self.extent.size:
            raise DatabaseError(f"{self.extent.size} bytes cannot hold {self.summary.trials} trials")
