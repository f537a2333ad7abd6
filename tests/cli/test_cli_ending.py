"""With --json a command that fails prints one object on stdout, beside its line on stderr, with the same exit code."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from onnx import helper
from typer.testing import CliRunner

from autotune.cli.main import make_app
from autotune.cli.options import JsonOption
from autotune.errors import InputError
from autotune.records import Database
from tests.cli.cli_models import conv_model, invoke, save


def refuse(as_json: JsonOption = False) -> None:
    """Refuse, with something found."""
    raise InputError("no such\nthing", values={"found": [1, 2]})


def exhaust(as_json: JsonOption = False) -> None:
    """Need more memory than there is."""
    raise MemoryError("1 TiB")


def interrupted(as_json: JsonOption = False) -> None:
    """Be interrupted."""
    raise KeyboardInterrupt


def refused(code: int, *args: str | Path) -> dict[str, Any]:
    """What is on stdout; its message is the line on stderr."""
    result = invoke(*args)
    assert result.exit_code == code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    assert found["error"]["message"] in result.stderr
    return found


@pytest.mark.parametrize(
    ("command", "code", "line", "values"),
    [
        ("refuse", 1, "error: no such thing", {"found": [1, 2], "error": {"kind": "InputError"}}),
        ("exhaust", 1, "error: not enough memory: 1 TiB", {"error": {"kind": "MemoryError"}}),
        ("interrupted", 130, "interrupted", {"error": {"kind": "KeyboardInterrupt"}}),
    ],
)
def test_each_ending(command: str, code: int, line: str, values: dict[str, Any]) -> None:
    app = make_app({"refuse": refuse, "exhaust": exhaust, "interrupted": interrupted})
    plain, result = (CliRunner().invoke(app, [command, *more]) for more in ([], ["--json"]))
    assert (plain.exit_code, plain.stdout, plain.stderr) == (code, "", f"{line}\n")
    values["error"]["message"] = line.removeprefix("error: ")
    assert (result.exit_code, result.stderr, json.loads(result.stdout)) == (code, f"{line}\n", values)


def test_what_a_terminal_would_act_on_is_no_part_of_a_message(tmp_path: Path) -> None:
    """It may come out of a model's names."""
    model = conv_model(op="Convolve\x1b[2J")
    result = invoke("check", save(model, tmp_path / "m.onnx"))
    assert result.exit_code == 1 and "\x1b" not in result.stderr and "Convolve\ufffd[2J" in result.stderr


def test_check_names_what_is_unsupported(tmp_path: Path) -> None:
    model = conv_model(op="Convolve")
    model.graph.node[1].op_type = "Relux"
    found = refused(1, "check", save(model, tmp_path / "m.onnx"), "--json")
    assert found["error"]["kind"] == "UnsupportedError"
    assert [(one["operator"], one["nodes"], one["first"]) for one in found["unsupported"]] == [
        ("Convolve", 1, "a"),
        ("Relux", 1, "r"),
    ]


def test_check_names_nodes_that_cannot_be_converted(tmp_path: Path) -> None:
    model = conv_model()
    node = model.graph.node[0]
    node.op_type, node.domain = "FusedConv", "com.microsoft"
    node.attribute.append(helper.make_attribute("activation", "Sideways"))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    (one,) = refused(1, "check", save(model, tmp_path / "m.onnx"), "--json")["unsupported"]
    assert one["operator"] == "FusedConv" and "Sideways" in one["reason"]


@pytest.mark.parametrize(
    "args",
    [
        ("check", "--json"),
        ("check", "m.onnx", "--json", "--nonsense"),
        ("nonsense", "--json"),
        ("tune", "--json"),
        ("db", "list", "--json", "--nonsense"),
    ],
)
def test_a_wrong_call(args: tuple[str, ...]) -> None:
    assert refused(2, *args)["error"]["kind"] == "UsageError"


def test_a_damaged_database_has_one_document(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    Database.open(path).close()
    with sqlite3.connect(path) as file:
        file.execute("DROP TABLE trials")
    found = refused(1, "db", "verify", "--db", path, "--json")
    assert found["error"]["kind"] == "DatabaseError"
