"""A layer that was only opened answers as a database with all of its records would, and reads no more than is asked."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.records import Database, Layer, TuningRecord, fields, merge_database, progress, stats, store
from autotune.records.block import Block
from autotune.records.layer_database import DOUBTED, LayerDatabase
from autotune.records.segment_index import read_index, write_index
from tests.records.records_samples import TARGET, TARGET_KEY, make_failure, make_record, make_session, records

KEY = make_record().workload_key
OTHER = make_record(1, workload='{"op":"other"}', description="another operator")


@contextlib.contextmanager
def opened(location: object, folder: Path) -> Iterator[tuple[LayerDatabase, list[str]]]:
    told: list[str] = []
    found = Layer(str(location), folder / "cache").open(told.append)
    assert found is not None
    with found:
        yield found, told


def publish(location: object, folder: Path, *content: TuningRecord) -> None:
    """One segment more."""
    number = len(list(folder.glob("*.sqlite")))
    with Database.open(folder / f"{number}.sqlite") as db:
        db.add_session(make_session(f"s{number}"))
        db.add_many(content)
        Layer(str(location), folder / "elsewhere").add(db, [])


def unread(db: LayerDatabase) -> int:
    return int(db.connection.rows("SELECT count(*) AS n FROM layer_blocks WHERE is_read = 0")[0]["n"])


def plain(record: TuningRecord) -> TuningRecord:
    """Without what is stored once per workload, whoever comes first."""
    return dataclasses.replace(record, anchor_key=None, description=record.workload, family_key="family")


def answers(db: Database) -> dict[str, Any]:
    """What can be asked, counts first: what is read for one answer must not be needed for another."""
    counted = stats(db)
    found: dict[str, Any] = {
        "keys": db.workload_keys(""),
        "family": (db.family("family", "x"), db.family("family", "z")),
        "stats": (counted.trials, counted.verified, counted.unverified, counted.failures),
        "dates": (counted.oldest, counted.newest),
        "workloads": [
            (one.workload_key, one.target_key, one.trials, one.verified, one.failed, one.best_seconds)
            for one in db.workloads()
        ],
    }
    for workload in "ab":
        found[f"elsewhere {workload}"] = db.best(workload, "z", TARGET).tier
        for target in "xy":
            found[f"top {workload} {target}"] = [
                (one.disturbed, one.seconds, one.config_key) for one in db.top(workload, target, 3)
            ]
            found[f"interfaces {workload} {target}"] = db.interfaces(workload, target)
    found["trials"] = sorted(db.trials(), key=lambda record: record.identity)
    return found


@settings(max_examples=12, deadline=None)
@given(st.lists(st.lists(records().map(plain), min_size=1, max_size=6), min_size=1, max_size=3), st.booleans())
def test_a_layer_answers_as_a_database(
    tmp_path_factory: pytest.TempPathFactory, segments: list[list[TuningRecord]], indexed: bool
) -> None:
    folder = tmp_path_factory.mktemp("layer")
    with Database.open(folder / "merged") as merged:
        for content in segments:
            publish(folder / "shared", folder, *content)
            with Database.open(folder / f"{len(list(folder.glob('*.sqlite'))) - 1}.sqlite", read_only=True) as part:
                merge_database(merged, part)
        for index in () if indexed else (folder / "shared").glob("*.index.gz"):
            index.unlink()
        with opened(folder / "shared", folder) as (db, told):
            assert answers(db) == answers(merged)
        assert told == []


def test_opening_reads_no_trials_and_asking_those_of_one_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    publish(shared, tmp_path, make_record(1, session_id="s0"), make_record(2), OTHER, make_failure(3))
    (segment,) = shared.glob("*.jsonl")
    with monkeypatch.context() as patched:
        patched.setattr("autotune.records.store._Folder.open", None)
        patched.setattr("autotune.records.segment_scan.scan", None)
        with opened(shared, tmp_path) as (db, told):
            assert (unread(db), db.known_trials()) == (3, 4)
    with opened(shared, tmp_path) as (db, told):
        before = unread(db)
        assert db.best(KEY, TARGET_KEY, TARGET).record == make_record(1, session_id="s0")
        assert unread(db) == before - 1
        assert {one.description: (one.trials, one.failed) for one in db.workloads()} == {
            make_record().description: (3, 1), OTHER.description: (1, 0),
        }  # fmt: skip
        assert stats(db).trials == db.known_trials() == 4
        assert [session.id for session in db.sessions()] == ["s0"]
        assert unread(db) == 1
        db.read_all()
        assert (unread(db), told) == (0, [])
    segment.rename(tmp_path / "away")
    (shared / segment.name).write_bytes((tmp_path / "away").read_bytes())
    with opened(shared, tmp_path) as (db, told):
        assert (len(list(db.trials())), told) == (4, [])


def test_a_damaged_block_is_told_once_and_the_rest_is_used(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    publish(shared, tmp_path, make_record(1), make_record(2), OTHER)
    (segment,) = shared.glob("*.jsonl")
    whole = segment.read_bytes()
    segment.write_bytes(whole.replace(b'"config_key":"', b'"config_key":"X', 1)[: len(whole) - 1] + b"\n")
    for _ in range(2):
        with opened(shared, tmp_path) as (db, told):
            found = list(db.trials())
            assert db.top(KEY, TARGET_KEY, 9) == [one for one in found if one.workload_key == KEY]
            assert [db.timed(KEY, TARGET_KEY, one) for one in db.times(KEY, TARGET_KEY, 9)] == db.top(
                KEY, TARGET_KEY, 9
            )
            assert told
            assert all("left out: these are not the bytes that its name stands for" in line for line in told)
            assert len(told) == 1
    segment.write_bytes(whole)
    with opened(shared, tmp_path) as (db, told):
        assert (len(list(db.trials())), told) == (3, [])


def test_a_block_whose_index_lies_is_remembered(tmp_path: Path) -> None:
    """The bytes are those that the index says, and are not what it says."""
    shared = tmp_path / "shared"
    publish(shared, tmp_path, make_record(1), OTHER)
    (segment,), (index,) = shared.glob("*.jsonl"), shared.glob("*.index.gz")
    blocks = list(read_index(index, segment.stat().st_size))
    index.unlink()
    first, second = blocks
    write_index([Block(first.extent, second.task, second.summary), second], segment.stat().st_size, index)
    index.rename(shared / f"{segment.stem}.{store.sha256(index)}.index.gz")
    for _ in range(2):
        with opened(shared, tmp_path) as (db, told):
            (left,) = db.trials()
            assert left in (make_record(1), OTHER)
            (line,) = told
            assert line.endswith("left out: line 1 of the task is of another")


def test_an_index_that_counts_wrongly_is_not_believed_again(tmp_path: Path) -> None:
    """Its claims serve lists until a task of it is read; then the segment itself is counted."""
    shared = tmp_path / "shared"
    publish(shared, tmp_path, make_record(1), make_record(2), OTHER)
    (segment,), (index,) = shared.glob("*.jsonl"), shared.glob("*.index.gz")
    blocks = list(read_index(index, segment.stat().st_size))
    index.unlink()
    lies = [
        Block(one.extent, one.task, one.summary and replace(one.summary, trials=9, best_seconds=1e-12))
        for one in blocks
    ]
    write_index(lies, segment.stat().st_size, index)
    index.rename(shared / f"{segment.stem}.{store.sha256(index)}.index.gz")
    with opened(shared, tmp_path) as (db, told):
        assert stats(db).trials == 18
        assert db.top(KEY, TARGET_KEY, 9) == [make_record(1), make_record(2)]
        assert [line.partition(": ")[2] for line in told] == [DOUBTED.format(fields.shortened(segment.name))]
    with opened(shared, tmp_path) as (db, told):
        assert stats(db).trials == 3
        assert {one.best_seconds for one in db.workloads()} == {make_record(1).seconds, OTHER.seconds}
        assert told == []


def test_a_segment_that_is_gone_when_it_is_asked_for(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    publish(shared, tmp_path, make_record(1), OTHER)
    publish(shared, tmp_path, make_record(5))
    with opened(shared, tmp_path) as (db, told):
        for segment in shared.glob("*.jsonl"):
            segment.unlink()
        assert list(db.trials()) == []
        assert len(told) == 2
        assert all(line.endswith("left out: No such file or directory") for line in told)


def test_a_store_without_ranges_is_copied_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    url = f"memory://{tmp_path.name}/whole"
    publish(url, tmp_path, make_record(1), OTHER)

    class Stream(io.BytesIO):
        def seek(self, offset: int, whence: int = 0) -> int:
            raise ValueError("The HTTP server doesn't appear to support range requests")

    fetched: list[str] = []
    fetch = store._Remote.fetch

    def counting(self: store._Remote, name: str, path: Path, limit: int) -> str:
        fetched.append(name)
        return fetch(self, name, path, limit)

    monkeypatch.setattr(store._Remote, "open", lambda self, name: Stream())
    monkeypatch.setattr(store._Remote, "fetch", counting)
    for _ in range(2):
        with opened(url, tmp_path) as (db, told):
            assert db.best(KEY, TARGET_KEY, TARGET).record == make_record(1)
            assert list(db.top(OTHER.workload_key, TARGET_KEY, 1)) == [OTHER]
            assert told == []
    assert [name.partition(".")[2][-8:] for name in fetched] == ["index.gz", "jsonl"]


def test_long_reading_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(progress, "LATER_SECONDS", 0.0)
    shared = tmp_path / "shared"
    publish(shared, tmp_path, make_record(1), OTHER)
    said: list[str] = []
    found = Layer(str(shared), tmp_path / "cache", said.append).open(print)
    assert found is not None
    with found:
        found.read_all()
    assert said == [f"layer {shared}: reading indexes: 0 %"] + [
        f"layer {shared}: reading trials: {share} %" for share in (0, 50)
    ]
