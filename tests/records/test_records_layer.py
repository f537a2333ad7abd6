"""Layers: what others share is read, cached, verified; what is damaged, hostile or out of reach is one line."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import DatabaseError
from autotune.records import Database, Layer, TuningRecord, store
from autotune.records.schema import STEPS
from tests.records.records_samples import make_failure, make_record, make_session


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


def layer(location: object, tmp_path: Path) -> Layer:
    return Layer(str(location), tmp_path / "cache")


def database(path: Path, *records: TuningRecord) -> Database:
    db = Database.open(path)
    db.add_many(records)
    return db


def publish(location: object, tmp_path: Path, *records: TuningRecord) -> int:
    """Adds a segment, as somebody else does."""
    home = tmp_path / "elsewhere"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    with database(home / "db.sqlite", *records) as db:
        return layer(location, home).add(db, [])


def segment(folder: Path, content: bytes) -> Path:
    path = folder / f"{hashlib.sha256(content).hexdigest()}.jsonl"
    path.write_bytes(content)
    return path


def segments(folder: Path) -> set[Path]:
    return set(folder.glob("*.jsonl"))


def without_indexes(folder: Path) -> Path:
    """As an older autotune wrote it."""
    for index in folder.glob("*.index.gz"):
        index.unlink()
    return folder


def read(location: object, tmp_path: Path) -> tuple[list[TuningRecord], list[str]]:
    problems: list[str] = []
    found, records = layer(location, tmp_path).open(problems.append), []
    if found is not None:
        with found:
            assert found.name == str(location)
            records = in_order(*found.trials())
    for line in problems:
        assert line.startswith(f"layer {location}")
        assert "\n" not in line
        assert len(line) < 600
    return records, problems


def in_order(*records: TuningRecord) -> list[TuningRecord]:
    return sorted(records, key=lambda record: record.config_key)


def test_versions_of_autotune_that_share_a_cache_folder_have_caches_of_their_own(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(shared, tmp_path, make_record(1))
    with monkeypatch.context() as future:
        future.setitem(STEPS, "9999_future", lambda db: db.execute("CREATE TABLE extra (id INTEGER)"))
        assert read(shared, tmp_path) == ([make_record(1)], [])
    assert read(shared, tmp_path) == ([make_record(1)], [])


def test_each_export_adds_a_segment_of_what_is_new(shared: Path, tmp_path: Path) -> None:
    with database(tmp_path / "db.sqlite", make_record(1, session_id="s1"), make_failure(2)) as db:
        db.add_session(make_session("s1"))
        db.add_session(make_session("unused"))
        there = layer(shared, tmp_path)
        assert there.add(db, []) == 3
        assert there.add(db, []) == 0
        db.add_many([make_record(3), make_record(2, created=5000.0)])
        assert there.add(db, []) == 2
    assert len(segments(shared)) == len(list(shared.glob("*.index.gz"))) == 2
    records = in_order(make_record(1, session_id="s1"), make_record(2, created=5000.0), make_record(3))
    assert read(shared, tmp_path) == (records, [])
    found = there.open(print)
    assert found is not None
    with found:
        assert [session.id for session in found.sessions()] == ["s1"]


def test_segments_are_read_once(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(shared, tmp_path, make_record(1))
    assert read(shared, tmp_path) == ([make_record(1)], [])
    with monkeypatch.context() as patched:
        patched.setattr("autotune.records.store._Folder.fetch", None)
        assert read(shared, tmp_path) == ([make_record(1)], [])
    publish(shared, tmp_path, make_record(2))
    assert read(shared, tmp_path) == (in_order(make_record(1), make_record(2)), [])


def test_a_segment_that_goes_takes_its_records_along(shared: Path, tmp_path: Path) -> None:
    publish(shared, tmp_path, make_record(1))
    (older,) = segments(shared)
    publish(shared, tmp_path, make_record(1, created=5000.0), make_record(2))
    read(shared, tmp_path)
    (newer,) = segments(shared) - {older}
    newer.unlink()
    assert read(shared, tmp_path) == ([make_record(1)], [])


def test_what_is_out_of_reach_serves_what_was_read(shared: Path, tmp_path: Path) -> None:
    publish(shared, tmp_path, make_record(1))
    read(shared, tmp_path)
    shared.rename(tmp_path / "gone")
    records, (line,) = read(shared, tmp_path)
    assert records == [make_record(1)]
    assert line == f"layer {shared} serves 1 records: No such file or directory"
    never = tmp_path / "never"
    assert read(never, tmp_path)[1] == [f"layer {never} is left out: No such file or directory"]


def test_a_store_that_does_not_answer(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr("os.scandir", lambda path: time.sleep(2))
    assert read(shared, tmp_path)[1] == [f"layer {shared} is left out: no answer in 0.05 s"]


def test_what_cannot_be_published_names_the_place(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    layer = Layer(str(tmp_path / "file" / "shared"), tmp_path / "cache")
    with Database.open(tmp_path / "db.sqlite") as db, pytest.raises(DatabaseError) as raised:
        layer.add(db, [])
    assert str(raised.value) == f"layer {tmp_path / 'file' / 'shared'}: Not a directory"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"nonsense\n", "line 1: not JSON"),
        (b'{"format":"autotune-records","version":99}\n', "line 1: format version 99"),
        (b'{"format":"autotune-records","version":3}\n{"trial":{}}\n', "line 2: a record needs the field"),
        (b'{"format":"autotune-records","version":3}\n' + b"[" * 100_000 + b"\n", "line 2: not JSON"),
    ],
)
def test_a_segment_with_a_fault_is_left_out_as_a_whole(shared: Path, tmp_path: Path, content: bytes, said: str) -> None:
    publish(shared, tmp_path, make_record(1))
    (good,) = segments(shared)
    segment(shared, content or good.read_bytes()[:0])
    if content:
        segment(shared, good.read_bytes() + content)
    for _ in range(2):  # remembered, and said again
        records, problems = read(shared, tmp_path)
        assert records == [make_record(1)]
        assert any(said.removeprefix("line 1: ").removeprefix("line 2: ") in line for line in problems)


def test_an_altered_segment_is_noticed_before_it_is_read(shared: Path, tmp_path: Path) -> None:
    publish(shared, tmp_path, make_record(1))
    (path,) = segments(shared)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    records, (line,) = read(shared, tmp_path)
    assert records == []
    assert "these are not the bytes that its name stands for" in line
    path.write_bytes(whole)  # an upload that has come to its end
    assert read(shared, tmp_path) == ([make_record(1)], [])


def test_a_key_that_means_something_else(shared: Path, tmp_path: Path) -> None:
    publish(shared, tmp_path, make_record(1))
    publish(shared, tmp_path, make_record(2, workload='{"op":"other"}', workload_key=make_record().workload_key))
    records, (line,) = read(shared, tmp_path)
    assert len(records) == 1
    assert "already belongs to" in line


def test_other_files_are_named(shared: Path, tmp_path: Path) -> None:
    publish(shared, tmp_path, make_record(1))
    (shared / "records.jsonl").write_text("{}")
    (shared / "README.md").write_text("our records")
    (shared / f"{'0' * 64}.jsonl").mkdir()
    records, (line,) = read(shared, tmp_path)
    assert records == [make_record(1)]
    assert "file records.jsonl is no segment; `autotune db export FOLDER/` makes them" in line


def test_a_damaged_cache_says_what_to_do(shared: Path, tmp_path: Path) -> None:
    publish(shared, tmp_path, make_record(1))
    read(shared, tmp_path)
    (cache,) = (tmp_path / "cache").glob("*.sqlite")
    cache.write_bytes(b"damaged" * 1000)
    records, problems = read(shared, tmp_path)
    assert records == []
    assert f"delete {cache}, it is made anew" in problems[-1]
    cache.unlink()
    assert read(shared, tmp_path) == ([make_record(1)], [])


def test_a_cache_that_cannot_be_written_remembers_no_fault(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(shared, tmp_path, make_record(1))

    def full(*arguments: object) -> None:
        raise DatabaseError("the disk is full") from sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("autotune.records.layer_database.add_items", full)
        records, (line,) = read(shared, tmp_path)
        assert records == []
        assert line.endswith("left out: its cache cannot be written: the disk is full")
    publish(shared, tmp_path, make_record(2))
    with monkeypatch.context() as patched:
        patched.setattr("autotune.records.layer_cache.add", full)
        records, (line,) = read(shared, tmp_path)
        assert records == [make_record(1)]
        assert "serves 1 records: the disk is full" in line
    assert read(shared, tmp_path) == (in_order(make_record(1), make_record(2)), [])


def test_urls_are_read_and_written_by_fsspec(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    url = f"memory://{tmp_path.name}/records"
    assert publish(url, tmp_path, make_record(1)) == 1
    assert read(url, tmp_path) == ([make_record(1)], [])
    assert "layer memory://nothing/here is left out: " in read("memory://nothing/here", tmp_path)[1][0]
    assert "is left out: Protocol not known: nosuch" in read("nosuch://a/b", tmp_path)[1][0]


@settings(max_examples=10, deadline=None)
@given(data=st.data(), renamed=st.booleans())
def test_random_damage_is_said_and_the_rest_served(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, renamed: bool
) -> None:
    tmp_path = tmp_path_factory.mktemp("layer")
    shared = tmp_path / "shared"
    shared.mkdir()
    publish(shared, tmp_path, make_record(1), make_failure(2), make_record(3, spread=0.25))
    (path,) = segments(shared)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.integers(0, len(content) - 1))
        content[where : where + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path.unlink()
    damaged = segment(shared, bytes(content)) if renamed else path
    damaged.write_bytes(bytes(content))
    publish(shared, tmp_path, make_record(9))
    records, problems = read(shared, tmp_path)
    # A hostile one may use the key of the workload or of the target first, with another text or description.
    told = {record.description for record in records}
    assert any(make_record(9, description=text) in records for text in told) or problems
    for record in records:
        json.loads(record.to_json())
    again, said = read(shared, tmp_path)  # of trials: the first time when they are read, then when the layer is opened
    assert again == records
    assert bool(said) == bool(problems)
