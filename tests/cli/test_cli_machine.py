"""`autotune machine`: text for people, JSON for programs, one line for mistakes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from autotune.cli.commands import COMMANDS
from autotune.cli.main import make_app
from autotune.cores import core_of, measured_path
from autotune.machine import this_machine
from autotune.measure import peaks
from autotune.measure.calibrate import Calibration
from autotune.measure.peaks import Peaks, Rate
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


def test_memory_far_from_what_is_known_of_the_cpu_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # nothing was measured here
    core, whole = Target.parse("native").core, Rate(1e6, 1e6)
    for share, told in ((0.4, True), (0.6, False)):
        l3 = Rate(share * core.l3 * core.ghz, 1.0)
        monkeypatch.setattr(peaks, "measure_peaks", lambda _, l3=l3: Peaks(whole, None, None, whole, whole, l3, whole))
        said = " ".join(invoke().stdout.split())
        assert (f"{core.l3 * core.ghz:.0f} GB/s from L3, which gave {l3.one_core:.0f} here" in said) == told
        assert ("autotune machine --measure keeps" in said) == told
        assert "--measure" not in invoke("--target", "x86 -mcpu=haswell").stdout  # another CPU's code


def test_no_peaks_measures_nothing() -> None:
    assert json.loads(invoke("--json", "--no-peaks").stdout)["peaks"] is None
    assert "FMA" not in invoke("--no-peaks").stdout


def test_an_unknown_target_is_one_line() -> None:
    result = invoke("--target", "x86 -mcpu=haswel")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: -mcpu=haswel: LLVM knows no such CPU")
    assert result.stderr.count("\n") == 1


def calibrated(monkeypatch: pytest.MonkeyPatch, folder: Path, *doubts: str, dram: float = 7.1) -> None:
    """A machine whose core is found without measuring, and a cache folder of its own."""
    here = this_machine()
    found = Calibration(replace(core_of(here.cpu, here.features), dram=dram, source="measured"), doubts)
    monkeypatch.setattr("autotune.measure.calibrate.measure_core", lambda target: found)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))


def test_the_core_in_use_and_its_source() -> None:
    stdout = invoke("--no-peaks", "--target", "x86 -mcpu=haswell").stdout
    for text in ("shipped for this CPU", "fma.f32 of 128, 256 bits", "2, 2; latency 5", "share units"):
        assert text in stdout
    found = json.loads(invoke("--no-peaks", "--json", "--target", "x86 -mcpu=haswell").stdout)
    assert found["target"]["core"]["source"] == "shipped"


def test_measured_figures_are_kept_and_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calibrated(monkeypatch, tmp_path)
    before = Target.parse("native")
    result = invoke("--measure")
    assert result.exit_code == 0
    after = Target.parse("native")
    path = measured_path(after.cpu, {"XDG_CACHE_HOME": str(tmp_path)})
    assert f"kept in {path}" in result.stdout
    assert f"the target is {after.key} now, was {before.key}" in result.stdout
    assert (after.core.source, after.core.dram) == ("measured", 8.0)
    assert "measured on this machine" in invoke("--no-peaks").stdout


def test_measuring_again_keeps_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calibrated(monkeypatch, tmp_path, dram=5.8)
    first = json.loads(invoke("--measure", "--json").stdout)
    calibrated(monkeypatch, tmp_path, dram=5.4)  # nearer to 4 than to 8
    second = json.loads(invoke("--measure", "--json").stdout)
    assert first["key"]["before"] != first["key"]["now"] == second["key"]["before"] == second["key"]["now"]
    assert (second["measured"]["dram"], second["kept"]["dram"]) == (5.4, 8.0)
    assert second["doubts"] == []


def test_doubtful_figures_are_kept_by_force_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calibrated(monkeypatch, tmp_path, "loads", "stores", "a", "b")
    result = invoke("--measure")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: not kept: other programs disturbed loads, stores, a and 1 more figures;")
    path = measured_path(Target.parse("native").cpu, {"XDG_CACHE_HOME": str(tmp_path)})
    assert path is not None and not path.exists()
    assert invoke("--measure", "--force").exit_code == 0
    assert Target.parse("native").core.source == "measured"


def test_a_damaged_file_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calibrated(monkeypatch, tmp_path)
    invoke("--measure")
    path = measured_path(Target.parse("native").cpu, {"XDG_CACHE_HOME": str(tmp_path)})
    assert path is not None
    path.write_text("{")
    caplog.clear()
    assert invoke("--no-peaks").exit_code == 0
    assert [str(path) in record.message for record in caplog.records] == [True]
    assert Target.parse("native").core.source != "measured"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--measure", "--target", "x86 -mcpu=haswell"], "--measure is of this machine as it is"),
        (["--force"], "--force goes with --measure"),
    ],
)
def test_options_that_do_not_fit(arguments: list[str], complaint: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert complaint in result.stderr
