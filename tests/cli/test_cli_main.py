"""How the command line ends: exit codes, one line on stderr, never a traceback."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner, Result

from autotune.cli.main import COMMANDS, make_app
from autotune.errors import TargetError


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


@pytest.mark.parametrize("args", [["nonsense"], ["greet", "--nonsense"], ["greet", "extra"], ["--nonsense"]])
def test_wrong_usage_is_code_2_and_names_the_mistake(args: list[str]) -> None:
    result = invoke(*args)
    assert result.exit_code == 2
    assert args[-1] in result.stderr
    assert "Traceback" not in result.stderr


def test_version() -> None:
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("autotune ")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    function = COMMANDS[name]
    assert function.__doc__, "the docstring is the help text"
    result = CliRunner().invoke(make_app(COMMANDS), [name, "--help"])
    assert result.exit_code == 0
    assert function.__doc__.splitlines()[0].rstrip(".") in result.stdout
