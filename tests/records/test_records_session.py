"""Sessions: running, finished, interrupted, and how a dead one is recognised."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import DatabaseError
from autotune.records import Database, Session, SessionState
from tests.records.records_samples import make_session

HERE = socket.gethostname()


def test_a_session_lives_and_ends(tmp_path: Path) -> None:
    with Database.open(tmp_path / "db.sqlite") as db:
        db.add_session(make_session())
        db.heartbeat("s1", 150.0)
        assert db.sessions() == [make_session(heartbeat=150.0)]
        db.finish("s1", SessionState.FINISHED, 200.0)
        assert db.sessions() == [make_session(state="finished", heartbeat=200.0, finished=200.0)]


def test_unknown_sessions_are_refused(tmp_path: Path) -> None:
    with Database.open(tmp_path / "db.sqlite") as db:
        with pytest.raises(DatabaseError, match="has no session 'nobody'"):
            db.heartbeat("nobody", 1.0)
        with pytest.raises(DatabaseError, match="has no session 'nobody'"):
            db.finish("nobody", SessionState.FINISHED, 1.0)
        with pytest.raises(DatabaseError, match="not as running"):
            db.finish("nobody", SessionState.RUNNING, 1.0)


def test_stale_sessions_are_marked_interrupted(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with Database.open(tmp_path / "db.sqlite") as db:
        db.add_session(make_session("fresh", heartbeat=195.0))
        db.add_session(make_session("silent", heartbeat=100.0))
        db.add_session(make_session("alive", heartbeat=195.0, host=HERE, pid=os.getpid()))
        db.add_session(make_session("gone", heartbeat=195.0, host=HERE, pid=dead.pid))
        db.add_session(make_session("absurd", heartbeat=195.0, host=HERE, pid=2**62))
        db.add_session(make_session("ahead", heartbeat=9e9))
        db.add_session(make_session("done", state="finished", finished=100.0))
        marked = db.mark_stale_sessions(200.0, host=HERE, timeout=60.0)
        states = {session.id: session.state.value for session in db.sessions()}
        assert {session.id for session in marked} == {"silent", "gone", "absurd", "ahead"}
        assert states == {
            "fresh": "running",
            "silent": "interrupted",
            "alive": "running",
            "gone": "interrupted",
            "absurd": "interrupted",
            "ahead": "interrupted",
            "done": "finished",
        }
        assert db.mark_stale_sessions(200.0, host=HERE, timeout=60.0) == []
        # A machine that slept is not dead: its next heartbeat says so.
        db.heartbeat("silent", 205.0)
        revived = next(session for session in db.sessions() if session.id == "silent")
        assert (revived.state, revived.finished) == (SessionState.RUNNING, None)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"state": "paused"}, "one of running, finished, interrupted"),
        ({"pid": 0}, "pid must be a positive integer"),
        ({"pid": None}, "needs a pid"),
        ({"started": float("nan")}, "started must be finite"),
        ({"versions": "{"}, "versions must be JSON"),
        ({"session_id": ""}, "id must be"),
    ],
)
def test_impossible_sessions_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(DatabaseError, match=said):
        make_session(**changes)


def test_mapping_both_ways() -> None:
    session = make_session(finished=3.0)
    assert Session.from_mapping(session.to_mapping()) == session
    refused: list[object] = [[], {"id": "x"}, {**session.to_mapping(), "colour": "red"}]
    for damaged in refused:
        with pytest.raises(DatabaseError, match="a session"):
            Session.from_mapping(damaged)
