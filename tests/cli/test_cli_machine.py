"""`autotune machine`: text for people, JSON for programs, one line for mistakes."""

from __future__ import annotations

import json

from typer.testing import CliRunner, Result

from autotune.cli.commands import COMMANDS
from autotune.cli.main import make_app
from autotune.machine import this_machine
from autotune.target import Target


def invoke(*args: str) -> Result:
    return CliRunner().invoke(make_app(COMMANDS), ["machine", *args])


def test_text_names_the_cpu_and_its_limits() -> None:
    result = invoke("--target", "x86 -mcpu=haswell -num-cores=1")
    assert result.exit_code == 0
    for text in (this_machine().cpu, "x86 -mcpu=haswell -num-cores=1", "fp32 FMA", "DRAM read", "no such instruction"):
        assert text in result.stdout
    assert "2 threads" not in result.stdout


def test_json_is_all_there_is_on_stdout() -> None:
    result = invoke("--json", "--target", "x86 -mcpu=haswell -num-cores=1")
    found = json.loads(result.stdout)
    assert found["machine"]["cpu"] == this_machine().cpu
    assert found["target"]["key"] == Target.parse("x86 -mcpu=haswell -num-cores=1").key
    assert found["peaks"]["fp32"]["one_core"] > 0
    assert found["peaks"]["int8"] is None


def test_no_peaks_measures_nothing() -> None:
    assert json.loads(invoke("--json", "--no-peaks").stdout)["peaks"] is None
    assert "FMA" not in invoke("--no-peaks").stdout


def test_an_unknown_target_is_one_line() -> None:
    result = invoke("--target", "x86 -mcpu=haswel")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: -mcpu=haswel: LLVM knows no such CPU")
    assert result.stderr.count("\n") == 1
