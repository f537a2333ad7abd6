"""Every injected fault is a DatabaseError of one line: what, where, what to do. Never a crash, never a silent loss."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlite_utils import Database as SqliteDatabase

from autotune.errors import DatabaseError, InputError
from autotune.records import Database
from autotune.records.schema import STEPS, migrations
from tests.records.records_samples import TARGET, TARGET_KEY, alter_details, make_record, make_session

ROOT = Path(__file__).parents[2]
WORKLOAD_KEY = make_record().workload_key


def filled(path: Path, count: int = 40) -> Path:
    with Database.open(path) as db:
        db.add_session(make_session())
        db.add_many(make_record(i) for i in range(count))
    return path


def refused(path: Path, read_only: bool) -> str:
    with pytest.raises(DatabaseError) as raised:
        Database.open(path, read_only, busy_seconds=0.05)
    said = str(raised.value)
    assert "\n" not in said
    assert path.name in said or str(path.parent) in said
    return said


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("content", [b"not a database, but a text of some length\n" * 50, os.urandom(5000), b"short"])
def test_a_file_that_is_not_sqlite(tmp_path: Path, content: bytes, read_only: bool) -> None:
    path = tmp_path / "db.sqlite"
    path.write_bytes(content)
    assert "not a SQLite file" in refused(path, read_only)
    assert path.read_bytes() == content


@pytest.mark.parametrize("read_only", [False, True])
def test_a_database_of_another_program(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "db.sqlite"
    raw = sqlite3.connect(path)
    raw.execute("CREATE TABLE trials (id INTEGER)")
    raw.commit()
    raw.close()
    before = path.read_bytes()
    assert "another program" in refused(path, read_only)
    assert path.read_bytes() == before


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_schema(tmp_path: Path, read_only: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path / "db.sqlite")
    with monkeypatch.context() as future:
        future.setitem(STEPS, "9999_future", lambda db: db.execute("CREATE TABLE extra (id INTEGER)"))
        Database.open(path).close()
    assert "newer autotune (schema 9999_future); upgrade autotune" in refused(path, read_only)


def test_an_older_schema_is_upgraded_by_a_writer_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path / "db.sqlite")
    monkeypatch.setitem(STEPS, "0999_next", lambda db: db.execute("CREATE TABLE extra (id INTEGER)"))
    assert "older autotune; run `autotune db upgrade" in refused(path, read_only=True)
    Database.open(path).close()
    with Database.open(path, read_only=True) as db:
        assert len(list(db.trials())) == 40
        assert db.connection.rows("SELECT * FROM extra") == []


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path / "db.sqlite")

    def halfway(db: SqliteDatabase) -> None:
        db.execute("CREATE TABLE halfway (id INTEGER)")
        db.execute("CREATE TABLE trials (id INTEGER)")  # exists

    with monkeypatch.context() as broken:
        broken.setitem(STEPS, "0998_fine", lambda db: db["fine"].create({"id": int}))
        broken.setitem(STEPS, "0999_broken", halfway)
        assert "already exists" in refused(path, read_only=False)
    raw = SqliteDatabase(path)
    applied = [step.name for step in migrations().applied(raw)]
    tables = raw.table_names()
    raw.close()
    assert applied == [*STEPS, "0998_fine"]
    assert "fine" in tables
    assert "halfway" not in tables


@pytest.mark.parametrize("read_only", [False, True])
def test_paths_that_cannot_be_databases(tmp_path: Path, read_only: bool) -> None:
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    assert "is a folder" in refused(tmp_path, read_only)
    assert "not a regular file" in refused(tmp_path / "pipe", read_only)
    for missing in (tmp_path / "missing" / "db.sqlite", tmp_path / "file" / "db.sqlite"):
        said = refused(missing, read_only)
        assert "does not exist" in said if read_only else "is not a folder" in said
    with pytest.raises(InputError, match="path must be a path, not 'nul"):
        Database.open("nul\0byte", read_only)


def test_a_missing_file_is_created_by_a_writer_only(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    assert "does not exist; `autotune tune` creates it" in refused(path, read_only=True)
    assert not path.exists()
    path.touch()
    assert "is empty" in refused(path, read_only=True)
    Database.open(path).close()
    Database.open(path, read_only=True).close()


def test_parents_are_made_on_request(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "db.sqlite"
    Database.open(path, make_parents=True).close()
    assert path.exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(DatabaseError, match="the folder .* cannot be created"):
        Database.open(tmp_path / "file" / "b" / "db.sqlite", make_parents=True)


def test_a_locked_database(tmp_path: Path) -> None:
    path = filled(tmp_path / "db.sqlite", 1)
    with Database.open(path, busy_seconds=0.05) as db, Database.open(path, read_only=True) as reader:
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        assert "being written by another process" in refused(path, read_only=False)
        with pytest.raises(DatabaseError, match="being written by another process"):
            db.add(make_record(9))
        assert len(list(reader.trials())) == 1  # readers do not wait
        holder.execute("ROLLBACK")
        holder.close()
        db.add(make_record(9))
        assert len(list(reader.trials())) == 2


def test_a_full_disk_loses_nothing_stored(tmp_path: Path) -> None:
    path = filled(tmp_path / "db.sqlite", 1)
    with Database.open(path) as db:
        pages = db.connection.rows("PRAGMA page_count")[0]["page_count"]
        db.connection.rows(f"PRAGMA max_page_count = {pages + 2}")

        def add_until_full() -> None:
            for index in range(1, 1000):
                db.add(make_record(index))
                stored.append(make_record(index))

        stored = [make_record(0)]
        with pytest.raises(DatabaseError, match="the disk is full; free some space"):
            add_until_full()
        assert list(db.trials()) == stored
        db.connection.rows("PRAGMA max_page_count = 100000")
        db.add(make_record(1000))
    with Database.open(path, read_only=True) as db:
        assert list(db.trials()) == [*stored, make_record(1000)]


def test_a_disk_that_becomes_full_leaves_no_half_made_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "db.sqlite"
    *_, last = STEPS

    def full(db: SqliteDatabase) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setitem(STEPS, last, full)
        with pytest.raises(DatabaseError, match="disk is full"):
            Database.open(path)
    with pytest.raises(DatabaseError, match="nothing has been tuned into it yet"):
        Database.open(path, read_only=True)
    with Database.open(path) as db:
        db.add(make_record(0))


_UNPRIVILEGED = """
import os, resource, signal, sys, urllib.parse, sqlite_utils  # those two are imported late, maybe out of reach then
from autotune.errors import DatabaseError, InputError
from autotune.records import Database
from tests.records.records_samples import make_record
path, action = sys.argv[1:]
if os.getuid() == 0:
    os.setuid(65534)  # root may do anything, so root becomes nobody; only now, for Python may be in root's home
try:
    if action == "quota":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with Database.open(path) as db:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
            for index in range(5000):
                db.add(make_record(index))
    with Database.open(path, read_only=action == "read") as db:
        print(len(list(db.trials())), "trials")
except DatabaseError as error:
    print(error)
"""


def unprivileged(path: Path, action: str) -> str:
    """What a user without special rights is told."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", _UNPRIVILEGED, str(path), action],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that another user can reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def test_a_read_only_folder(shared_folder: Path) -> None:
    path = filled(shared_folder / "db.sqlite")
    path.chmod(0o444)
    shared_folder.chmod(0o555)
    assert "read-only" in unprivileged(path, "write")
    assert unprivileged(path, "read") == "40 trials"  # closed cleanly: readable as it is
    assert "permissions" in unprivileged(shared_folder / "new.sqlite", "write")
    path.chmod(0o666)
    assert "permissions" in unprivileged(path, "write")  # the folder must take the -wal file


def test_a_read_only_file_in_a_writable_folder(shared_folder: Path) -> None:
    path = filled(shared_folder / "db.sqlite")
    path.chmod(0o444)
    shared_folder.chmod(0o777)
    assert "read-only" in unprivileged(path, "write")
    assert unprivileged(path, "read") == "40 trials"


def test_an_unreadable_file(shared_folder: Path) -> None:
    path = filled(shared_folder / "db.sqlite")
    path.chmod(stat.S_IWUSR)
    assert "permissions" in unprivileged(path, "read")


def test_a_disk_quota(shared_folder: Path) -> None:
    shared_folder.chmod(0o777)
    path = shared_folder / "db.sqlite"
    said = unprivileged(path, "quota")
    assert "cannot be written" in said
    with Database.open(path) as db:
        stored = list(db.trials())
    assert stored == [make_record(i) for i in range(len(stored))]
    assert len(stored) > 100


def every_reader(path: Path) -> None:
    """Reads all there is to read; whatever is wrong must be said by a DatabaseError."""
    for read_only in (True, False):
        with Database.open(path, read_only, busy_seconds=0.05) as db:
            actions: list[Callable[[], object]] = [
                lambda: list(db.trials()),
                lambda: db.best(WORKLOAD_KEY, TARGET_KEY, TARGET),
                lambda: db.best(WORKLOAD_KEY, "other", TARGET),
                lambda: db.top(WORKLOAD_KEY, TARGET_KEY, 3),
                lambda: db.family("family", TARGET_KEY),
                lambda: db.complete_families(str),
                db.workloads,
                db.sessions,
                lambda: db.interfaces(WORKLOAD_KEY, TARGET_KEY),
            ]
            if not read_only:
                actions.append(lambda: db.add(make_record(99)))
                actions.append(lambda: db.heartbeat("s1", 5.0))
            for action in actions:
                try:
                    action()
                except DatabaseError as error:
                    assert "\n" not in str(error)  # noqa: PT017


@pytest.mark.parametrize("kept", [0.05, 0.3, 0.5, 0.8, 0.99])
def test_truncated_files(tmp_path: Path, kept: float) -> None:
    path = filled(tmp_path / "db.sqlite")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    try:
        every_reader(path)
    except DatabaseError as error:
        assert str(path) in str(error)  # noqa: PT017


@pytest.mark.parametrize("seed", range(60))
def test_random_damage(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = filled(tmp_path / "db.sqlite", 10)
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 3, 30, 300])):
        # Half of the hits go to the last rows and the header, where the meaning is densest.
        where = rng.randrange(len(content)) if rng.random() < 0.5 else rng.randrange(2048)
        content[where] = rng.randrange(256)
    path.write_bytes(bytes(content))
    try:
        every_reader(path)
    except DatabaseError as error:
        assert str(path) in str(error)  # noqa: PT017


@pytest.mark.parametrize("name", [b"applied_at", b"_sqlite_migrations", b"residency", b"REFERENCES", b"conv2d.direct"])
@pytest.mark.parametrize("letter", [b"\xff", b"?", b"x"])
def test_damaged_names_and_texts(tmp_path: Path, name: bytes, letter: bytes) -> None:
    path = filled(tmp_path / "db.sqlite")
    path.write_bytes(path.read_bytes().replace(name, name[:-1] + letter))
    try:
        every_reader(path)
    except DatabaseError as error:
        assert str(path) in str(error)  # noqa: PT017


def test_a_damaged_row_is_named(tmp_path: Path) -> None:
    path = filled(tmp_path / "db.sqlite", 3)
    alter_details(path, "trials.id = 2", config="{")
    with Database.open(path, read_only=True) as db:
        with pytest.raises(DatabaseError, match="trial 2 is damaged: config must be JSON text.*autotune db verify"):
            list(db.trials())
        assert db.best(WORKLOAD_KEY, TARGET_KEY, TARGET).record == make_record(0)  # other rows serve
