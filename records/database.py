"""Database: the tuning database, one SQLite file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from autotune.arguments import checked
from autotune.errors import DatabaseError
from autotune.records import fields
from autotune.records.block import Summary, Task
from autotune.records.connection import Connection
from autotune.records.match import Match, TargetFit, Tier, fit_target
from autotune.records.plan import Plan, find_plan, store_plan
from autotune.records.record import Timed, TuningRecord
from autotune.records.rows import (
    Shared,
    equals,
    find_trial,
    has_trial,
    iterate_trials,
    read_trials,
    store_shared,
    store_trial,
)
from autotune.records.session import Session, SessionState


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """One workload on one target: how much was tried and the best verified seconds (None: none verified)."""

    workload_key: str
    anchor_key: str | None
    description: str
    target_key: str
    target: str
    trials: int
    verified: int
    failed: int
    best_seconds: float | None
    origin: str = ""  # what its database is called

    @classmethod
    def of(cls, task: Task, summary: Summary, origin: str) -> WorkloadSummary:
        """The same of trials that were counted elsewhere."""
        return cls(
            task.workload_key, task.anchor_key, task.description, task.target_key, task.target,
            summary.trials, summary.verified, sum(summary.failures.values()), summary.best_seconds, origin,
        )  # fmt: skip


class Database:
    """Tuning records in one file. Opened by one process for writing, and by any number for reading.

    Use it as a context manager, in the thread that opened it. Every method raises DatabaseError, one line,
    when the file cannot be read or written.
    """

    @checked(hint="Database.open(path) opens a file")
    def __init__(self, connection: Connection, name: str | None = None) -> None:
        self.connection = connection
        self.name = str(connection.path) if name is None else name
        # Workloads, targets and interfaces known to be stored: nothing ever deletes those.
        self._stored: dict[tuple[str, ...], Shared] = {}

    @classmethod
    @checked
    def open(
        cls,
        path: str | os.PathLike[str],
        read_only: bool = False,
        *,
        make_parents: bool = False,
        busy_seconds: float = 30.0,
        name: str | None = None,
    ) -> Database:
        """Opens `path`; unless `read_only`, creates it (with its folders if `make_parents`) or upgrades its schema.

        `busy_seconds` is how long to wait for another process that is writing; `name` what it is called, for people.
        """
        if make_parents and not read_only:
            parent = Path(path).parent
            try:
                parent.mkdir(parents=True, exist_ok=True)
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or error
                raise DatabaseError(f"the folder {str(parent)!r} cannot be created: {why}; name another file") from None
        return cls(Connection.open(path, read_only, busy_seconds), name)

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()

    @property
    def path(self) -> Path:
        return self.connection.path

    # Writing

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is written inside is stored together, or, after an exception, not at all."""
        try:
            with self.connection.transaction():
                yield
        except BaseException:
            self._stored.clear()
            raise

    @checked
    def add(self, record: TuningRecord) -> None:
        """Stores one trial in its own transaction; it replaces an earlier trial of the same identity."""
        self.add_many((record,))

    @checked
    def add_many(self, records: Iterable[TuningRecord]) -> None:
        """Stores all of `records`, or none."""
        with self.transaction():
            for record in records:
                texts = (record.workload_key, record.workload, record.target_key, record.target, record.interface)
                if texts not in self._stored:
                    self._stored[texts] = store_shared(self.connection, record)
                store_trial(self.connection, record, self._stored[texts])

    # Sessions

    def add_session(self, session: Session) -> None:
        """Stores a new session, or replaces the one of the same id."""
        with self.transaction():
            self.connection.execute(
                "INSERT OR REPLACE INTO sessions "
                "(id, state, started, heartbeat, finished, pid, host, command, versions) VALUES "
                "(:id, :state, :started, :heartbeat, :finished, :pid, :host, :command, :versions)",
                session.to_mapping(),
            )

    def heartbeat(self, session_id: str, now: float) -> None:
        """Says that the session lives at `now`; one that was taken for dead is running again."""
        self._update_session("state = 'running', finished = NULL, heartbeat = :now", session_id, now)

    def finish(self, session_id: str, state: SessionState, now: float) -> None:
        """Ends the session: FINISHED, or INTERRUPTED when there was more to do."""
        if state is SessionState.RUNNING:
            raise DatabaseError("a session ends as finished or interrupted, not as running")
        self._update_session(f"state = '{state.value}', heartbeat = :now, finished = :now", session_id, now)

    def _update_session(self, change: str, session_id: str, now: float) -> None:
        with self.transaction():
            changed = self.connection.execute(
                f"UPDATE sessions SET {change} WHERE id = :id", {"id": session_id, "now": now}
            )
        if not changed:
            raise DatabaseError(f"{self.path} has no session {session_id!r}")

    def mark_stale_sessions(self, now: float, *, host: str, timeout: float = 120.0) -> list[Session]:
        """Marks dead running sessions interrupted and returns them as they were.

        Dead: no heartbeat for `timeout` seconds, or started on this `host` by a process that is gone.
        """
        stale = [session for session in self.sessions() if session.is_stale(now, timeout, host)]
        if stale:
            with self.transaction():
                for session in stale:
                    self.connection.execute(
                        "UPDATE sessions SET state = 'interrupted', finished = heartbeat "
                        "WHERE id = ? AND state = 'running' AND heartbeat = ?",
                        (session.id, session.heartbeat),
                    )
        return stale

    def sessions(self) -> list[Session]:
        """All sessions, oldest first."""
        rows = self.connection.rows("SELECT * FROM sessions ORDER BY started, id")
        return [Session.from_mapping(row) for row in rows]

    # Plans

    def set_plan(self, plan: Plan) -> None:
        """Stores the verdict on a model, in place of an earlier one."""
        with self.transaction():
            store_plan(self.connection, plan)

    @checked
    def plan(self, model_key: str, target_key: str) -> Plan | None:
        """The verdict on a model on a target; None when it was never timed as a whole."""
        return find_plan(self.connection, model_key, target_key)

    # Reading

    @checked
    def best(
        self,
        workload_key: str,
        target_key: str,
        target: str,
        *,
        interface: str | None = None,
        residency: str | None = None,
    ) -> Match:
        """The fastest verified record of the workload, nearest to the target first, and how well it fits.

        Args:
            target: The target's JSON; it decides between compatible and foreign.
            interface: Canonical JSON of the layouts wanted; None means any.
            residency: Where the weights will be; records measured elsewhere are compatible. None means any.

        An exact match is to be confirmed by lowering it again: its IR hash is the identity of the code.
        """
        exact = self._fastest(workload_key, target_key, interface, residency)
        if exact is not None:
            beside = " beside other programs: tune again to be sure" if exact.disturbed else ""
            return Match(Tier.EXACT, f"measured on this target{beside}", exact)
        if residency is not None:
            elsewhere = self._fastest(workload_key, target_key, interface, None)
            if elsewhere is not None:
                reason = f"measured with weights in {elsewhere.residency or 'an unknown place'}, here {residency}"
                return Match(Tier.COMPATIBLE, reason, elsewhere)
        return self._best_of_other_targets(workload_key, target_key, target, interface, residency)

    def _best_of_other_targets(
        self, workload_key: str, target_key: str, target: str, interface: str | None, residency: str | None
    ) -> Match:
        found: list[tuple[TargetFit, TuningRecord]] = []
        for key, text in self._targets(workload_key).items():
            if key == target_key:
                continue
            record = self._fastest(workload_key, key, interface, residency)
            record = record or self._fastest(workload_key, key, interface, None)
            if record is not None:
                found.append((fit_target(text, target), record))
        if not found:
            return Match(Tier.MISS, self._why_missing(workload_key, interface))
        fit, record = min(
            found,
            key=lambda pair: (
                pair[0].tier is Tier.FOREIGN,
                pair[0].distance,
                pair[1].disturbed,
                pair[1].seconds,
                pair[1].target_key,
            ),
        )
        return Match(fit.tier, fit.reason, record)

    def _why_missing(self, workload_key: str, interface: str | None) -> str:
        trials, verified = self._counts(workload_key)
        if trials == 0:
            return "never tuned"
        if verified == 0:
            return f"{trials} trials, none verified"
        return "tuned, but not for this interface" if interface is not None else "tuned, but not readable"

    def _targets(self, workload_key: str) -> dict[str, str]:
        """The targets on which the workload has a verified record: JSON by key."""
        rows = self.connection.rows(
            "SELECT key, json FROM targets WHERE EXISTS (SELECT 1 FROM trials "
            f"WHERE {equals('workload_key')} AND target_id = targets.id AND verified = 1)",
            {"workload_key": workload_key},
        )
        return {row["key"]: row["json"] for row in rows}

    def _counts(self, workload_key: str) -> tuple[int, int]:
        """How many trials the workload has, and how many of them are verified."""
        row = self.connection.rows(
            f"SELECT count(*) AS n, coalesce(sum(verified), 0) AS good FROM trials WHERE {equals('workload_key')}",
            {"workload_key": workload_key},
        )[0]
        return row["n"], row["good"]

    def _fastest(
        self, workload_key: str, target_key: str, interface: str | None, residency: str | None
    ) -> TuningRecord | None:
        found = self.top(workload_key, target_key, 1, interface=interface, residency=residency)
        return found[0] if found else None

    @checked
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
        """The `k` fastest verified records of a workload on a target; ties by config key.

        Fastest first, those measured beside other programs after all others; or only those, or all but those.
        """
        where, parameters = _conditions(workload_key, target_key, interface, residency)
        order, parameters = _fastest_first(where, disturbed), {**parameters, "k": k, "disturbed": disturbed}
        return read_trials(self.connection, f"WHERE {order}", parameters)

    @checked
    def times(self, workload_key: str, target_key: str, k: int, *, interface: str | None = None) -> list[Timed]:
        """The `k` trials that `top` gives of those measured in quiet, and then of the others: what was timed in turn
        beside other programs is found behind any number of trials in quiet.

        Nothing but the times is read: a twentieth of the work.
        """
        where, parameters = _conditions(workload_key, target_key, interface, None)
        found: list[Timed] = []
        for disturbed in (False, True):
            rows = self.connection.rows(
                "SELECT interfaces.json AS interface, residency, config_key, seconds, created "
                "FROM trials JOIN interfaces ON interfaces.id = trials.interface_id "
                f"WHERE {_fastest_first(where, disturbed)}",
                {**parameters, "k": k, "disturbed": disturbed},
            )
            found += [Timed(**row) for row in rows]
        return found

    def timed(self, workload_key: str, target_key: str, trial: Timed) -> TuningRecord | None:
        """A trial of `times` as a whole; None where it has been deleted since."""
        interface_key = fields.text_key(trial.interface)
        identity = (workload_key, target_key, interface_key, trial.residency, trial.config_key)
        return find_trial(self.connection, identity)

    def has(self, record: TuningRecord) -> bool:
        """Whether there is a trial of this identity."""
        return has_trial(self.connection, record.identity)

    def find(self, record: TuningRecord) -> TuningRecord | None:
        """The trial of this identity, if there is one."""
        return find_trial(self.connection, record.identity)

    def origin(self, record: TuningRecord) -> str:
        """Where a record that was read comes from, for people."""
        return self.name

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
        """All trials, failures too, that have the given keys, in the order in which they were first stored.

        With `by_task`, those of one workload and target together, of each database; without `steps`, in two thirds of
        the time, as if none had been stored.

        A row that cannot be read is an error, or, when a list `damaged` is given, left out and named there.
        """
        where, parameters = _conditions(workload_key, target_key, interface, residency)
        return iterate_trials(self.connection, where, parameters, damaged, by_task, steps)

    def family(self, family_key: str, target_key: str) -> dict[str, str]:
        """The workloads of a family that have a verified record on the target: JSON by key.

        For transfer: their records guide the search, and are never applied.
        """
        rows = self.connection.rows(
            "SELECT key, json FROM workloads WHERE family_key = :family_key AND EXISTS (SELECT 1 FROM trials "
            f"WHERE workload_id = workloads.id AND {equals('target_key')} AND verified = 1) ORDER BY key",
            {"family_key": family_key, "target_key": target_key},
        )
        return {row["key"]: row["json"] for row in rows}

    def complete_families(self, family: Callable[[str], str | None]) -> None:
        """Stores the families of workloads that came without: from an older autotune or another's file.

        `family`: from a workload's JSON to the key; None where it cannot be told.
        """
        rows = self.connection.rows("SELECT key, json FROM workloads WHERE family_key IS NULL")
        found = {row["key"]: key for row in rows if (key := family(row["json"])) is not None}
        if found:
            with self.transaction():
                for workload, key in found.items():
                    self.connection.execute("UPDATE workloads SET family_key = ? WHERE key = ?", (key, workload))

    @checked
    def interfaces(self, workload_key: str, target_key: str) -> list[str]:
        """The interfaces (canonical JSON) for which the workload has a verified record on the target."""
        rows = self.connection.rows(
            "SELECT json FROM interfaces WHERE id IN (SELECT interface_id FROM trials "
            f"WHERE {equals('workload_key')} AND {equals('target_key')} AND verified = 1) ORDER BY key",
            {"workload_key": workload_key, "target_key": target_key},
        )
        return [row["json"] for row in rows]

    @checked
    def workload_keys(self, start: str) -> list[str]:
        """The keys that begin so, of workloads that have trials."""
        return self._keys(start, "EXISTS (SELECT 1 FROM trials WHERE workload_id = workloads.id)")

    def _keys(self, start: str, condition: str) -> list[str]:
        rows = self.connection.rows(
            f"SELECT key FROM workloads WHERE substr(key, 1, length(:start)) = :start AND ({condition}) ORDER BY key",
            {"start": start},
        )
        return [fields.key("a workload's key", row["key"]) for row in rows]

    def unread(self) -> list[tuple[Task, Summary]]:
        """What is known of tasks none of whose trials have been read yet: of layers, there are none here."""
        return []

    def workloads(self) -> list[WorkloadSummary]:
        """One summary per workload and target that has trials. DatabaseError where one of its texts is none."""
        rows = self.connection.rows(
            "SELECT w.key AS workload_key, w.anchor_key, w.description, g.key AS target_key, g.json AS target, trials, "
            f"(SELECT count(*) {_OF_TASK} AND verified = 1) AS verified, "
            f"(SELECT count(*) {_OF_TASK} AND failure_kind IS NOT NULL) AS failed, "
            f"(SELECT seconds {_OF_TASK} AND verified = 1 ORDER BY disturbed, seconds LIMIT 1) AS best_seconds "
            "FROM (SELECT workload_id, target_id, count(*) AS trials FROM trials GROUP BY workload_id, target_id) t "
            "JOIN workloads w ON w.id = t.workload_id JOIN targets g ON g.id = t.target_id "
            "ORDER BY w.description, workload_key, target_key"
        )
        for row in rows:
            try:
                for name, check in _SUMMARY.items():
                    check(name, row[name])
            except DatabaseError as error:
                raise DatabaseError(f"{self.path} is damaged: a workload's {error}; run `autotune db verify`") from None
        found = [WorkloadSummary(**row, origin=self.name) for row in rows]
        if unread := self.unread():
            found += [WorkloadSummary.of(task, summary, self.name) for task, summary in unread]
            found.sort(key=lambda one: (one.description, one.workload_key, one.target_key))
        return found


_OF_TASK = "FROM trials WHERE workload_id = t.workload_id AND target_id = t.target_id"
_SUMMARY: dict[str, Callable[[str, object], object]] = {
    "workload_key": fields.key,
    "anchor_key": fields.optional_key,
    "description": fields.text,
    "target_key": fields.key,
    "target": fields.text,
    "best_seconds": fields.positive,
}


def _conditions(
    workload_key: str | None, target_key: str | None, interface: str | None, residency: str | None
) -> tuple[str, dict[str, object]]:
    """A WHERE condition on trials and its parameters; None leaves a column free."""
    values = {
        "workload_key": workload_key,
        "target_key": target_key,
        "residency": residency,
        "interface_key": interface and fields.text_key(fields.shared_json("interface", interface)),
    }
    given: dict[str, object] = {name: value for name, value in values.items() if value is not None}
    return " AND ".join(map(equals, given)) or "1", given


def _fastest_first(where: str, disturbed: bool | None) -> str:
    """The condition on verified trials, their order, and their number `:k`."""
    chosen = "" if disturbed is None else " AND trials.disturbed = :disturbed"
    order = "trials.disturbed, trials.seconds, trials.config_key"
    return f"{where} AND trials.verified = 1{chosen} ORDER BY {order} LIMIT :k"
