"""LayerDatabase: the records of a layer. A task's trials are read from its segments when they are asked for."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator

from autotune.errors import DatabaseError
from autotune.records import fields, layer_cache
from autotune.records.block import Summary, Task
from autotune.records.connection import Connection
from autotune.records.database import Database
from autotune.records.exchange import add_items, parse_line
from autotune.records.layer_cache import UNREAD, Unread
from autotune.records.progress import Progress, Say
from autotune.records.record import Timed, TuningRecord
from autotune.records.segment_scan import Counting
from autotune.records.segments import ALTERED, Segments
from autotune.records.session import Session

DOUBTED = "the index beside segment {} counts other trials than there are; it is not believed any more"


class LayerDatabase(Database):
    """The cache of a layer, read-only, which grows by what is asked of it.

    Args:
        segments: where the rest is; None where the layer is out of reach.
        tell: of what cannot be read, once for each segment and cause.
        progress: what is said while much is read.
    """

    def __init__(self, cache: Connection, name: str, segments: Segments | None, tell: Say, progress: Say) -> None:
        super().__init__(cache, name)
        self._segments = segments
        self._tell, self._progress = tell, progress
        self._writer: Database | None = None
        self._asked: set[tuple[str | None, str | None]] = set()
        self._told: set[tuple[str, str]] = set()
        self._out_of_reach: set[str] = set()
        self._writable = True

    def close(self) -> None:
        if self._segments is not None:
            self._segments.close()
        if self._writer is not None:
            self._writer.close()
        super().close()

    def known_trials(self) -> int:
        """How many trials the layer has, read or not. One that is in several segments may count more than once."""
        (row,) = self.connection.rows(
            "SELECT (SELECT count(*) FROM trials) + "
            f"(SELECT coalesce(sum(b.trials), 0) FROM layer_blocks b WHERE {UNREAD}) AS n"
        )
        return int(row["n"])

    def read_all(self) -> None:
        """Reads everything that has not been read yet."""
        self._read("1", {})

    def has(self, record: TuningRecord) -> bool:
        self._read_task(record.workload_key, record.target_key)
        return super().has(record)

    def find(self, record: TuningRecord) -> TuningRecord | None:
        self._read_task(record.workload_key, record.target_key)
        return super().find(record)

    def times(self, workload_key: str, target_key: str, k: int, *, interface: str | None = None) -> list[Timed]:
        self._read_task(workload_key, target_key)
        return super().times(workload_key, target_key, k, interface=interface)

    def timed(self, workload_key: str, target_key: str, trial: Timed) -> TuningRecord | None:
        self._read_task(workload_key, target_key)
        return super().timed(workload_key, target_key, trial)

    def top(
        self,
        workload_key: str,
        target_key: str,
        k: int,
        *,
        interface: str | None = None,
        residency: str | None = None,
        disturbed: bool | None = None,
    ) -> list[TuningRecord]:
        self._read_task(workload_key, target_key)
        return super().top(workload_key, target_key, k, interface=interface, residency=residency, disturbed=disturbed)

    def trials(
        self,
        workload_key: str | None = None,
        target_key: str | None = None,
        *,
        interface: str | None = None,
        residency: str | None = None,
        damaged: list[str] | None = None,
        by_task: bool = False,
        steps: bool = True,
    ) -> Iterator[TuningRecord]:
        self._read_task(workload_key, target_key)
        return super().trials(
            workload_key,
            target_key,
            interface=interface,
            residency=residency,
            damaged=damaged,
            by_task=by_task,
            steps=steps,
        )

    def interfaces(self, workload_key: str, target_key: str) -> list[str]:
        self._read_task(workload_key, target_key)
        return super().interfaces(workload_key, target_key)

    def sessions(self) -> list[Session]:
        self._read("b.workload_id IS NULL", {})
        return super().sessions()

    def family(self, family_key: str, target_key: str) -> dict[str, str]:
        rows = self.connection.rows(
            "SELECT key, json FROM workloads WHERE family_key = :family_key AND id IN (SELECT workload_id "
            f"FROM layer_blocks b JOIN targets g ON g.id = target_id WHERE {UNREAD} AND verified > 0 "
            "AND g.key = :target_key)",
            {"family_key": family_key, "target_key": target_key},
        )
        found = super().family(family_key, target_key) | {row["key"]: row["json"] for row in rows}
        return dict(sorted(found.items()))

    def workload_keys(self, start: str) -> list[str]:
        unread = f"EXISTS (SELECT 1 FROM layer_blocks b WHERE {UNREAD} AND b.workload_id = workloads.id)"
        return sorted({*super().workload_keys(start), *self._keys(start, unread)})

    def unread(self) -> list[tuple[Task, Summary]]:
        """What indexes say of tasks of one block. Those of several are read: a trial may be in more than one."""
        self._read(
            "b.workload_id IS NULL OR (SELECT count(*) FROM layer_blocks o WHERE o.workload_id = b.workload_id "
            "AND o.target_id = b.target_id AND o.problem IS NULL) > 1",
            {},
        )
        return list(layer_cache.summaries(self.connection))

    def _targets(self, workload_key: str) -> dict[str, str]:
        rows = self.connection.rows(
            "SELECT key, json FROM targets WHERE id IN (SELECT target_id FROM layer_blocks b "
            f"WHERE {UNREAD} AND verified > 0 AND workload_id = (SELECT id FROM workloads WHERE key = :workload_key))",
            {"workload_key": workload_key},
        )
        return super()._targets(workload_key) | {row["key"]: row["json"] for row in rows}

    def _counts(self, workload_key: str) -> tuple[int, int]:
        self._read_task(workload_key, None)
        return super()._counts(workload_key)

    # Reading blocks

    def _read_task(self, workload_key: str | None, target_key: str | None) -> None:
        if (workload_key, target_key) not in self._asked:
            keys = {"workload": workload_key, "target": target_key}
            given = [f"b.{name}_id = (SELECT id FROM {name}s WHERE key = :{name})" for name, key in keys.items() if key]
            self._read(" AND ".join(given) or "1", {name: key for name, key in keys.items() if key})
            self._asked.add((workload_key, target_key))

    def _read(self, condition: str, parameters: dict[str, object]) -> None:
        """Brings the blocks that meet the condition into the cache. What cannot be read is told and left out."""
        blocks = list(layer_cache.unread(self.connection, condition, parameters))
        progress = Progress(self._progress, f"layer {self.name}: reading trials", len(blocks))
        for number, block in enumerate(blocks):
            if self._writable and block.segment not in self._out_of_reach:
                progress(number)
                self._read_block(block)

    def _read_block(self, block: Unread) -> None:
        lines = self._lines(block)
        if lines is None:
            return
        try:
            problem = self._store(block, lines)
        except DatabaseError as error:
            self._writable = False
            problem = f"its cache cannot be written: {error}"
        if problem is not None:
            self._say(block, problem)

    def _lines(self, block: Unread) -> bytes | None:
        """The bytes of a block, checked; None where that is told. It is not remembered: they may come back."""
        try:
            if self._segments is None:
                raise DatabaseError("the layer is out of reach")
            lines = self._segments.read(block.segment, block.extent)
        except DatabaseError as error:
            self._out_of_reach.add(block.segment)
            self._say(block, str(error))
            return None
        if hashlib.sha256(lines).hexdigest() != block.extent.sha256:
            self._say(block, ALTERED)
            return None
        return lines

    def _store(self, block: Unread, lines: bytes) -> str | None:
        """Adds a block to the cache, whole or not at all; what is wrong with it, which is remembered.

        Raises:
            DatabaseError: the cache cannot be written.
        """
        if self._writer is None:
            self._writer = Database.open(self.path)
        writer, problem = self._writer, None
        try:
            with writer.transaction():
                counting = Counting()
                add_items(writer, counting.through(_parsed(lines, block)))
                layer_cache.mark(writer.connection, block, None)
                wrong = block.summary is not None and counting.finished() != block.summary
                doubted = wrong and layer_cache.doubt(writer.connection, block.segment)
            if doubted:
                self._tell(f"layer {self.name}: {DOUBTED.format(fields.shortened(block.segment))}")
        except DatabaseError as error:
            if isinstance(error.__cause__, sqlite3.Error):
                raise
            problem = str(error).removeprefix(f"{writer.path}: ")
            with writer.transaction():
                layer_cache.mark(writer.connection, block, problem)
        return problem

    def _say(self, block: Unread, problem: str) -> None:
        if (block.segment, problem) not in self._told:
            self._told.add((block.segment, problem))
            self._tell(
                f"layer {self.name}: trials of {fields.shortened(block.description)} in segment "
                f"{fields.shortened(block.segment)} left out: {problem}"
            )


def _parsed(lines: bytes, block: Unread) -> Iterator[Session | TuningRecord]:
    """What a block holds; DatabaseError for anything but what it is said to hold."""
    for number, line in enumerate(lines.splitlines(keepends=True), 1):
        try:
            item = parse_line(line, True)
        except DatabaseError as error:
            raise DatabaseError(f"line {number} of the task: {error}") from None
        task = (item.workload_key, item.target_key) if isinstance(item, TuningRecord) else None
        if item is None or task != block.task:
            raise DatabaseError(f"line {number} of the task is of another")
        yield item
