"""`autotune db`: every verb, as text and as JSON, and one line for mistakes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from autotune.api.locate import Layered, reading, writing
from autotune.cli.commands import COMMANDS
from autotune.cli.db import DB
from autotune.cli.main import make_app
from autotune.ops.parse import parse_workload
from autotune.records import Database, SessionState
from autotune.records.schema import STEPS
from autotune.target import Target
from tests.records.records_samples import alter_details, make_failure, make_record, make_session

KEY = make_record().workload_key
OTHER = make_record(1, workload='{"op":"matmul"}', description="matmul 8x8", anchor_key=None)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "db.sqlite"
    with Database.open(path) as database:
        database.add_session(make_session())
        measured = {"spread": 0.01, "max_abs_err": 1e-5, "tolerance": 1e-4}
        database.add_many([make_record(i, **measured) for i in range(3)])
        database.add_many([make_failure(7, "timeout"), make_failure(8, "timeout"), make_failure(9, "crash"), OTHER])
    return path


def invoke(*args: object, **env: str) -> Result:
    return CliRunner(env=env).invoke(make_app(COMMANDS), ["db", *map(str, args)])


def found(*args: object) -> object:
    result = invoke(*args, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def refused(*args: object) -> str:
    result = invoke(*args)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_list(db: Path) -> None:
    text = invoke("list", "--db", db).stdout
    for shown in (KEY, "conv2d 64x64", "1.000 ms", OTHER.workload_key, "matmul 8x8"):
        assert shown in text
    summaries = found("list", "--db", db)
    assert isinstance(summaries, list)
    assert [(one["description"], one["trials"], one["failed"]) for one in summaries] == [
        ("conv2d 64x64", 6, 3),
        ("matmul 8x8", 1, 0),
    ]


def test_the_environment_names_the_database(db: Path) -> None:
    assert KEY in invoke("list", AUTOTUNE_DB=str(db)).stdout
    missing = invoke("list", AUTOTUNE_DB="", XDG_DATA_HOME=str(db.parent))
    assert str(db.parent / "autotune" / "tuning.sqlite") in missing.stderr.replace("\n", "")


def test_show(db: Path) -> None:
    text = invoke("show", KEY[:6], "--db", db, "--top", 2).stdout
    assert "6 trials, 3 verified, 1 crash, 2 timeout" in text
    assert "1.000 ms" in text
    assert "1.001 ms" in text
    assert "1.002 ms" not in text
    shown = found("show", KEY, "--db", db)
    assert isinstance(shown, dict)
    assert shown["failures"] == {"crash": 1, "timeout": 2}
    assert [trial["seconds"] for trial in shown["fastest"]] == [1e-3, 1.001e-3, 1.002e-3]


def test_show_needs_one_workload(db: Path) -> None:
    assert "has no workload 'nonsense'; `autotune db list`" in refused("show", "nonsense", "--db", db)
    assert "is the start of 2 workload keys" in refused("show", "", "--db", db)


def test_an_operator_names_a_workload(db: Path) -> None:
    text = "matmul a=8,8 b=8,8"
    workload = parse_workload(text)
    assert f"has no workload '{text}'" in refused("show", text, "--db", db)
    assert "unknown operator" in refused("show", "matmull a=8,8 b=8,8", "--db", db)
    with Database.open(db) as database:
        database.add(make_record(1, workload=workload.to_json(), workload_key=workload.key))
    shown = found("show", text, "--db", db)
    assert isinstance(shown, dict)
    assert (shown["workload"], shown["trials"]) == (workload.key, 1)


def test_best_says_how_well_it_fits(db: Path) -> None:
    target = Target.parse("x86 -mcpu=haswell -num-cores=1")
    wanted = ("--target", str(target), "--db", db)
    assert invoke("best", KEY, *wanted).stdout.startswith("foreign: made for a CPU with avx512f")
    with Database.open(db) as database:
        database.add(replace(make_record(5), target_key=target.key, target=target.to_json(), residency="L2"))
    exact = found("best", KEY, *wanted)
    assert isinstance(exact, dict)
    assert (exact["tier"], exact["record"]["config_key"]) == ("exact", make_record(5).config_key)
    text = invoke("best", KEY, *wanted).stdout
    assert "exact: measured on this target" in text
    assert "1.005 ms" in text
    assert invoke("best", KEY, *wanted, "--residency", "DRAM").stdout.startswith("compatible: ")
    assert "unknown target" in refused("best", KEY, "--target", "z80", "--db", db)


def test_export_import_and_merge(db: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert invoke("export", out, "--db", db).stdout == f"8 records written to {out}\n"
    assert invoke("export", "-", "--db", db).stdout == out.read_text()
    copy = tmp_path / "copy.sqlite"
    assert found("import", out, "--db", copy) == {"added": 7, "replaced": 0, "kept": 0}
    assert (
        "0 trials added, 0 replaced by newer ones, 7 were there already" in invoke("import", out, "--db", copy).stdout
    )
    more = tmp_path / "more.sqlite"
    with Database.open(more) as database:
        database.add_many([make_record(1, created=1e9), make_record(20)])
    assert found("merge", copy, more, "--db", db) == {"added": 1, "replaced": 1, "kept": 7}
    assert "are the same file" in refused("merge", db, "--db", db)
    assert "does not exist" in refused("merge", tmp_path / "missing.sqlite", "--db", db)
    out.write_text("nonsense\n")
    assert "line 1: not JSON" in refused("import", out, "--db", db)


def test_export_names_what_it_left_out(db: Path, tmp_path: Path) -> None:
    alter_details(db, "trials.id = 2", config="{")
    result = invoke("export", tmp_path / "out.jsonl", "--db", db)
    assert result.exit_code == 1
    assert "7 records written" in result.stdout
    assert "trial 2: config must be JSON" in result.stderr
    assert "the damaged rows named above were left out" in result.stderr


def test_prune(db: Path) -> None:
    pruned = found("prune", "--keep", 1, "--db", db)
    assert isinstance(pruned, dict)
    assert (pruned["deleted"], pruned["kept"]) == (5, 2)
    assert invoke("prune", "--db", db).stdout.startswith("0 trials deleted, 2 kept")
    assert invoke("prune", "--keep", 0, "--db", db).exit_code == 2


def test_verify(db: Path) -> None:
    assert invoke("verify", "--db", db).stdout == f"{db}: all 7 trials are sound\n"
    assert found("verify", "--db", db) == {"database": str(db), "layers": [], "problems": []}
    alter_details(db, "trials.id = 2", config="{")
    result = invoke("verify", "--db", db)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "trial 2: config must be JSON" in result.stdout
    assert "1 problem; `autotune db export` saves" in result.stderr
    assert len(json.loads(invoke("verify", "--db", db, "--json").stdout)["problems"]) == 1


@pytest.mark.parametrize(
    ("statement", "verb", "said"),
    [
        ("UPDATE workloads SET description = x'00ff'", "list", "description must be a string, got b'"),
        ("ALTER TABLE sessions ADD COLUMN more TEXT", "list", "'sessions' has other columns"),
        ("DROP TABLE plans", "list", "there is no table 'plans'"),
        ("DELETE FROM interfaces", "show", "what it refers to"),
        ("UPDATE trials SET created = 'now'", "stats", "created must be a number, got 'now'"),
        ("CREATE TRIGGER t AFTER UPDATE ON trials BEGIN DELETE FROM trials; END", "verify", "'trials' has a trigger"),
    ],
)
def test_altered_databases_are_one_line(db: Path, statement: str, verb: str, said: str) -> None:
    with Database.open(db) as database:
        database.connection.execute("PRAGMA foreign_keys = OFF")
        database.connection.execute(statement)
    assert said in refused(verb, *([KEY] if verb == "show" else []), "--db", db)


def test_a_text_of_a_megabyte_is_cut_for_the_terminal(db: Path) -> None:
    with Database.open(db) as database:
        database.connection.execute("UPDATE workloads SET description = 'a\x1b[2J' || hex(zeroblob(500000))")
    listed = invoke("list", "--db", db)
    assert listed.exit_code == 0
    assert "\x1b" not in listed.stdout
    assert len(listed.stdout) < 10_000


def test_stats(db: Path) -> None:
    text = invoke("stats", "--db", db).stdout
    for shown in ("failed: timeout", "sessions running", "1970-01-01 00:16", list(STEPS)[-1]):
        assert shown in text
    counted = found("stats", "--db", db)
    assert isinstance(counted, dict)
    assert (counted["trials"], counted["failures"]) == (7, {"crash": 1, "timeout": 2})


def test_sessions(db: Path) -> None:
    with Database.open(db) as database:
        later = replace(make_session(), id="f" * 16, started=2000.0, heartbeat=2000.0, command="autotune tune m.onnx")
        database.add_session(later)
        database.finish(later.id, SessionState.FINISHED, 2090.0)
    first, newest, oldest = invoke("sessions", "--db", db).stdout.splitlines()
    assert first.split() == ["session", "started", "took", "state", "host", "command"]
    assert "ffffffff" in newest and "1:30" in newest and newest.endswith("autotune tune m.onnx")
    assert "running" in oldest
    shown = found("sessions", "--db", db)
    assert isinstance(shown, list) and [one["id"] for one in shown] == [later.id, make_session().id]


def test_diff(db: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.sqlite"
    with Database.open(there) as database:
        database.add_many([replace(make_record(), seconds=2e-3), make_failure(7, "timeout")])
    lines = invoke("diff", there, "--db", db).stdout.splitlines()
    assert lines[1].split()[:5] == ["1.000", "ms", "2.000", "ms", "2.00×"] and "matmul 8x8" in lines[2]
    assert lines[-1] == "2 kernels: 1 faster here, 1 known here only"
    assert invoke("diff", db, "--db", db).stdout == "2 kernels: 2 equal\n"
    shown = found("diff", db, "--db", there)
    assert isinstance(shown, list) and [one["ratio"] for one in shown] == [0.5, None]


def test_upgrade(db: Path) -> None:
    assert invoke("upgrade", "--db", db).stdout == f"{db}: schema {list(STEPS)[-1]}\n"
    assert json.loads(invoke("upgrade", "--db", db, "--json").stdout) == {"path": str(db), "schema": list(STEPS)[-1]}


@pytest.mark.parametrize("verb", sorted(DB.commands.keys() - {"repair"}))  # which has no --db
def test_every_verb_refuses_what_is_no_database(tmp_path: Path, verb: str) -> None:
    path = tmp_path / "text.sqlite"
    path.write_text("not a database " * 100)
    operand: dict[str, list[object]] = {
        "show": [KEY],
        "best": [KEY],
        "export": ["-"],
        "import": [path],
        "merge": [tmp_path / "x"],
        "diff": [tmp_path / "x"],
    }
    assert "not a SQLite file" in refused(verb, *operand.get(verb, []), "--db", path)
    if verb not in {"import", "merge"}:  # these two create the database
        assert "does not exist" in refused(verb, *operand.get(verb, []), "--db", tmp_path / "missing.sqlite")
    assert sorted(tmp_path.iterdir()) == [path]


def test_every_verb_stands_in_the_readme() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert f"`autotune db {'|'.join(DB.commands)}`" in readme


def test_layers(db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shared, mine = tmp_path / "shared", tmp_path / "mine.sqlite"
    shared.mkdir()
    assert invoke("export", shared, "--db", db).stdout.startswith("7 records, new there, written to a segment in ")
    assert invoke("export", f"{shared}/", "--db", db).stdout == f"{shared}/ has all of them\n"
    with Database.open(mine) as database:
        database.add(make_record(20, seconds=1e-7))
    under = ["--db", mine, "--layer", shared]
    listed: Any = found("list", *under)
    assert sorted((one["origin"], one["trials"]) for one in listed) == [
        (str(mine), 1), (str(shared), 1), (str(shared), 6),
    ]  # fmt: skip
    shown: Any = found("show", KEY, *under)
    fastest = [one["origin"] for one in shown["fastest"]]
    assert fastest == [str(mine), *[str(shared)] * 3]
    assert " from " in " ".join(invoke("list", *under, COLUMNS="200").stdout.split())
    counted: Any = found("stats", *under)
    assert [one["trials"] for one in counted["layers"]] == [7]
    best: Any = found("best", KEY, *under)
    assert best["record"]["origin"] == str(mine)
    assert found("list", "--db", tmp_path / "none.sqlite", "--layer", shared)
    assert invoke("verify", *under).stdout == f"{mine}: all 8 trials are sound\n"
    assert invoke("export", tmp_path / "both.jsonl", *under).stdout.startswith("8 records written")
    (segment,) = shared.glob("*.jsonl")
    segment.write_bytes(segment.read_bytes()[:-9])
    broken = invoke("verify", *under)
    assert broken.exit_code == 1 and "not the bytes that its name stands for" in broken.stdout
    caplog.clear()
    assert invoke("list", "--db", mine, "--layer", tmp_path / "gone").exit_code == 0
    assert caplog.messages == [f"layer {tmp_path / 'gone'} is left out: No such file or directory"]
    assert "no layer can be read" in refused("list", "--db", tmp_path / "none.sqlite", "--layer", tmp_path / "gone")


def test_a_layer_that_cannot_be_read_is_told_of_by_whoever_opens_it_last(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As `tune` does, which reads what there is before it writes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    layered = Layered(db, (str(tmp_path / "gone"),))
    with reading(layered, tell=False):
        assert not caplog.messages
    with writing(layered):
        assert len(caplog.messages) == 1
