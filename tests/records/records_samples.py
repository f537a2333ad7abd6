"""Records to test with: one plain maker and a Hypothesis strategy that uses every field."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from autotune.records import Session, SessionState, TuningRecord
from autotune.records.details import pack, unpack


def target_json(**changes: object) -> str:
    facts: dict[str, object] = {
        "arch": "x86_64",
        "cpu": "znver5",
        "features": ["avx2", "avx512f"],
        "num_threads": 1,
        "l1_bytes": 49152,
        "l2_bytes": 1048576,
        "l3_bytes": 33554432,
    }
    return json.dumps({**facts, **changes}, sort_keys=True, separators=(",", ":"))


def key_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


TARGET = target_json()
TARGET_KEY = key_of(TARGET)


def make_record(index: int = 0, **changes: Any) -> TuningRecord:
    """A verified record; `index` makes it another config of the same workload, slower by 1 µs each.

    Keys follow from changed JSON, unless they are given too.
    """
    values: dict[str, Any] = {
        "workload": '{"op":"conv2d"}',
        "description": "conv2d 64x64",
        "anchor_key": "anchor",
        "family_key": "family",
        "target": TARGET,
        "config": f'{{"template":"conv2d.direct","tile":{index}}}',
        "template": "conv2d.direct",
        "steps": '[["split","ow",14]]',
        "ir_hash": f"ir{index}",
        "seconds": 1e-3 + index * 1e-6,
        "verified": True,
        "created": 1000.0 + index,
    }
    values.update(changes)
    for name in ("workload", "target", "config"):
        values.setdefault(f"{name}_key", key_of(values[name]))
    return TuningRecord(**values)


def make_failure(index: int = 0, kind: str = "compile", **changes: Any) -> TuningRecord:
    return make_record(
        index, seconds=None, verified=False, failure_kind=kind, failure_message=f"{kind} went wrong", **changes
    )


def make_session(session_id: str = "s1", **changes: Any) -> Session:
    values: dict[str, Any] = {
        "id": session_id,
        "state": SessionState.RUNNING,
        "started": 100.0,
        "heartbeat": 100.0,
        "pid": 1,
        "host": "elsewhere",
        "command": "autotune tune",
        "versions": '{"autotune":"0.1"}',
    }
    return Session(**{**values, **changes})


def alter_details(path: Path, where: str = "1", **changes: str) -> None:
    """Changes what is packed of the trials that the condition selects, as nobody but damage does."""
    raw = sqlite3.connect(path)
    rows = raw.execute(
        "SELECT trials.id, trials.details, bases.details FROM trials LEFT JOIN bases ON bases.id = base_id "
        f"WHERE {where}"
    ).fetchall()
    for number, details, base in rows:
        packed = pack({**unpack(details, base), **changes})
        raw.execute("UPDATE trials SET details = ?, base_id = NULL WHERE id = ?", (packed, number))
    raw.commit()
    raw.close()


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_keys = st.text("abcdef0123456789", min_size=1, max_size=4)
_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=5,
)
_json = _json_values.map(json.dumps)
_objects = st.dictionaries(_texts, _json_values, max_size=3).map(json.dumps)
_positive = st.floats(min_value=1e-12, max_value=1e12)
_sizes = st.none() | st.floats(min_value=0, allow_nan=False)


@st.composite
def records(draw: st.DrawFn) -> TuningRecord:
    """Any valid record; small key alphabets, so that two of them often meet in the same row."""
    timed = draw(st.booleans())
    outcome: dict[str, Any]
    if timed:
        outcome = {"seconds": draw(_positive), "verified": draw(st.booleans())}
    else:
        outcome = {
            "failure_kind": draw(st.sampled_from(["compile", "timeout", "incorrect"])),
            "failure_message": draw(st.none() | _texts),
        }
    workload, target = draw(st.sampled_from("ab")), draw(st.sampled_from("xy"))
    return TuningRecord(
        workload_key=workload,
        workload=f'{{"op":"{workload}"}}',
        anchor_key=draw(st.none() | _keys),
        family_key=draw(st.none() | _keys),
        description=draw(_texts),
        target_key=target,
        target=target_json(cpu=target),
        interface=draw(_json),
        residency=draw(st.sampled_from(["", "L2", "DRAM"])),
        config_key=draw(_keys),
        config=draw(_objects),
        template=draw(_keys),
        steps=draw(st.none() | _json),
        ir_hash=draw(_keys),
        algorithm=draw(st.sampled_from(["", "direct", "winograd_f4"])),
        spread=draw(st.none() | st.floats(0, 10)),
        number=draw(st.none() | st.integers(1, 2**63 - 1)),
        batches=draw(st.none() | st.integers(1, 100)),
        probe_gflops=draw(st.none() | _positive),
        disturbed=draw(st.booleans()),
        max_abs_err=draw(_sizes),
        max_rel_err=draw(_sizes),
        tolerance=draw(st.none() | st.floats(0, 1)),
        predicted=draw(st.none() | st.floats(allow_nan=False, allow_infinity=False)),
        session_id=draw(st.none() | _keys),
        created=draw(st.floats(0, 2e9)),
        llvm_version=draw(_texts),
        autotune_version=draw(_texts),
        **outcome,
    )
