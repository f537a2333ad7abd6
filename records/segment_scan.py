"""Scan: the blocks of a segment, found without parsing most of its lines.

Of the lines that autotune writes, whose keys are sorted and whose JSON has no spaces, the few fields that count are
found by name: a tenth of the work of parsing a trial. That decides nothing: a block is checked, line by line, when
it is read. Lines of another form, and the first of each task, are parsed at once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from autotune.errors import DatabaseError
from autotune.records.block import MAX_BYTES, Block, Extent, Summary, Task
from autotune.records.exchange import numbered_lines, parse_line
from autotune.records.record import HIGH_SPREAD, TuningRecord
from autotune.records.session import Session

Item = TypeVar("Item")

_STEP = 4096
"""Lines between two words about how far it is."""
_NUMBER = rb"([0-9][-+0-9.eE]*)"
_OUTCOME = re.compile(
    rb'"config_key":"[^"\\]+","created":' + _NUMBER + rb',(?:"description":"(?:[^"\\]|\\.)*",)?'
    rb'("disturbed":true,)?(?:"failure_kind":"([a-z0-9_]+)",)?'
)
_TIME = re.compile(rb'"seconds":' + _NUMBER + rb',(?:"session_id":"[^"\\]+",)?(?:"spread":' + _NUMBER + rb",)?")
_TARGET = b'"target_key":"'
_VERIFIED = b'"verified":true'
_WORKLOAD = re.compile(rb'"workload_key":"([^"\\]+)"\}\}\n\Z')
_TAIL = 192
"""Bytes from the end of a line in which the key of its workload is, the last field."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What was found in a file, and the SHA-256 of all of its bytes in hex."""

    blocks: list[Block]
    sha256: str


@dataclass(frozen=True, slots=True)
class _Facts:
    """Of one trial."""

    task: tuple[str, str]
    created: float
    seconds: float | None
    verified: bool
    disturbed: bool
    failure: str | None


def scan(path: Path, progress: Callable[[int], None]) -> Scan:
    """The blocks of a file of JSON lines.

    Args:
        progress: told now and then how many bytes have been looked at.

    Raises:
        DatabaseError: names the first line that is not right, or says why the file cannot be read.
    """
    digest, at = hashlib.sha256(), 0
    tasks: dict[tuple[str, str], Task] = {}
    growing: dict[tuple[str, str] | None, _Growing] = {}
    blocks: list[Block] = []
    for number, line in numbered_lines(path):
        digest.update(line)
        start, at = at, at + len(line)
        if number % _STEP == 0:
            progress(at)
        try:
            item = _look(line, number > 1, tasks)
        except DatabaseError as error:
            raise DatabaseError(f"{path}, line {number}: {error}") from None
        if item is None:
            continue
        key = item.task if isinstance(item, _Facts) else None
        block = growing.get(key)
        if block is not None and block.size + len(line) > MAX_BYTES:
            blocks.append(block.finished())
            block = None
        if block is None:
            block = growing[key] = _Growing(None if key is None else tasks[key])
        block.add(start, line, item)
    return Scan([*blocks, *(block.finished() for block in growing.values())], digest.hexdigest())


def _look(line: bytes, started: bool, tasks: dict[tuple[str, str], Task]) -> _Facts | Session | None:
    """What counts of a line; a task that is new goes to `tasks`."""
    found = _found(line) if started else None
    if found is not None and found.task in tasks:
        return found
    item = parse_line(line, started)
    if not isinstance(item, TuningRecord):
        return item
    facts = _facts_of(item)
    if facts.task not in tasks:
        tasks[facts.task] = Task.of(item)
    return facts


def _found(line: bytes) -> _Facts | None:
    """What counts of a trial as autotune writes it; None where it may be written in another way."""
    workload, outcome = _WORKLOAD.search(line, max(0, len(line) - _TAIL)), _OUTCOME.search(line)
    at = line.rfind(_TARGET)
    if not line.startswith(b'{"trial":{') or workload is None or outcome is None or at < 0:
        return None
    at += len(_TARGET)
    target = line[at : line.find(b'"', at)]
    created, disturbed, failure = outcome.groups()
    time = _TIME.search(line, outcome.end()) if failure is None else None
    if b"\\" in target or (failure is None) == (time is None):
        return None
    seconds, spread = (None, None) if time is None else time.groups()
    try:
        return _Facts(
            task=(workload[1].decode(), target.decode()),
            created=float(created),
            seconds=None if seconds is None else float(seconds),
            verified=line.rfind(_VERIFIED, at) > 0,
            disturbed=disturbed is not None or (spread is not None and float(spread) > HIGH_SPREAD),
            failure=None if failure is None else failure.decode(),
        )
    except ValueError:
        return None


def _facts_of(record: TuningRecord) -> _Facts:
    return _Facts(
        task=(record.workload_key, record.target_key), created=record.created, seconds=record.seconds,
        verified=record.verified, disturbed=record.disturbed, failure=record.failure_kind,
    )  # fmt: skip


class Counting:
    """What trials come to, one after the other."""

    def __init__(self) -> None:
        self._trials = self._verified = 0
        self._failures: dict[str, int] = {}
        self._best: tuple[bool, float] | None = None
        self._oldest = self._newest = 0.0

    def through(self, items: Iterable[Item]) -> Iterator[Item]:
        """The same items; trials among them are counted as they pass."""
        for item in items:
            if isinstance(item, TuningRecord):
                self.add(_facts_of(item))
            yield item

    def add(self, facts: _Facts) -> None:
        self._oldest = min(self._oldest, facts.created) if self._trials else facts.created
        self._newest = max(self._newest, facts.created) if self._trials else facts.created
        self._trials += 1
        if facts.failure is not None:
            self._failures[facts.failure] = self._failures.get(facts.failure, 0) + 1
        elif facts.verified and facts.seconds is not None:
            self._verified += 1
            time = (facts.disturbed, facts.seconds)
            self._best = time if self._best is None else min(self._best, time)

    def finished(self) -> Summary:
        return Summary(
            trials=self._trials, verified=self._verified, failures=self._failures,
            best_seconds=None if self._best is None else self._best[1], oldest=self._oldest, newest=self._newest,
        )  # fmt: skip


class _Growing:
    """A block whose lines are still being found."""

    def __init__(self, task: Task | None) -> None:
        self.size = 0
        self._task = task
        self._ranges: list[tuple[int, int]] = []
        self._digest = hashlib.sha256()
        self._counting = Counting()

    def add(self, start: int, line: bytes, item: _Facts | Session) -> None:
        end = start + len(line)
        if self._ranges and self._ranges[-1][1] == start:
            self._ranges[-1] = (self._ranges[-1][0], end)
        else:
            self._ranges.append((start, end))
        self.size += len(line)
        self._digest.update(line)
        if isinstance(item, _Facts):
            self._counting.add(item)

    def finished(self) -> Block:
        extent = Extent(ranges=tuple(self._ranges), sha256=self._digest.hexdigest())
        return Block(extent, self._task, None if self._task is None else self._counting.finished())
