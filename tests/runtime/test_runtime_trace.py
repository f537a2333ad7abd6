"""The trace of a session: a track for each thread, and a file that others can read."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np

from autotune.runtime.threads import PlanTimes
from autotune.runtime.trace import RunTrace

TIMES = PlanTimes(np.array([2e-6, 3e-6]), np.array([[2e-6, 1e-6], [1e-6, 3e-6]]))


def saved(trace: RunTrace, path: Path) -> list[dict[str, Any]]:
    trace.save(path)
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


def test_kernels_lie_on_the_tracks_of_their_threads(tmp_path: Path) -> None:
    trace = RunTrace()
    trace.kernels(["a", "b"], 10.0, TIMES)
    events = saved(trace, tmp_path / "trace.json")
    spans = [(e["cat"], e["name"], e["tid"], round(e["ts"], 6), round(e["dur"], 6)) for e in events if e["ph"] == "X"]
    assert spans == [
        ("Node", "a", 0, 10.0, 2.0), ("Helper", "a", 1, 10.0, 1.0),
        ("Node", "b", 0, 12.0, 3.0), ("Helper", "b", 1, 12.0, 3.0),
    ]  # fmt: skip
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    assert names == {0: "caller 0", 1: "caller 0, helper 1"}


def test_threads_that_call_have_tracks_of_their_own(tmp_path: Path) -> None:
    trace = RunTrace()
    trace.span("Session", "model_run", 0.0, 1.0)
    other = threading.Thread(target=trace.kernels, args=(["a", "b"], 0.0, TIMES))
    other.start()
    other.join()
    events = saved(trace, tmp_path / "trace.json")
    assert {e["tid"] for e in events if e["ph"] == "X"} == {0, 1, 2}
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"caller 0", "caller 1", "caller 1, helper 1"}


def test_every_event_has_what_readers_of_such_files_ask_for(tmp_path: Path) -> None:
    trace = RunTrace()
    trace.kernels(["a", "b"], 0.0, TIMES)
    for event in saved(trace, tmp_path / "trace.json"):
        assert {"cat", "name", "ph", "pid", "tid", "ts", "dur", "args"} <= event.keys()
