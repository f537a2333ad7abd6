"""Session: one tuning run, so that a finished run can be told from an interrupted one."""

from __future__ import annotations

import dataclasses
import errno
import os
from dataclasses import dataclass
from enum import Enum

from autotune.errors import DatabaseError
from autotune.records import fields


class SessionState(str, Enum):
    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Times are seconds since the epoch. A running session renews `heartbeat`; `finished` is when it ended."""

    id: str
    state: SessionState = SessionState.RUNNING
    started: float
    heartbeat: float
    finished: float | None = None
    pid: int
    host: str
    command: str = ""
    versions: str = "{}"  # canonical JSON: autotune, llvm, python, ...

    def __post_init__(self) -> None:
        try:
            state = SessionState(self.state)
        except ValueError:
            known = ", ".join(state.value for state in SessionState)
            raise DatabaseError(f"a session's state is one of {known}, got {fields.shown(self.state)}") from None
        pid = fields.optional_count("pid", self.pid)
        if pid is None:
            raise DatabaseError("a session needs a pid")
        checked = {
            "id": fields.key("id", self.id),
            "state": state,
            "started": fields.number("started", self.started),
            "heartbeat": fields.number("heartbeat", self.heartbeat),
            "finished": fields.optional_number("finished", self.finished),
            "pid": pid,
            "host": fields.text("host", self.host),
            "command": fields.message("command", self.command) or "",
            "versions": fields.shared_json("versions", self.versions),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def to_mapping(self) -> dict[str, object]:
        """Plain values, as the database row and the exported line hold them."""
        return {**dataclasses.asdict(self), "state": self.state.value}

    @classmethod
    def from_mapping(cls, values: object) -> Session:
        """The session that `to_mapping` wrote; DatabaseError for anything else."""
        if not isinstance(values, dict):
            raise DatabaseError(f"a session must be a JSON object, got {type(values).__name__}")
        known = {field.name for field in dataclasses.fields(cls)}
        for name in sorted(known ^ set(values)):
            raise DatabaseError(f"a session {'needs the' if name in known else 'has no'} field {fields.shown(name)}")
        return cls(**values)

    def is_stale(self, now: float, timeout: float, host: str) -> bool:
        """Whether a running session has died: its process is gone from this host, or its heart has stopped.

        One that beat in the future stopped before a clock was set right: it would beat by that clock.
        """
        if self.state is not SessionState.RUNNING:
            return False
        return abs(now - self.heartbeat) > timeout or (self.host == host and not _process_exists(self.pid))


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # signal 0 asks, and sends nothing
    except OverflowError:
        return False
    except OSError as error:
        return error.errno != errno.ESRCH
    return True
