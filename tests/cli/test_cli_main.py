"""How the command line ends: exit codes, one line on stderr, never a traceback."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner, Result

import autotune
from autotune.cli.commands import COMMANDS
from autotune.cli.group import Group
from autotune.cli.main import make_app
from autotune.errors import TargetError

ROOT = Path(__file__).parents[2]


def fail() -> None:
    """Fail as a command does."""
    raise TargetError("no such CPU:\n  'z80'; try 'haswell'")


def interrupted() -> None:
    """Be interrupted."""
    raise KeyboardInterrupt


def greet(name: Annotated[str, typer.Option(help="Whom.")] = "you") -> None:
    """Say hello."""
    typer.echo(f"hello {name}")


def invoke(*args: str) -> Result:
    return CliRunner().invoke(make_app({"fail": fail, "interrupted": interrupted, "greet": greet}), args)


def test_a_command_gets_its_options() -> None:
    assert invoke("greet", "--name", "world").output == "hello world\n"


def test_a_deliberate_error_is_one_line_and_code_1() -> None:
    result = invoke("fail")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "error: no such CPU: 'z80'; try 'haswell'\n")


def test_ctrl_c_is_one_line_and_code_130() -> None:
    result = invoke("interrupted")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "interrupted\n")


SLEEP = """
import time
from autotune.cli.main import make_app

def sleep() -> None:
    print("ready", flush=True)
    time.sleep(60)

def other() -> None:
    pass

make_app({"sleep": sleep, "other": other})(["sleep"])
"""


def test_a_real_interrupt_ends_the_process() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEP], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr) == (130, "interrupted\n")


EARLY = """
import sys

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
from autotune.__main__ import main
main()
"""


def test_an_interrupt_during_the_first_imports_is_one_line() -> None:
    done = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_an_interrupt_before_the_command_began_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("autotune.cli.ending.find_settings", interrupt)
    result = invoke("greet")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_command_in_one_line(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """A search is what runs for long."""
    command = [sys.executable, "-m", "tests.hasty", "tune", "--op", "relu data=64", "--budget", "10m", "--db"]
    process = subprocess.Popen(
        [*command, str(tmp_path / "t.sqlite")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stderr
    assert "tuning: 1 task\n" in process.stderr
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == code
    assert stderr.splitlines()[-1].startswith("interrupted; all finished trials are in ")
    assert "Traceback" not in stderr


def test_python_m_autotune_and_the_list_of_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "autotune", "--help"], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True
    )
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\S", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("args", [["nonsense"], ["greet", "--nonsense"], ["greet", "extra"], ["--nonsense"]])
def test_wrong_usage_is_code_2_and_names_the_mistake(args: list[str]) -> None:
    result = invoke(*args)
    assert result.exit_code == 2
    assert args[-1] in result.stderr
    assert "Traceback" not in result.stderr


def test_version() -> None:
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout == f"autotune {autotune.__version__}\n"


@pytest.mark.parametrize("args", [["-h"], ["greet", "-h"]])
def test_h_is_help(args: list[str]) -> None:
    result = invoke(*args)
    assert (result.exit_code, result.stdout) == (0, invoke(*args[:-1], "--help").stdout)


@pytest.mark.parametrize(
    "words, text",
    [
        pytest.param(words, text, id=" ".join(words))
        for name, command in COMMANDS.items()
        for words, text in (
            [([name], command.help), *(([name, inner], found.__doc__) for inner, found in command.commands.items())]
            if isinstance(command, Group)
            else [([name], command.__doc__)]
        )
    ],
)
def test_every_command_has_help(words: list[str], text: str | None) -> None:
    assert text, "the docstring is the help text"
    result = CliRunner().invoke(make_app(COMMANDS), [*words, "--help"])
    assert result.exit_code == 0
    assert text.splitlines()[0].rstrip(".") in " ".join(result.stdout.split())
    assert f"`autotune {words[0]}" in (ROOT / "README.md").read_text(), "give the command a line in README.md"


def test_starting_imports_nothing_that_is_slow() -> None:
    """`autotune --help` is as quick as typer is: what a command needs, it imports when it runs."""
    slow = ("numpy", "llvmlite", "onnx", "xgboost", "sqlite3", "asyncio", "importlib.metadata")
    script = f"import sys, autotune.cli.main, autotune.cli.commands; print([m for m in {slow!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
