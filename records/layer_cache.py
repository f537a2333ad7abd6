"""The cache of a layer: a database of the usual form, and which blocks of which segments are in it already."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from autotune.errors import DatabaseError
from autotune.records import fields
from autotune.records.block import Block, Extent, Summary, Task
from autotune.records.connection import Connection
from autotune.records.rows import listed

_TABLES = (
    """
    CREATE TABLE layer_segments (
        id      INTEGER PRIMARY KEY,
        name    TEXT NOT NULL UNIQUE,
        bytes   INTEGER NOT NULL,
        problem TEXT
    )
    """,
    # No task: sessions. Once read, the trials are in the table of trials; with a problem, they never will be.
    """
    CREATE TABLE layer_blocks (
        id           INTEGER PRIMARY KEY,
        segment_id   INTEGER NOT NULL REFERENCES layer_segments (id),
        workload_id  INTEGER REFERENCES workloads (id),
        target_id    INTEGER REFERENCES targets (id),
        ranges       BLOB NOT NULL,
        sha256       TEXT NOT NULL,
        trials       INTEGER,
        verified     INTEGER,
        failures     TEXT,
        best_seconds REAL,
        oldest       REAL,
        newest       REAL,
        is_read      INTEGER NOT NULL DEFAULT 0,
        problem      TEXT
    )
    """,
    "CREATE INDEX layer_blocks_task ON layer_blocks (workload_id, target_id)",
)
_DOUBTED = "CREATE TABLE IF NOT EXISTS layer_doubted (name TEXT PRIMARY KEY)"
UNREAD = "b.is_read = 0 AND b.problem IS NULL"
_PAGE = 500
_SHARED_TEXTS = {"workloads": "key, anchor_key, family_key, json, description", "targets": "key, json"}


@dataclass(frozen=True, slots=True)
class Unread:
    """A block that is not in the cache yet.

    Attributes:
        size: of its segment in bytes.
        task: keys of the workload and of the target; None for sessions.
        description: of the workload, for people.
        summary: what the index says that its trials come to; None of sessions.
    """

    id: int
    segment: str
    size: int
    extent: Extent
    task: tuple[str, str] | None
    description: str
    summary: Summary | None


def prepare(cache: Connection) -> None:
    """Makes the tables. What an older autotune read is read again."""
    with cache.transaction():
        if not cache.rows("SELECT 1 FROM sqlite_master WHERE name = 'layer_blocks'"):
            for statement in ("DELETE FROM trials", "DELETE FROM sessions", "DROP TABLE IF EXISTS segments", *_TABLES):
                cache.execute(statement)
        cache.execute(_DOUBTED)


def segments(cache: Connection) -> dict[str, tuple[int, str | None]]:
    """Those that were looked at: bytes, and what is wrong with them as a whole."""
    rows = cache.rows("SELECT name, bytes, problem FROM layer_segments")
    return {row["name"]: (row["bytes"], row["problem"]) for row in rows}


def problems(cache: Connection) -> list[str]:
    """What is wrong with segments and with blocks that were read, a line for each cause."""
    whole: dict[str, list[str]] = {}
    for name, (_, problem) in sorted(segments(cache).items()):
        if problem is not None:
            whole.setdefault(problem, []).append(name)
    found = [f"{listed('segment', names)} left out: {problem}" for problem, names in whole.items()]
    rows = cache.rows(
        "SELECT s.name, b.problem, w.description, count(*) AS n, sum(b.trials) AS trials FROM layer_blocks b "
        "JOIN layer_segments s ON s.id = b.segment_id LEFT JOIN workloads w ON w.id = b.workload_id "
        "WHERE b.problem IS NOT NULL GROUP BY s.name, b.problem ORDER BY s.name, b.problem"
    )
    for row in rows:
        of = f" of {fields.shortened(row['description'])}" if row["n"] == 1 else f" in {row['n']} blocks"
        found.append(f"segment {fields.shortened(row['name'])}: {row['trials']} trials{of} left out: {row['problem']}")
    return found


def forget(cache: Connection, wanted: dict[str, int]) -> set[str]:
    """Makes room where segments are gone or others now; which ones. What one of them had replaced is in others, so
    that the tasks that it had are read again."""
    with cache.transaction():
        gone = {name for name, (size, _) in segments(cache).items() if wanted.get(name) != size}
        for name in gone:
            (row,) = cache.rows("SELECT id FROM layer_segments WHERE name = ?", (name,))
            for statement in _FORGET:
                cache.execute(statement, row)
    return gone


_OF_SEGMENT = "(SELECT workload_id, target_id FROM layer_blocks WHERE segment_id = :id AND is_read = 1)"
_FORGET = (
    f"DELETE FROM trials WHERE (workload_id, target_id) IN {_OF_SEGMENT}",
    f"UPDATE layer_blocks SET is_read = 0 WHERE (workload_id, target_id) IN {_OF_SEGMENT}",
    "DELETE FROM sessions WHERE EXISTS (SELECT 1 FROM layer_blocks WHERE segment_id = :id AND workload_id IS NULL)",
    "UPDATE layer_blocks SET is_read = 0 WHERE workload_id IS NULL",
    "DELETE FROM layer_blocks WHERE segment_id = :id",
    "DELETE FROM layer_segments WHERE id = :id",
)


def add(cache: Connection, name: str, size: int, blocks: Iterable[Block]) -> None:
    """Notes the blocks of a segment, all or none.

    Raises:
        DatabaseError: what `blocks` raises; or a key already belongs to another text.
    """
    iterator = iter(blocks)
    with cache.transaction():
        if name in segments(cache):
            return  # another process was faster
        segment = remember(cache, name, size, None)
        while page := list(itertools.islice(iterator, _PAGE)):
            tasks = [block.task for block in page if block.task is not None]
            workloads = _numbers(
                cache, "workloads",
                {one.workload_key: (one.workload_key, one.anchor_key, one.family_key, one.workload, one.description)
                 for one in tasks}, {one.workload_key: one.workload for one in tasks},
            )  # fmt: skip
            targets = {one.target_key: one.target for one in tasks}
            numbers = _numbers(cache, "targets", {key: (key, text) for key, text in targets.items()}, targets)
            cache.execute_many(
                "INSERT INTO layer_blocks (segment_id, workload_id, target_id, ranges, sha256, trials, verified, "
                "failures, best_seconds, oldest, newest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (_row(segment, block, workloads, numbers) for block in page),
            )


def _numbers(
    cache: Connection, table: str, rows: dict[str, tuple[str | None, ...]], texts: dict[str, str]
) -> dict[str, int]:
    """The rows' numbers by key, stored where they are new."""
    columns = _SHARED_TEXTS[table]
    marks = ", ".join("?" * (columns.count(",") + 1))
    cache.execute_many(f"INSERT INTO {table} ({columns}) VALUES ({marks}) ON CONFLICT DO NOTHING", rows.values())
    keys = ", ".join("?" * len(texts))
    found = cache.rows(f"SELECT id, key, json FROM {table} WHERE key IN ({keys})", list(texts))
    for row in found:
        if row["json"] != texts[row["key"]]:
            raise DatabaseError(f"the key {row['key']} in {table} already belongs to {fields.shown(row['json'])}")
    return {row["key"]: row["id"] for row in found}


def _row(segment: int, block: Block, workloads: dict[str, int], targets: dict[str, int]) -> tuple[object, ...]:
    flat = list(itertools.chain.from_iterable(block.extent.ranges))
    where = (struct.pack(f"<{len(flat)}q", *flat), block.extent.sha256)
    if block.task is None or block.summary is None:
        return (segment, None, None, *where, *[None] * 6)
    of = block.summary
    counts = (of.trials, of.verified, json.dumps(of.failures), of.best_seconds, of.oldest, of.newest)
    return (segment, workloads[block.task.workload_key], targets[block.task.target_key], *where, *counts)


def remember(cache: Connection, name: str, size: int, problem: str | None) -> int:
    """Notes that a segment was looked at, and what is wrong with it as a whole; its number."""
    with cache.transaction():
        cache.execute("INSERT OR REPLACE INTO layer_segments (name, bytes, problem) VALUES (?, ?, ?)",
                                 (name, size, problem))  # fmt: skip
        (row,) = cache.rows("SELECT id FROM layer_segments WHERE name = ?", (name,))
    return int(row["id"])


def mark(cache: Connection, block: Unread, problem: str | None) -> None:
    """Notes that a block was read, or why it cannot be."""
    cache.execute(
        "UPDATE layer_blocks SET is_read = ?, problem = ? WHERE id = ?", (int(problem is None), problem, block.id)
    )


def doubt(cache: Connection, name: str) -> bool:
    """Notes that the index of a segment counts other trials than there are: the next look reads the segment itself.

    Returns:
        Whether that is news.
    """
    cache.execute(_DOUBTED)
    news = cache.execute("INSERT OR IGNORE INTO layer_doubted (name) VALUES (?)", (name,)) > 0
    if news:
        cache.execute("UPDATE layer_segments SET bytes = -1 WHERE name = ?", (name,))
    return news


def doubted(cache: Connection) -> set[str]:
    """The segments whose indexes are not to be believed."""
    return {row["name"] for row in cache.rows("SELECT name FROM layer_doubted")}


def unread(cache: Connection, condition: str, parameters: dict[str, object]) -> Iterator[Unread]:
    """The blocks (b) of workloads (w) on targets (g) that are not read yet and meet the condition."""
    found = cache.rows(f"SELECT b.id {_JOINED} AND ({condition}) ORDER BY b.id", parameters)
    ids = [row["id"] for row in found]
    for start in range(0, len(ids), _PAGE):
        page = ids[start : start + _PAGE]
        rows = cache.rows(
            "SELECT b.id, s.name AS segment, s.bytes AS size, b.ranges, b.sha256, w.key AS workload_key, "
            f"g.key AS target_key, w.description, {_COUNTS} {_JOINED} AND b.id IN ({', '.join('?' * len(page))})",
            page,
        )
        for row in rows:
            yield Unread(
                id=row["id"], segment=row["segment"], size=row["size"], extent=_extent(row),
                task=None if row["workload_key"] is None else (row["workload_key"], row["target_key"]),
                description=row["description"] or "sessions",
                summary=None if row["workload_key"] is None else _summary(row),
            )  # fmt: skip


_SUMMARY = ("trials", "verified", "failures", "best_seconds", "oldest", "newest")
_COUNTS = ", ".join(f"b.{name}" for name in _SUMMARY)
_JOINED = (
    "FROM layer_blocks b JOIN layer_segments s ON s.id = b.segment_id LEFT JOIN workloads w ON w.id = b.workload_id "
    f"LEFT JOIN targets g ON g.id = b.target_id WHERE {UNREAD}"
)


def _summary(row: dict[str, Any]) -> Summary:
    return Summary(**{**{name: row[name] for name in _SUMMARY}, "failures": json.loads(row["failures"])})


def _extent(row: dict[str, Any]) -> Extent:
    flat = struct.unpack(f"<{len(row['ranges']) // 8}q", row["ranges"])
    return Extent(ranges=tuple(zip(flat[::2], flat[1::2])), sha256=row["sha256"])


def summaries(cache: Connection) -> Iterator[tuple[Task, Summary]]:
    """Of the tasks that are one block, which is not read yet."""
    rows = cache.rows(
        "SELECT w.key AS workload_key, w.json AS workload, w.anchor_key, w.family_key, w.description, "
        f"g.key AS target_key, g.json AS target, {_COUNTS} "
        "FROM layer_blocks b JOIN workloads w ON w.id = b.workload_id JOIN targets g ON g.id = b.target_id "
        f"WHERE {UNREAD} AND NOT EXISTS (SELECT 1 FROM trials WHERE trials.workload_id = b.workload_id "
        "AND trials.target_id = b.target_id) GROUP BY b.workload_id, b.target_id HAVING count(*) = 1"
    )
    for row in rows:
        yield Task(**{name: row[name] for name in Task.__slots__}), _summary(row)
