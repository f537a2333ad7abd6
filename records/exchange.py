"""Records on the move: JSON lines out and in, and another database merged in.

A file starts with a header line and holds one session or trial per line; every line stands for itself, so
files can be searched with grep and joined with cat. docs/concepts/records.md is the format's reference.

Both ways in are idempotent, and their order does not matter: of two trials of one identity the newer stays. One that
says it was made in the future comes from a machine whose clock was wrong: nobody knows when it was made, and it counts
as older than all others.
"""

from __future__ import annotations

import itertools
import os
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from autotune.errors import DatabaseError
from autotune.records import fields
from autotune.records.database import Database
from autotune.records.record import TuningRecord
from autotune.records.rows import find_trial
from autotune.records.session import Session

FORMAT = "autotune-records"
VERSION = 4
READABLE = (1, 2, 3, 4)
"""Version 1 knew no algorithms and no families, version 2 not what was disturbed, version 3 not which configs were the
untuned ones; their lines say all else alike."""
MAX_LINE = 16 * 2**20
_SKEW_SECONDS = 86400.0
"""How far clocks of two machines may differ, zones taken for others included."""
# Small transactions, so that a tuner that is writing to the same file never waits long.
_BATCH = 200

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What became of the trials that came in: `kept` ones met a trial of the same identity that was as new or newer."""

    added: int
    replaced: int
    kept: int


def export_lines(db: Database, damaged: list[str] | None = None) -> Iterator[str]:
    """The whole database as JSON lines, without line ends.

    A row that cannot be read is an error, or, when a list `damaged` is given, left out and named there.
    """
    yield _HEADER
    for session in db.sessions():
        yield _session_line(session)
    for record in db.trials(damaged=damaged):
        yield f'{{"trial":{record.to_json()}}}'


_HEADER = fields.dump_json({"format": FORMAT, "version": VERSION})


def _session_line(session: Session) -> str:
    return fields.dump_json({"session": {**session.to_mapping(), "versions": fields.embed(session.versions)}})


def new_lines(db: Database, known: Database, damaged: list[str] | None = None) -> Iterator[str]:
    """As `export_lines`, but for trials that `known` has as new or newer, and for sessions without others.

    Trials of one task stand together, so that they can be read as one piece.
    """
    yield _HEADER
    of: set[str | None] = set()
    latest = time.time() + _SKEW_SECONDS
    for record in db.trials(damaged=damaged, by_task=True):
        there = known.find(record)
        if there is None or _newer(record, there, latest):
            of.add(record.session_id)
            yield f'{{"trial":{record.to_json()}}}'
    for session in db.sessions():
        if session.id in of:
            yield _session_line(session)


def export_records(db: Database, path: str | os.PathLike[str], damaged: list[str] | None = None) -> int:
    """Writes `export_lines` to a file, whole or not at all; the number of lines after the header.

    DatabaseError where the file is there and is no such export, which one would not want to lose.
    """
    file = Path(path)
    _refuse_others(file)
    return write_lines(export_lines(db, damaged), file)


def _refuse_others(file: Path) -> None:
    """DatabaseError for what an export must not take the place of: devices, and files of another kind."""
    try:
        there = file.stat()
    except OSError:  # not there, or not to be written, which writing tells, as of folders
        return
    if stat.S_ISDIR(there.st_mode):
        return
    if not stat.S_ISREG(there.st_mode):
        raise DatabaseError(f"{file} is no ordinary file; name another, or - for standard output")
    if there.st_size:
        _, first = next(numbered_lines(file))
        try:
            parse_line(first, False)
        except DatabaseError:
            raise DatabaseError(f"{file} is there, and is no export of records; name another file") from None


def write_lines(lines: Iterable[str], file: Path) -> int:
    """Writes lines to a file, whole or not at all; how many, the header left out."""
    partial = file.with_name(f"{file.name}.{os.getpid()}.part")
    count = -1
    try:
        try:
            with partial.open("w", encoding="ascii", newline="\n") as out:
                for line in lines:
                    out.write(f"{line}\n")
                    count += 1
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise DatabaseError(f"{file} cannot be written: {error.strerror}") from None
    return count


def import_records(db: Database, path: str | os.PathLike[str]) -> MergeReport:
    """Adds what `export_records` wrote. The whole file is checked before anything is stored.

    DatabaseError names the first line that is not right.
    """
    file = Path(path)
    for _ in read_items(file):
        pass
    return add_items(db, read_items(file))


def merge_database(db: Database, other: Database) -> MergeReport:
    """Adds all sessions and trials of `other`, which is not changed."""
    if db.path.samefile(other.path):
        raise DatabaseError(f"{db.path} and {other.path} are the same file; merge another database into it")
    return add_items(db, itertools.chain(other.sessions(), other.trials()))


def add_items(db: Database, items: Iterable[Session | TuningRecord]) -> MergeReport:
    """Adds sessions and trials, but for trials that are older than those of the same identity."""
    added = replaced = kept = 0
    latest = time.time() + _SKEW_SECONDS
    for batch in _batches(items, _BATCH):
        with db.transaction():
            sessions: dict[str, Session] | None = None
            for item in batch:
                if isinstance(item, Session):
                    if sessions is None:
                        sessions = {session.id: session for session in db.sessions()}
                    known = sessions.get(item.id)
                    if known is None or _session_age(known, latest) < _session_age(item, latest):
                        db.add_session(item)
                        sessions[item.id] = item
                    continue
                stored = find_trial(db.connection, item.identity)
                if stored is not None and not _newer(item, stored, latest):
                    kept += 1
                    continue
                db.add(item)
                added += stored is None
                replaced += stored is not None
    return MergeReport(added, replaced, kept)


def _newer(one: TuningRecord, other: TuningRecord, latest: float) -> bool:
    """A total order, so that merging in any order ends the same.

    Args:
        latest: seconds since the epoch; what is dated later is so by a clock that was wrong.
    """
    mine, its = _date(one.created, latest), _date(other.created, latest)
    return mine > its or (mine == its and _outcome(one) > _outcome(other))


def _date(seconds: float, latest: float) -> tuple[bool, float]:
    """Greater is newer."""
    return seconds <= latest, seconds


def _outcome(record: TuningRecord) -> str:
    """What a workload is called is stored once per workload, so it says nothing about the trial."""
    return replace(record, anchor_key=None, family_key=None, description="").to_json()


def _session_age(session: Session, latest: float) -> tuple[bool, float, str]:
    return (*_date(session.heartbeat, latest), fields.dump_json(session.to_mapping()))


def _batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


def read_items(file: Path) -> Iterator[Session | TuningRecord]:
    """What a file of JSON lines holds. DatabaseError names the first line that is not right."""
    for number, raw in numbered_lines(file):
        try:
            item = parse_line(raw, number > 1)
        except DatabaseError as error:
            raise DatabaseError(f"{file}, line {number}: {error}") from None
        if item is not None:
            yield item


def numbered_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, from 1 on, each up to the first byte that is too much. DatabaseError where it has none."""
    number = 0
    try:
        with file.open("rb") as lines:
            while raw := lines.readline(MAX_LINE + 1):
                number += 1
                yield number, raw
    except OSError as error:
        raise DatabaseError(f"{file} cannot be read: {error.strerror}") from None
    if not number:
        raise DatabaseError(f"{file} is empty; `autotune db export` writes such files")


def parse_line(raw: bytes, started: bool) -> Session | TuningRecord | None:
    """The session or trial of one line; None for a header, which every file starts with."""
    if len(raw) > MAX_LINE:
        raise DatabaseError(f"longer than {MAX_LINE} bytes")
    try:
        values = fields.parse_json(raw.decode())
    except ValueError as error:
        raise DatabaseError(f"not JSON: {error}") from None
    match values:
        case {"format": str(name), "version": version}:
            if name != FORMAT:
                raise DatabaseError(f"the format is {name[:40]!r}, not {FORMAT!r}")
            if version not in READABLE:
                raise DatabaseError(
                    f"format version {fields.shown(version)}, this autotune reads up to {VERSION}; upgrade autotune"
                )
            return None
        case _ if not started:
            raise DatabaseError(f'no header: the first line must be {{"format":"{FORMAT}","version":{VERSION}}}')
        case {"trial": trial, **others} if not others:
            return TuningRecord.from_mapping(trial)
        case {"session": dict(session), **others} if not others:
            return Session.from_mapping({**session, "versions": fields.unembed(session.get("versions"))})
    raise DatabaseError("neither a trial, a session nor a header")
