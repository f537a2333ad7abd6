"""Looking after a database: check it, count what is in it, make it smaller."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autotune.errors import DatabaseError
from autotune.records import fields
from autotune.records.database import Database
from autotune.records.fields import text_key
from autotune.records.rows import ALONE, iterate_trials, listed


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of what a database holds; `failures` by kind, `sessions` by state, times in seconds since the epoch."""

    path: str
    schema: str
    size_bytes: int
    workloads: int
    targets: int
    trials: int
    verified: int
    unverified: int
    failures: dict[str, int]
    sessions: dict[str, int]
    oldest: float | None
    newest: float | None


def stats(db: Database) -> Stats:
    """What is in the database. DatabaseError where a time or a name in it is none."""

    def counts(sql: str) -> dict[str, int]:
        rows = db.connection.rows(sql)
        try:
            return {fields.key("a kind or state", row["name"]): row["n"] for row in rows}
        except DatabaseError as error:
            raise DatabaseError(f"{db.path} is damaged: {error}; run `autotune db verify`") from None

    unread = [summary for _, summary in db.unread()]
    trials = db.connection.rows(  # each from an index: the rows themselves may be gigabytes
        "SELECT (SELECT count(*) FROM trials) AS trials, (SELECT count(*) FROM trials WHERE verified = 1) AS verified, "
        "(SELECT min(created) FROM trials) AS oldest, (SELECT max(created) FROM trials) AS newest, "
        "(SELECT count(*) FROM workloads) AS workloads, (SELECT count(*) FROM targets) AS targets"
    )[0]
    pages = db.connection.rows("SELECT page_count * page_size AS bytes FROM pragma_page_count, pragma_page_size")[0]
    failures = Counter(
        counts("SELECT failure_kind AS name, count(*) AS n FROM trials WHERE failure_kind NOT NULL GROUP BY 1")
    )
    for summary in unread:
        failures.update(summary.failures)
    oldest = [time for time in (trials["oldest"], *(one.oldest for one in unread)) if time is not None]
    newest = [time for time in (trials["newest"], *(one.newest for one in unread)) if time is not None]
    number = trials["trials"] + sum(one.trials for one in unread)
    verified = trials["verified"] + sum(one.verified for one in unread)
    return Stats(
        path=str(db.path),
        schema=db.connection.schema,
        size_bytes=pages["bytes"],
        workloads=trials["workloads"],
        targets=trials["targets"],
        trials=number,
        verified=verified,
        unverified=number - verified - failures.total(),
        failures=dict(sorted(failures.items())),
        sessions=counts("SELECT state AS name, count(*) AS n FROM sessions GROUP BY 1 ORDER BY 1"),
        oldest=min((fields.number("created", time) for time in oldest), default=None),
        newest=max((fields.number("created", time) for time in newest), default=None),
    )


def verify(db: Database) -> list[str]:
    """What is wrong with the file, one line each; empty when all is well. Goes on after what it can."""
    checks: tuple[Callable[[Database], Iterator[str]], ...] = (
        _broken_pages,
        _broken_references,
        _broken_interfaces,
        _broken_sessions,
        _broken_trials,
    )
    problems: list[str] = []
    for check in checks:
        try:
            problems.extend(check(db))
        except DatabaseError as error:
            problems.append(str(error))
    return problems


def _broken_pages(db: Database) -> Iterator[str]:
    alike: dict[str, list[str]] = {}  # one page that is lost makes a line for each row that was on it
    for row in db.connection.rows("PRAGMA integrity_check"):
        if row["integrity_check"] != "ok":
            line = " ".join(str(row["integrity_check"]).split())
            alike.setdefault(re.sub(r"\d+", "", line), []).append(line)
    for first, *others in alike.values():
        yield f"{first}, and {len(others)} more like it" if others else first


def _broken_references(db: Database) -> Iterator[str]:
    broken: dict[tuple[str, str], list[int]] = {}
    for row in db.connection.rows("PRAGMA foreign_key_check"):
        broken.setdefault((row["table"], row["parent"]), []).append(row["rowid"])
    for (table, parent), ids in broken.items():
        refer = "refers" if len(ids) == 1 else "refer"
        yield f"{table}: {listed('row', ids)} {refer} to a row of {parent} that is not there"


def _broken_interfaces(db: Database) -> Iterator[str]:
    for row in db.connection.rows("SELECT key, json FROM interfaces"):
        if text_key(str(row["json"])) != row["key"]:
            yield f"interface {fields.shown(row['key'])}: the key does not belong to its JSON"


def _broken_sessions(db: Database) -> Iterator[str]:
    try:
        db.sessions()
    except DatabaseError as error:
        yield f"sessions: {error}"


def _broken_trials(db: Database) -> Iterator[str]:
    damaged: list[str] = []
    for _ in iterate_trials(db.connection, "1", {}, damaged):
        pass
    yield from (line for line in damaged if not line.endswith(ALONE))  # told as broken references


def prune(db: Database, keep: int) -> int:
    """Keeps the `keep` fastest verified trials of each task, and gives the space back; the number deleted.

    A task is a workload on a target with one interface and residency. Failures go too: a later search may
    propose the same configs again.
    """
    if keep < 1:
        raise DatabaseError(f"prune keeps at least 1 trial per task, got {keep}")
    with db.transaction():
        deleted = db.connection.execute(
            "DELETE FROM trials WHERE id NOT IN (SELECT id FROM (SELECT id, row_number() OVER ("
            "PARTITION BY workload_id, target_id, interface_id, residency "
            "ORDER BY disturbed, seconds, config_key) AS place FROM trials WHERE verified = 1) WHERE place <= ?)",
            (keep,),
        )
    db.connection.execute("VACUUM")
    # The emptied pages wait in the -wal file until a checkpoint; a busy reader only puts that off.
    db.connection.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    return deleted
