"""Where output goes: closed, full or ended streams, devices, links, and chatter of other engines."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.cli import text
from autotune.engines import peers
from autotune.runtime.artifact import MAGIC
from tests.cli.cli_models import conv_model, invoke, save

ROOT = Path(__file__).parents[2]


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """`autotune` in a shell line, where `at` stands for it."""
    command = line.replace("at ", f"{sys.executable} -m autotune.cli.main ", 1)
    return subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("at passes > /dev/full", 1, "error: cannot write the output: No space left on device\n"),
        ("at passes --json > /dev/full", 1, "error: cannot write the output: No space left on device\n"),
        ("at passes | true", 1, ""),
        ("at passes >&-", 0, ""),
        ("at check nowhere.onnx 2>&-", 1, ""),
        ("at check nowhere.onnx 2>/dev/full", 1, ""),
        ("at passes <&- >&- 2>&-", 0, ""),
        ("PYTHONIOENCODING=ascii at passes > /dev/null", 0, ""),
        ("PYTHONIOENCODING=latin-1:strict at passes > /dev/null", 0, ""),
        ("LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 at passes > /dev/null", 0, ""),
        ("COLUMNS=1 at passes > /dev/null", 0, ""),
        ("COLUMNS=-5 at passes > /dev/null", 0, ""),
        ("COLUMNS=² at passes > /dev/null", 0, ""),
        ("TERM=dumb NO_COLOR=1 at passes > /dev/null", 0, ""),
        ("PYTHONWARNINGS=error at passes > /dev/null", 0, ""),
        (
            "env -u HOME -u XDG_DATA_HOME -u AUTOTUNE_DB at db list",
            1,
            "error: no tuning database is named and HOME is not set; give --db FILE or set AUTOTUNE_DB\n",
        ),
    ],
)
def test_streams(line: str, code: int, message: str) -> None:
    done = shell(line)
    assert (done.returncode, done.stderr) == (code, message)


def test_a_compiled_file_replaces_files_alone(tmp_path: Path) -> None:
    model, pipe, link = save(conv_model(), tmp_path / "m.onnx"), tmp_path / "pipe", tmp_path / "link.at"
    os.mkfifo(pipe)
    done = invoke("compile", model, "-o", pipe)
    assert done.exit_code == 1 and "no ordinary file" in done.stderr and stat.S_ISFIFO(pipe.stat().st_mode)
    link.symlink_to("real.at")
    assert invoke("compile", model, "-o", link).exit_code == 0
    assert link.is_symlink() and (tmp_path / "real.at").read_bytes().startswith(MAGIC)
    plain = tmp_path / "plain"
    plain.touch()
    assert (tmp_path / "real.at").stat().st_mode == plain.stat().st_mode
    assert len(list(tmp_path.iterdir())) == 5, "nothing is left behind"


@pytest.mark.parametrize("command", ["check", "tasks", "profile", "passes"])
def test_a_compiled_file_in_place_of_a_model_is_named(command: str, tmp_path: Path) -> None:
    path = tmp_path / "m.at"
    path.write_bytes(MAGIC + bytes(100))
    done = invoke(command, path)
    assert done.exit_code == 1 and "is a compiled model: give the ONNX model it was made from" in done.stderr


def test_what_an_engine_prints_is_no_result(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    class Talker:
        name, version = "talker", "1"

        def __init__(self, *args: object) -> None:
            os.write(1, b"hello from C\n")

    monkeypatch.setitem(peers.PEERS, "talker", Talker)
    peers.load_peer("talker", tmp_path, 1, {})
    text.print_json({"result": 1})
    found = capfd.readouterr()
    assert json.loads(found.out) == {"result": 1} and found.err == "hello from C\n"


def test_per_cents_are_written_in_one_way() -> None:
    """`64 %`, by `percent` or as it does: Python's own format leaves no space."""
    sources = [
        path
        for folder in ("autotune", "records", "cost_model", "search_spaces")
        for path in (ROOT / folder).rglob("*.py")
    ]
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None
        if ast.unparse(node.format_spec).rstrip("'\"").endswith("%")
    ]
    assert len(sources) > 500 and found == []
