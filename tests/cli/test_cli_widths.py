"""What the tables of every command look like at 60, 80 and 120 columns, piped and in a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from unittest.mock import patch

import pytest
from rich.cells import cell_len

from autotune.cli.asked_target import target_words, with_threads
from autotune.cli.compile import print_coverage
from autotune.report.coverage import Coverage
from tests.cli.cli_models import chain_model, conv_model, invoke, save

TARGET = ("--target", "native -num-cores=1")
NAMES = ("/backbone/stage1/block0/conv_expand/Conv", "/backbone/stage1/block0/act/Relu", "/head/classifier/out/Conv")
WIDTHS = (60, 80, 120)
OPERATOR = "conv2d data=1,"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = conv_model()
    for node, name in zip(made.graph.node, NAMES, strict=True):
        node.name = name
    return save(made, tmp_path_factory.mktemp("widths") / "small.onnx")


@pytest.fixture(scope="module")
def database(model: Path) -> Path:
    path = model.with_name("db.sqlite")
    done = invoke("tune", model, *TARGET, "--db", path, "--trials", "8")
    assert done.exit_code == 0, done.stderr
    return path


def table_lines(text: str, heading: str) -> list[str]:
    """The heading of a table and its rows."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if heading in line.split())
    return lines[start:]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", ["tasks", "profile", "tune"])
def test_kernels_have_a_line_each(
    command: str, width: int, model: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"profile": ("--rounds", "2"), "tune": ("--trials", "8", "--all")}
    monkeypatch.setenv("COLUMNS", str(width))
    done = invoke(command, model, *TARGET, "--db", database, *more.get(command, ()))
    assert done.exit_code == 0, done.stderr
    rows = [line for line in table_lines(done.stdout, "operator")[1:] if OPERATOR in line]
    assert len(rows) == 2 or (command == "tune" and len(rows) > 2), "tuning may find further ones, in other layouts"
    assert all(cell_len(row) <= width for row in rows)
    assert any("Conv (+1)" in row for row in rows), "the anchor's node, and how many more"
    assert all(len(row[row.index(OPERATOR) :]) >= 20 for row in rows), "the operator gets the room"


@pytest.mark.parametrize("width", WIDTHS)
def test_databases_and_engines_have_a_line_each(
    width: int, model: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    listed = invoke("db", "list", "--db", database).stdout.splitlines()
    assert all(cell_len(line) <= width for line in listed)
    keys = {line.split()[0] for line in listed[1:]}
    assert len(keys) >= 2 and all(re.fullmatch("[0-9a-f]{16}", key) for key in keys)
    convolution = next(line.split()[0] for line in listed if OPERATOR in line)
    shown = table_lines(invoke("db", "show", convolution, "--db", database).stdout, "template")
    assert len(shown) > 1 and all(cell_len(line) <= width for line in shown)
    found = invoke("bench", model, *TARGET, "--db", database, "--rounds", "1", "--against", "onnxruntime").stdout
    engines = [line for line in found.splitlines() if line.startswith(("engine ", "autotune ", "onnxruntime "))]
    assert len(engines) == 3 and all(cell_len(line) <= width for line in engines)
    assert "time" in engines[0] and "×" in engines[2]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "command",
    [
        ["check", "MODEL"],
        ["tasks", "MODEL", *TARGET, "--db", "DB"],
        ["explain", "MODEL", *TARGET, "--db", "DB"],
        ["profile", "MODEL", *TARGET, "--db", "DB", "--rounds", "2", "--top", "1"],
        ["compile", "MODEL", *TARGET, "-o", "OUT.at"],
        ["compile", "MODEL", *TARGET, "--db", "DB", "-o", "OUT.at"],
        ["bench", "MODEL", *TARGET, "--db", "DB", "--rounds", "1", "--against", "none"],
        ["report", "MODEL", *TARGET, "--db", "DB", "-o", "OUT.html", "--rounds", "1", "--against", "none"],
        ["db", "stats", "--db", "DB"],
        ["db", "sessions", "--db", "DB"],
        ["model", "evaluate", "--db", "DB"],
        ["model", "explain"],
        ["machine"],
        ["passes"],
    ],
    ids=" ".join,
)
def test_no_line_is_wider_than_asked(
    command: list[str], width: int, model: Path, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for commands, which are printed to be copied, and paths, which are not broken."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(tmp_path)
    here = {"MODEL": str(model), "DB": str(database)}
    done = invoke(*(here.get(word, word) for word in command))
    assert done.exit_code == 0, done.stderr
    lines = [
        line for line in done.stdout.splitlines() if "autotune tune " not in line and str(model.parent) not in line
    ]
    assert lines and [line for line in lines if cell_len(line) > width] == []
    text = done.stdout + done.stderr
    assert not re.search(r"\d%", text), "64 %, as everywhere"
    assert not re.search(r"\b1 (kernels|programs|rounds|threads|trials|tasks)\b", text)


def undisturbed(text: str) -> list[str]:
    """The lines of a summary, without those that say what else ran meanwhile."""
    return [line for line in text.splitlines() if not line.startswith(("disturbed: ", "the model was timed beside"))]


def test_the_summary_of_a_tuning_comes_first(model: Path, database: Path) -> None:
    lines = undisturbed(invoke("tune", model, *TARGET, "--db", database, "--trials", "8").stdout)
    times = r"\S+ .?s untuned, \S+ .?s tuned \(medians\), in turn \S+× as fast.* 1 thread"
    nothing = r"\S+ .?s \(median of \d+ rounds on 1 thread\); nothing faster was found: .*"
    assert re.fullmatch(rf"{re.escape(str(model))}: ({times}|{nothing})", lines[0])
    following = next(line for line in lines if line.startswith("next: "))
    assert f"{model}" in following and str(database) in following
    assert lines.index(following) <= 3  # before it: the times, and what was decided
    whole = next(line for line in lines if line.startswith("time: ")).split(";")[0]
    assert sum(map(float, re.findall(r"([\d.]+) %", whole))) == pytest.approx(100.0, abs=0.1)


def test_only_the_heaviest_are_listed(tmp_path: Path) -> None:
    model = save(chain_model(13), tmp_path / "chain.onnx")
    args = ("tune", model, *TARGET, "--db", tmp_path / "db.sqlite", "--trials", "1")
    found = invoke(*args)
    assert found.exit_code == 0, found.stderr
    more = re.search(r"^and (\d+) more \(--all shows them\)$", found.stdout, re.MULTILINE)
    assert more
    every = invoke(*args, "--all").stdout
    assert "more (--all" not in every
    rows = table_lines(every, "operator")[1:]
    assert rows.index("") == 10 + int(more[1])
    assert len(undisturbed(found.stdout)) <= 20


def in_terminal(width: int, *args: str | Path) -> list[str]:
    """What `autotune ...` prints on a terminal of this width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-m", "autotune", *map(str, args)]
    process = subprocess.Popen(command, stdout=slave, stderr=subprocess.DEVNULL, env=environment)
    os.close(slave)
    found = b""
    try:
        while part := os.read(master, 65536):
            found += part
    except OSError:  # the other end is closed
        pass
    os.close(master)
    assert process.wait() == 0
    return found.decode().splitlines()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_terminal_is_filled_and_not_more(width: int, model: Path, database: Path) -> None:
    lines = in_terminal(width, "tasks", model, *TARGET, "--db", database)
    rows = [line for line in lines if OPERATOR in line]
    assert len(rows) == 2
    assert all(cell_len(row) <= width for row in lines[:-1])
    assert max(map(cell_len, rows)) >= width - 10


def test_a_pipe_gets_everything(model: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    found = invoke("tasks", model, *TARGET, "--db", database).stdout
    assert f"{NAMES[0]} (+1)" in found and "…" not in found and "templates" in found


def test_records_that_do_not_apply_are_explained(model: Path, database: Path) -> None:
    """Tuned for one thread, asked for two: why, and the command, which `tune` understands."""
    done = invoke("bench", model, "--threads", "2", "--db", database, "--rounds", "1", "--against", "none")
    assert done.exit_code == 0, done.stderr
    reason = next(line for line in done.stdout.splitlines() if "here 2" in line)
    assert "kernels: measured with" in reason and "1" in reason
    command = next(line for line in done.stdout.splitlines() if line.startswith("to tune them: "))
    assert command == (f"to tune them: autotune tune {model} --threads 2 --db {database} --budget 5m")


def test_the_command_that_tunes_says_where_it_can_run(capsys: pytest.CaptureFixture[str]) -> None:
    untuned = Coverage.of([])
    for here, said in ((True, "to tune them: autotune tune m"), (False, "to tune them, on a CPU of that kind: ")):
        with patch.object(Coverage, "complete", False):
            print_coverage(untuned, "autotune tune m", here)
        assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "threads", "wanted"),
    [
        ("native", None, "native"),
        ("native", 1, "native -num-cores=1"),
        ("x86 -mcpu=haswell -num-cores=4", 2, "x86 -mcpu=haswell -num-cores=2"),
    ],
)
def test_a_target_with_other_threads(target: str, threads: int | None, wanted: str) -> None:
    assert with_threads(target, threads) == wanted


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("native", []),
        ("native -num-cores=1", ["--threads", "1"]),
        ("x86 -mcpu=haswell", ["--target", "x86 -mcpu=haswell"]),
        ("-num-cores=4 x86 -mcpu=haswell", ["--target", "x86 -mcpu=haswell", "--threads", "4"]),
        ("x86 -num-cores=1 -num-cores=2", ["--target", "x86 -num-cores=1 -num-cores=2"]),
    ],
)
def test_a_target_is_typed_again_in_options(target: str, words: list[str]) -> None:
    assert target_words(target) == words
