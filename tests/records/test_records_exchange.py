"""Export, import and merge: nothing lost, nothing doubled, and bad lines named."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import DatabaseError
from autotune.records import (
    Database,
    MergeReport,
    TuningRecord,
    export_lines,
    export_records,
    import_records,
    merge_database,
)
from tests.records.records_samples import make_failure, make_record, make_session, records, target_json

HEADER = '{"format":"autotune-records","version":4}'


def content(db: Database) -> list[str]:
    return sorted(export_lines(db))


@settings(max_examples=25, deadline=None)
@given(st.lists(records(), max_size=8))
def test_export_and_import_round_trip(added: list[TuningRecord]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Database.open(folder / "a.sqlite") as db, Database.open(folder / "b.sqlite") as copy:
            db.add_many(added)
            db.add_session(make_session())
            count = export_records(db, folder / "out.jsonl")
            assert count == len(list(db.trials())) + 1
            report = import_records(copy, folder / "out.jsonl")
            assert report == MergeReport(added=count - 1, replaced=0, kept=0)
            assert content(copy) == content(db)
            again = import_records(copy, folder / "out.jsonl")
            assert again == MergeReport(added=0, replaced=0, kept=count - 1)
            assert content(copy) == content(db)


@settings(max_examples=25, deadline=None)
@given(st.lists(records(), max_size=8), st.lists(records(), max_size=8))
def test_merging_does_not_depend_on_the_order(first: list[TuningRecord], second: list[TuningRecord]) -> None:
    def plain(db: Database) -> set[tuple[object, ...]]:
        # What a workload is called is that of whoever came first.
        return {(*r.identity, r.created, r.seconds, r.failure_message, r.config) for r in db.trials()}

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Database.open(folder / "a.sqlite") as a, Database.open(folder / "b.sqlite") as b:
            a.add_many(first)
            b.add_many(second)
            with Database.open(folder / "ab.sqlite") as ab, Database.open(folder / "ba.sqlite") as ba:
                for db, sources in ((ab, (a, b, a)), (ba, (b, a))):
                    for source in sources:
                        merge_database(db, source)
                assert plain(ab) == plain(ba)
                assert {r.identity for r in ab.trials()} == {r.identity for r in (*a.trials(), *b.trials())}


def test_the_newer_trial_stays(tmp_path: Path) -> None:
    with Database.open(tmp_path / "a.sqlite") as db, Database.open(tmp_path / "b.sqlite") as other:
        db.add_many([make_record(1, created=5.0), make_record(2, created=5.0), make_record(3)])
        other.add_many([make_failure(1, created=6.0), make_record(2, created=4.0, seconds=1.0), make_record(4)])
        other.add_session(make_session())
        assert merge_database(db, other) == MergeReport(added=1, replaced=1, kept=1)
        assert list(db.trials()) == [
            make_failure(1, created=6.0),
            make_record(2, created=5.0),
            make_record(3),
            make_record(4),
        ]
        assert db.sessions() == [make_session()]
        db.heartbeat("s1", 500.0)
        merge_database(db, other)
        assert db.sessions() == [make_session(heartbeat=500.0)]


def test_what_is_dated_in_the_future_is_older_than_all_else(tmp_path: Path) -> None:
    """By a clock that was wrong: nobody knows when it was measured."""
    now = time.time()
    late, early, real = (make_record(1, created=at) for at in (now + 3e8, now + 2e8, now + 60.0))
    late_session, session = make_session(heartbeat=now + 3e8), make_session(heartbeat=now)
    with Database.open(tmp_path / "a.sqlite") as db, Database.open(tmp_path / "b.sqlite") as other:
        db.add(real)
        other.add(late)
        db.add_session(session)
        other.add_session(late_session)
        merge_database(db, other)
        merge_database(other, db)
        for one in (db, other):
            assert (list(one.trials()), one.sessions()) == ([real], [session])
        other.add(early)
        assert merge_database(other, db) == MergeReport(added=0, replaced=1, kept=0)


def test_an_export_takes_the_place_of_exports_alone(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"\x08\x07\x12 a model that took weeks")
    before = model.read_bytes()
    os.mkfifo(tmp_path / "pipe")
    with Database.open(tmp_path / "a.sqlite") as db:
        db.add(make_record(1))
        with pytest.raises(DatabaseError, match="is no export of records; name another file"):
            export_records(db, model)
        with pytest.raises(DatabaseError, match="no ordinary file"):
            export_records(db, tmp_path / "pipe")
        (tmp_path / "empty.jsonl").touch()
        for name in ("empty.jsonl", "new.jsonl", "new.jsonl"):
            assert export_records(db, tmp_path / name) == 1
    assert model.read_bytes() == before


def test_foreign_records_are_kept(tmp_path: Path) -> None:
    arm = make_record(1, target=target_json(arch="aarch64"))
    with Database.open(tmp_path / "a.sqlite") as db, Database.open(tmp_path / "b.sqlite") as other:
        other.add(arm)
        merge_database(db, other)
        assert list(db.trials()) == [arm]


def test_a_database_is_not_merged_into_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    (tmp_path / "link.sqlite").symlink_to(path)
    with (
        Database.open(path) as db,
        Database.open(tmp_path / "link.sqlite", read_only=True) as same,
        pytest.raises(DatabaseError, match="are the same file"),
    ):
        merge_database(db, same)


@pytest.mark.parametrize(
    "lines, said",
    [
        ([], "is empty"),
        ([make_record().to_json()], "line 1: no header"),
        (["\x00\x01binary"], "line 1: not JSON"),
        (['{"format":"other","version":1}'], "line 1: the format is 'other'"),
        (['{"format":"autotune-records","version":5}'], "line 1: format version 5, .* upgrade autotune"),
        ([HEADER, "{"], "line 2: not JSON"),
        ([HEADER, ""], "line 2: not JSON"),
        ([HEADER, "[]"], "line 2: neither a trial"),
        ([HEADER, "NaN"], "line 2: not JSON: NaN"),
        ([HEADER, "[" * 10**6], "line 2: not JSON: nested too deeply"),
        ([HEADER, '{"trial":{}}'], "line 2: a record needs the field 'workload_key'"),
        ([HEADER, '{"trial":[],"more":1}'], "line 2: neither a trial"),
        ([HEADER, '{"session":{}}'], "line 2: a session needs the field"),
        ([HEADER, f'{{"trial":{make_record().to_json()}}}', '{"trial":{"seconds":-1}}'], "line 3: a record needs"),
        ([HEADER, f'{{"trial":{make_record().to_json().replace("0.001", "-1")}}}'], "line 2: seconds must be greater"),
        ([HEADER, f'{{"trial":{make_record(1).to_json().replace("14]", "1e999]")}}}'], "line 2: Out of range float"),
        ([HEADER, "x" * (17 * 2**20)], "line 2: longer than"),
    ],
)
def test_a_bad_file_changes_nothing(tmp_path: Path, lines: list[str], said: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    with Database.open(tmp_path / "db.sqlite") as db:
        with pytest.raises(DatabaseError, match=said) as raised:
            import_records(db, path)
        assert str(path) in str(raised.value)
        assert len(str(raised.value)) < 400
        assert list(db.trials()) == []


def test_files_joined_with_cat_are_one_file(tmp_path: Path) -> None:
    with Database.open(tmp_path / "a.sqlite") as db:
        db.add(make_record(1))
        export_records(db, tmp_path / "1.jsonl")
        db.add(make_record(2))
        export_records(db, tmp_path / "2.jsonl")
    (tmp_path / "both.jsonl").write_bytes((tmp_path / "1.jsonl").read_bytes() + (tmp_path / "2.jsonl").read_bytes())
    with Database.open(tmp_path / "b.sqlite") as db:
        assert import_records(db, tmp_path / "both.jsonl") == MergeReport(added=2, replaced=0, kept=1)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with Database.open(tmp_path / "a.sqlite") as db:
        with pytest.raises(DatabaseError, match="cannot be read: No such file"):
            import_records(db, tmp_path / "missing.jsonl")
        with pytest.raises(DatabaseError, match="cannot be written: No such file"):
            export_records(db, tmp_path / "missing" / "out.jsonl")
        with pytest.raises(DatabaseError, match="cannot be written: Is a directory"):
            export_records(db, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.sqlite"]


def test_a_conflict_leaves_the_database_usable(tmp_path: Path) -> None:
    with Database.open(tmp_path / "a.sqlite") as db, Database.open(tmp_path / "b.sqlite") as other:
        db.add(make_record(1))
        other.add(make_record(9, workload='{"op":"new"}'))
        other.add(make_record(2, workload='{"op":"liar"}', workload_key=make_record().workload_key))
        with pytest.raises(DatabaseError, match="already belongs to"):
            merge_database(db, other)
        assert list(db.trials()) == [make_record(1)]
        db.add(make_record(9, workload='{"op":"new"}'))  # rolled back above, so it must be stored anew
        assert len(list(db.trials())) == 2
