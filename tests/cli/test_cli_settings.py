"""Defaults of options from autotune.toml or pyproject.toml: found, applied, overruled, refused in one line."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from tests.cli.cli_models import conv_model, invoke, save


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands run, two folders below the one that is given; a model lies there."""
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    save(conv_model(), inner / "m.onnx")
    monkeypatch.chdir(inner)
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "user.sqlite"))
    return tmp_path


def target_of(*words: str) -> str:
    result = invoke("tasks", "m.onnx", "--json", *words)
    assert result.exit_code == 0, result.stderr
    return str(json.loads(result.stdout)["target"])


HASWELL, ICELAKE = "x86 -mcpu=haswell -num-cores=1", "x86 -mcpu=icelake-server -num-cores=1"


def test_a_file_above_gives_defaults_and_what_is_typed_counts_first(folder: Path) -> None:
    (folder / "autotune.toml").write_text(f'target = "{HASWELL}"\n')
    assert "haswell" in target_of()
    assert "icelake" in target_of("--target", ICELAKE)


def test_the_nearest_file_counts_and_one_of_our_own_before_a_shared_one(folder: Path) -> None:
    (folder / "autotune.toml").write_text(f'target = "{ICELAKE}"\n')
    (folder / "a" / "pyproject.toml").write_text(f'[tool.autotune]\ntarget = "{HASWELL}"\n')
    (folder / "a" / "b" / "pyproject.toml").write_text("[tool.other]\ntarget = 1\n")
    assert "haswell" in target_of()
    (folder / "a" / "autotune.toml").write_text(f'[tasks]\ntarget = "{ICELAKE}"\n[tune]\nbudget = "1s"\n')
    assert "icelake" in target_of()


def test_paths_are_beside_the_file_and_groups_have_them_too(folder: Path) -> None:
    (folder / "autotune.toml").write_text('db = "own.sqlite"\n[tune]\ntrials = 1\nquiet = true\n')
    result = invoke("tune", "--op", "relu data=64", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert (found["database"], found["new_trials"]) == (str(folder / "own.sqlite"), 1)
    listed = invoke("db", "list", "--json")
    assert listed.exit_code == 0, listed.stderr
    assert [one["trials"] for one in json.loads(listed.stdout)] == [1]


def test_layers_are_beside_the_file_unless_they_are_urls(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    (folder / "autotune.toml").write_text('layer = ["shared", "nosuch://host/records"]\n')
    (folder / "shared").mkdir()
    result = invoke("tasks", "m.onnx", "--json")
    assert result.exit_code == 0, result.stderr
    assert all(line.startswith("layer nosuch://host/records is left out: ") for line in caplog.messages)
    assert caplog.messages
    assert (folder / "cache" / "autotune" / "layers").is_dir()


@pytest.mark.parametrize("shape", ['["n=3"]', '"n=3"'])
def test_options_that_repeat_take_one_or_several(shape: str, folder: Path) -> None:
    save(conv_model(batch="n"), folder / "a" / "b" / "m.onnx")
    (folder / "autotune.toml").write_text(f"[check]\nshape = {shape}\n")
    assert json.loads(invoke("check", "m.onnx", "--json").stdout)["kernels"] > 0


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("budgget = '5m'", "budgget is no option"),
        ("[tune]\nrounds = 2", "tune.rounds is no option"),
        ("[tunes]\nbudget = '5m'", "tunes is no command"),
        ("[db.lists]\n", "db.lists is no command"),
        ("target = [1]", "target is [1]; it takes a text or a number"),
        ("untuned = 'yes'", "it takes true or false"),
        ("shape = ['n=3', []]", "shape is []; it takes a text or a number"),
        ("target = true", "target is True; it takes a text or a number"),
        ("target = ", "is no TOML"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_file(text: str, named: str, folder: Path) -> None:
    path = folder / "autotune.toml"
    path.write_text(text)
    result = invoke("passes", "--json")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert str(path) in result.stderr and named in result.stderr
    assert json.loads(result.stdout)["error"]["kind"] == "InputError"
    assert invoke("tune", "--help").exit_code == 0


def test_help_says_so() -> None:
    assert "autotune.toml" in invoke("--help").stdout


def test_a_value_that_an_option_refuses_is_traced_to_the_file(folder: Path) -> None:
    (folder / "autotune.toml").write_text("[tune]\ntrials = 'many'\n")
    result = invoke("tune", "--op", "relu data=64")
    assert result.exit_code == 2
    message = "".join(letter for letter in result.stderr if letter.isalnum() or letter in "-/._")
    assert "--trials" in message and "autotune.toml" in message
    typed = invoke("tune", "--op", "relu data=64", "--trials", "few")
    assert typed.exit_code == 2 and "autotune.toml" not in typed.stderr


def test_a_folder_that_is_gone_has_no_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    result = invoke("check", folder / "a" / "b" / "m.onnx")
    assert result.exit_code == 0, result.output


def test_a_folder_that_nobody_may_look_into_has_no_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "autotune.toml").write_text(f'target = "{HASWELL}"\n')

    def refused(path: object, *args: object, **more: object) -> os.stat_result:
        if str(path).startswith(f"{folder / 'a'}{os.sep}") and str(path).endswith(".toml"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return stat(path, *args, **more)  # type: ignore[arg-type]

    stat = os.stat
    monkeypatch.setattr(os, "stat", refused)
    assert "haswell" in target_of(), "of the folder above"
