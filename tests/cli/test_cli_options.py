"""Options that mean the same have the same names, wherever a user would look for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from autotune.cli.commands import COMMANDS
from autotune.cli.main import make_app
from tests.cli.cli_models import conv_model, invoke, save


def leaves(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command by the words that call it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMAND_OF = dict(leaves(typer.main.get_command(make_app(COMMANDS))))
OPTIONS = {
    words: {name: set(option.opts) for option in command.params for name in option.opts if name.startswith("--")}
    for words, command in COMMAND_OF.items()
}


def test_whoever_takes_a_target_takes_its_threads() -> None:
    takers = {words for words, options in OPTIONS.items() if "--target" in options} - {"worker"}  # takes several
    assert {"tune", "quick", "compile", "bench", "run", "machine", "db best"} <= takers
    for words in takers:
        assert OPTIONS[words].get("--threads") == {"--threads", "-t"}, words


def test_a_name_has_one_short_form_and_a_short_form_one_name() -> None:
    letters, names = defaultdict(set), defaultdict(set)
    for options in OPTIONS.values():
        for name, spellings in options.items():
            short = frozenset(one for one in spellings if not one.startswith("--"))
            names[name].add(short)
            for letter in short:
                letters[letter].add(name)
    assert {name: found for name, found in names.items() if len(found) > 1} == {}
    assert {letter: found for letter, found in letters.items() if len(found) > 1} == {}


@pytest.mark.parametrize("words", [("--threads", "1"), ("-t", "1"), ("-t1",), ("--target", "native -num-cores=1")])
def test_threads_are_those_of_the_target(words: tuple[str, ...], tmp_path: Path) -> None:
    model, file = save(conv_model(), tmp_path / "m.onnx"), tmp_path / "m.at"
    done = invoke("compile", model, "-o", file, "--untuned", *words)
    assert done.exit_code == 0, done.stderr
    assert next(line for line in done.stdout.splitlines() if line.startswith("threads")).split() == ["threads", "1"]
    assert f"autotune tune {model} --threads 1 --budget 5m" in done.stdout


def test_threads_count_before_those_of_the_target(tmp_path: Path) -> None:
    done = invoke("check", save(conv_model(), tmp_path / "m.onnx"), "--threads", "0")
    assert done.exit_code == 2 and "--threads" in done.stderr
    found = invoke("machine", "--no-peaks", "--target", "x86 -num-cores=2", "--threads", "1")
    assert "-num-cores=1" in found.stdout and "-num-cores=2" not in found.stdout


def test_a_wrong_target_is_refused_whatever_the_model_is(tmp_path: Path) -> None:
    done = invoke("check", save(conv_model(batch="n"), tmp_path / "m.onnx"), "--target", "x86 -mcpu=none")
    assert done.exit_code == 1 and "-mcpu=none" in done.stderr
