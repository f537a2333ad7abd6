"""The tables, as migrations: each is applied in its own transaction together with the row that says so.

A migration that has been released is never edited; a change of the schema is a new one at the end.
docs/adr/0004-record-schema-and-keys.md explains the choices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from autotune.errors import DatabaseError
from autotune.records.details import pack

if TYPE_CHECKING:
    from sqlite_utils import Migrations


class Executes(Protocol):
    """What a step needs of a database: that of sqlite-utils has it, and that of Python."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Iterable[Any]: ...


APPLICATION_ID = 0x41544E45
"""Stored in the file's header: tells our files from other SQLite files."""
MIGRATION_SET = "autotune.records"
"""What our migrations are called in the table that lists those that a file has had."""


def migrations() -> Migrations:
    """The steps, in order, as sqlite-utils applies them."""
    from sqlite_utils import Migrations

    steps = Migrations(MIGRATION_SET)
    for name, step in STEPS.items():
        steps(name=name)(step)
    return steps


def _initial(db: Executes) -> None:
    for statement in _INITIAL:
        db.execute(statement)


_INITIAL = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    """
    CREATE TABLE workloads (
        key         TEXT PRIMARY KEY NOT NULL,
        anchor_key  TEXT,
        json        TEXT NOT NULL,
        description TEXT NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE INDEX workloads_anchor ON workloads (anchor_key)",
    "CREATE TABLE targets (key TEXT PRIMARY KEY NOT NULL, json TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE interfaces (key TEXT PRIMARY KEY NOT NULL, json TEXT NOT NULL) WITHOUT ROWID",
    """
    CREATE TABLE sessions (
        id        TEXT PRIMARY KEY NOT NULL,
        state     TEXT NOT NULL CHECK (state IN ('running', 'finished', 'interrupted')),
        started   REAL NOT NULL,
        heartbeat REAL NOT NULL,
        finished  REAL,
        pid       INTEGER NOT NULL,
        host      TEXT NOT NULL,
        command   TEXT NOT NULL,
        versions  TEXT NOT NULL
    )
    """,
    # session_id is provenance, not a reference: a record may outlive, or travel without, its session.
    """
    CREATE TABLE trials (
        id               INTEGER PRIMARY KEY,
        workload_key     TEXT NOT NULL REFERENCES workloads (key),
        target_key       TEXT NOT NULL REFERENCES targets (key),
        interface_key    TEXT NOT NULL REFERENCES interfaces (key),
        residency        TEXT NOT NULL,
        config_key       TEXT NOT NULL,
        config           TEXT NOT NULL,
        template         TEXT NOT NULL,
        steps            TEXT,
        ir_hash          TEXT NOT NULL,
        object_hash      TEXT NOT NULL,
        seconds          REAL CHECK (seconds > 0),
        spread           REAL,
        number           INTEGER,
        batches          INTEGER,
        probe_gflops     REAL,
        max_abs_err      REAL,
        max_rel_err      REAL,
        tolerance        REAL,
        verified         INTEGER NOT NULL CHECK (verified IN (0, 1)),
        failure_kind     TEXT,
        failure_message  TEXT,
        predicted        REAL,
        session_id       TEXT,
        created          REAL NOT NULL,
        llvm_version     TEXT NOT NULL,
        autotune_version TEXT NOT NULL,
        UNIQUE (workload_key, target_key, interface_key, residency, config_key),
        CHECK ((seconds IS NULL) <> (failure_kind IS NULL)),
        CHECK (verified = 0 OR seconds IS NOT NULL)
    )
    """,
    # Answers `best` and `top` without touching a row that cannot be the answer.
    """
    CREATE INDEX trials_best ON trials (workload_key, target_key, seconds, config_key) WHERE verified = 1
    """,
)


def _plans(db: Executes) -> None:
    db.execute(
        """
        CREATE TABLE plans (
            model_key       TEXT NOT NULL,
            target_key      TEXT NOT NULL,
            tuned           INTEGER NOT NULL CHECK (tuned IN (0, 1)),
            tuned_seconds   REAL NOT NULL CHECK (tuned_seconds > 0),
            untuned_seconds REAL NOT NULL CHECK (untuned_seconds > 0),
            session_id      TEXT,
            created         REAL NOT NULL,
            PRIMARY KEY (model_key, target_key)
        ) WITHOUT ROWID
        """
    )


def _replays(db: Executes) -> None:
    """The algorithm, without which stored steps have nothing to stand on; and no hash that nobody ever wrote."""
    db.execute("ALTER TABLE trials ADD COLUMN algorithm TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE trials DROP COLUMN object_hash")


def _families(db: Executes) -> None:
    """NULL until `Database.complete_families`: a migration knows no operators."""
    db.execute("ALTER TABLE workloads ADD COLUMN family_key TEXT")
    db.execute("CREATE INDEX workloads_family ON workloads (family_key)")


def _evidence(db: Executes) -> None:
    """What a verdict stands on, so that it can be told again, and is not given anew for the same programs."""
    for column in ("speedup REAL", "low REAL", "high REAL", "rounds INTEGER", "error REAL"):
        db.execute(f"ALTER TABLE plans ADD COLUMN {column}")
    db.execute("ALTER TABLE plans ADD COLUMN programs TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE plans ADD COLUMN asked_for INTEGER NOT NULL DEFAULT 0 CHECK (asked_for IN (0, 1))")


def _disturbed(db: Executes) -> None:
    """What was measured beside other programs comes last; of rows of before, the spread of their batches tells."""
    db.execute("ALTER TABLE trials ADD COLUMN disturbed INTEGER NOT NULL DEFAULT 0 CHECK (disturbed IN (0, 1))")
    db.execute("UPDATE trials SET disturbed = 1 WHERE spread > 0.5")
    db.execute("DROP INDEX trials_best")
    db.execute(
        "CREATE INDEX trials_best ON trials (workload_key, target_key, disturbed, seconds, config_key) "
        "WHERE verified = 1"
    )


def _compact(db: Executes) -> None:
    """Numbers for the keys that millions of rows repeat, and what no query asks for packed (`details`): a tenth."""
    for index in ("workloads_anchor", "workloads_family", "trials_best"):
        db.execute(f"DROP INDEX {index}")
    for table in _RENUMBERED:
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    for statement in _COMPACT:
        db.execute(statement)
    for table, columns in _RENUMBERED.items():
        if columns:
            db.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM old_{table} ORDER BY key")
    _pack_trials(db)
    for table in _RENUMBERED:
        db.execute(f"DROP TABLE old_{table}")


def _beside(db: Executes) -> None:
    """What ran beside a verdict's rounds, so that a repeated one says it, too."""
    db.execute("ALTER TABLE plans ADD COLUMN disturbance TEXT NOT NULL DEFAULT ''")


def _untuned(db: Executes) -> None:
    """Says that `details` may have `untuned_by`, which an autotune of before would take for damage."""


# Trials first: they refer to the others.
_RENUMBERED = {
    "trials": "",
    "workloads": "key, anchor_key, family_key, json, description",
    "targets": "key, json",
    "interfaces": "key, json",
}
_COMPACT = (
    """
    CREATE TABLE workloads (
        id          INTEGER PRIMARY KEY,
        key         TEXT NOT NULL UNIQUE,
        anchor_key  TEXT,
        family_key  TEXT,
        json        TEXT NOT NULL,
        description TEXT NOT NULL
    )
    """,
    "CREATE INDEX workloads_anchor ON workloads (anchor_key)",
    "CREATE INDEX workloads_family ON workloads (family_key)",
    "CREATE TABLE targets (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, json TEXT NOT NULL)",
    "CREATE TABLE interfaces (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, json TEXT NOT NULL)",
    # The details of the first trial that had steps; never deleted, because later ones are packed against them.
    """
    CREATE TABLE bases (
        id          INTEGER PRIMARY KEY,
        workload_id INTEGER NOT NULL REFERENCES workloads (id),
        template    TEXT NOT NULL,
        details     BLOB NOT NULL,
        UNIQUE (workload_id, template)
    )
    """,
    """
    CREATE TABLE trials (
        id           INTEGER PRIMARY KEY,
        workload_id  INTEGER NOT NULL REFERENCES workloads (id),
        target_id    INTEGER NOT NULL REFERENCES targets (id),
        interface_id INTEGER NOT NULL REFERENCES interfaces (id),
        residency    TEXT NOT NULL,
        config_key   TEXT NOT NULL,
        seconds      REAL CHECK (seconds > 0),
        verified     INTEGER NOT NULL CHECK (verified IN (0, 1)),
        disturbed    INTEGER NOT NULL CHECK (disturbed IN (0, 1)),
        failure_kind TEXT,
        created      REAL NOT NULL,
        base_id      INTEGER REFERENCES bases (id),
        details      BLOB NOT NULL,
        UNIQUE (workload_id, target_id, interface_id, residency, config_key),
        CHECK ((seconds IS NULL) <> (failure_kind IS NULL)),
        CHECK (verified = 0 OR seconds IS NOT NULL)
    )
    """,
    "CREATE INDEX trials_best ON trials (workload_id, target_id, disturbed, seconds) WHERE verified = 1",
    # Failures are counted, and the times told, without a look at the rows.
    "CREATE INDEX trials_failed ON trials (workload_id, target_id, failure_kind) WHERE failure_kind IS NOT NULL",
    "CREATE INDEX trials_created ON trials (created)",
)
_PACKED = (
    "algorithm", "autotune_version", "batches", "config", "failure_message", "ir_hash", "llvm_version", "max_abs_err",
    "max_rel_err", "number", "predicted", "probe_gflops", "session_id", "spread", "steps", "template", "tolerance",
)  # fmt: skip


def _pack_trials(db: Executes) -> None:
    bases: dict[tuple[int, str], tuple[int, bytes]] = {}
    rows = db.execute(
        "SELECT old_trials.id, workloads.id, targets.id, interfaces.id, residency, config_key, seconds, verified, "
        f"disturbed, failure_kind, created, {', '.join(_PACKED)} FROM old_trials "
        "LEFT JOIN workloads ON workloads.key = workload_key LEFT JOIN targets ON targets.key = target_key "
        "LEFT JOIN interfaces ON interfaces.key = interface_key ORDER BY old_trials.id"
    )
    for row in rows:
        kept = row[: -len(_PACKED)]
        values = {name: value for name, value in zip(_PACKED, row[-len(_PACKED) :]) if value not in (None, "")}
        if None in kept[:4] or any(isinstance(value, bytes) for value in values.values()):
            raise DatabaseError(f"trial {row[0]} is damaged")
        task = (kept[1], str(values["template"]))
        if task not in bases and "steps" in values:
            details = pack(values)
            db.execute("INSERT INTO bases (workload_id, template, details) VALUES (?, ?, ?)", (*task, details))
            bases[task] = (len(bases) + 1, details)
        base, dictionary = bases.get(task, (None, b""))
        marks = ", ".join("?" * (len(kept) + 2))
        db.execute(f"INSERT INTO trials VALUES ({marks})", (*kept, base, pack(values, dictionary)))


STEPS: dict[str, Callable[[Executes], None]] = {
    "0001_initial": _initial,
    "0002_plans": _plans,
    "0003_replays": _replays,
    "0004_families": _families,
    "0005_evidence": _evidence,
    "0006_disturbed": _disturbed,
    "0007_compact": _compact,
    "0008_beside": _beside,
    "0009_untuned": _untuned,
}

SAME_TABLES = frozenset({"0009_untuned"})
"""Steps that change no table: a file that has not had them is read as one that has."""
