"""Wrong uses of every command: a clear line that names what is wrong, the right exit code, no traceback.

`{model}` is an ONNX model, `{open}` one with an open dimension, `{at}` a compiled file, `{db}` a database with one
kernel and `{key}` its key, `{text}` and `{broken}` files of no use, `{array}` f32 (2,), `{tmp}` an empty folder,
`{long}` a word that is too long for a file's name.
Models, shapes, targets and databases that are damaged are in test_cli_bad_input.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from autotune.api.model import Evaluation
from autotune.cost_model.training import Score
from tests.cli.cli_models import conv_model, invoke, save

ONE = "native -num-cores=1"
OP = "matmul a=8,8 b=8,8"

# A line each: what is typed, and what the line on stderr names. Refused: exit code 1.
REFUSED: list[tuple[str, str]] = [
    # quick
    ("quick {at}", "m.at"),
    ("quick {model} --budget 5", "write 5s, 5m or 5 trials"),
    ("quick {model} --budget 0s", "must be positive"),
    ("quick {model} --budget 20\xa0trials", "is no time"),
    ("quick {model} --budget soon", "no budget"),
    ("quick {model} --budget 1e400h", "no budget"),
    ("quick {model} --budget infs", "no budget"),
    ("quick {model} --budget nanm", "no budget"),
    ("quick {model} --precision fp8", "fp8"),
    ("quick {model} --max-error=-1", "-1"),
    ("quick {model} -o {tmp}/m.onnx", "not an ONNX model"),
    ("quick {model} -o {tmp}", "it is a folder"),
    # tune
    ("tune {at} --trials 1", "m.at"),
    ("tune {model} --trials 1 --verdict maybe", "maybe"),
    ("tune {model} --trials 1 --precision fp8", "fp8"),
    ("tune {model} --trials 1 --max-error nan", "nan"),
    ("tune {model} --budget -5m", "-5m"),
    ("tune {model} --trials 1 --db {model}", "m.onnx"),
    ("tune {model} --trials 1 --input x={tmp}/none.npy", "none.npy"),
    ("tune {model} --trials 1 --input x={text}", "no .npy file"),
    ("tune {model} --trials 1 --import {tmp}/none.py", "none.py"),
    ("tune {model} --trials 1 --import {text}", "notes.txt"),
    ("tune {model} --trials 1 --import no_such_module", "no_such_module"),
    ("tune {model} --trials 1 --import {broken}", "broken.py"),
    ("tune {model} --trials 1 --cluster nowhere", "nowhere"),
    ("explain --op matmul\xa0a={long}", "matmul"),
    ("tune --op matmul\xa0a={long} --trials 1", "matmul"),
    ("compile {model} -o {tmp}/{long}", "File name too long"),
    # check, tasks, passes
    ("check {at}", "m.at"),
    ("check {tmp}/new\nline.onnx", "new line.onnx"),
    ("check {tmp}/ü\xa0模型.onnx", "ü 模型.onnx"),
    ("check {tmp}/esc\x1b[31m.onnx", "esc\N{REPLACEMENT CHARACTER}[31m.onnx"),
    ("check -", "'-'"),
    ("check https://example.com/m.onnx", "m.onnx"),
    ("check {open} --shape n", "write for example"),
    ("check {open} --shape n=999999999999999999999999999999", "impossible dimensions"),
    ("check {model} --import {broken}", "broken.py"),
    ("check {model} --shape x=2,3,8,8", "2 contradicts"),
    ("tasks {at}", "m.at"),
    ("tasks {model} --precision half", "half"),
    ("tasks {model} --max-error 0", "0"),
    ("tasks {model} --db {text}", "notes.txt"),
    ("passes {text}", "notes.txt"),
    ("passes {model} --skip-pass polish", "polish"),
    ("passes {model} --dump-graph {text}", "notes.txt"),
    ("passes {open} --shape n=-1", "-1"),
    # compile
    ("compile {model} -o {tmp}/m.dll", "not a shared library"),
    ("compile {model} -o {tmp}/m.a", "not a static library"),
    ("compile {model} -o {tmp}/m.onnx", "not an ONNX model"),
    ("compile {model} -o {tmp}/m.at --header {tmp}/m.h", "about libraries"),
    ("compile {model} -o {tmp}/m.at --prefix m", "about libraries"),
    ("compile {model} -o {tmp}/m.at --also x86", "about libraries"),
    ("compile {model} -o {tmp}/m.so --header {tmp}/none/m.h", "there is no folder"),
    ("compile {model} -o {tmp}/m.so --weights {tmp}", "it is a folder"),
    ("compile {model} -o {tmp}/m.so --prefix 9lives", "9lives"),
    ("compile {model} -o {tmp}/m.so --also z80", "z80"),
    ("compile {model} -o {tmp}/m.so --sign {text}", "--sign"),
    ("compile {model} -o {tmp}/m.at --sign {tmp}/none.pem", "none.pem"),
    ("compile {model} -o {tmp}/m.at --sign {text}", "notes.txt"),
    ("compile {model} -o {tmp}/m.at --max-memory lots", "write for example 512M"),
    ("compile {model} -o {tmp}/m.at --max-memory 1k", "more than the 1024 allowed"),
    ("compile {model} -o {tmp}/m.at --fix x={tmp}/none.npy", "none.npy"),
    ("compile {model} -o {tmp}/m.at --fix z={array}", "z"),
    ("compile {model} -o {tmp}/m.at --fix x={array}", "x"),
    ("compile {model} -o {tmp}/m.at --skip-pass polish", "polish"),
    ("compile {model} -o {tmp}/m.at --dump-graph {text}", "notes.txt"),
    ("compile {model} -o {tmp}/m.at --precision bf17", "bf17"),
    ("compile {model} -o {tmp}/m.at --max-error 1e-12", "1e-12"),
    ("compile {at} -o {tmp}/m2.at", "m.at"),
    # run
    ("run {model}", "no value for input x"),
    ("run {model} --random 0 --output {text}", "notes.txt"),
    ("run {at} --random 0 --trust {tmp}/none.pem", "none.pem"),
    ("run {at} --random 0 --trust {text}", "notes.txt"),
    ("run {at} --random 0 --input x={array}", "[2]"),
    ("run {at} --random 0 --shape x=2,3,8,8", "[1, 3, 8, 8], not [2, 3, 8, 8]"),
    ("run {text} --random 0", "notes.txt"),
    ("run {tmp} --random 0", "{tmp}"),
    # bench
    ("bench {model} --against tensorflow", "tensorflow"),
    ("bench {model} --against none --sweep-batch 1,2", "batch"),
    ("bench {model} --against none --streams 999", "999"),
    ("bench {at} --against none --threads 999", "m.at"),
    ("bench {text} --against none", "notes.txt"),
    # profile, explain, report
    ("profile {at}", "m.at"),
    ("profile {model} --trace {tmp}", "it is a folder"),
    ("profile {model} --trace {tmp}/none/trace.json", "there is no folder"),
    ("profile {model} --input x={array}", "of shape 2"),
    ("explain {model} nowhere", "nowhere"),
    ("explain {model} --config no-json", "no-json"),
    (f"explain {{model}} --config {'[' * 100_000}", "[[[["),
    ('explain {model} --config {"template":"poem"}', "poem"),
    ("explain {model} --against no-json", "no-json"),
    ("explain {at}", "m.at"),
    ("explain --op poem", "poem"),
    ("report {model} -o {tmp}", "it is a folder"),
    ("report {model} -o {tmp}/none/r.html", "there is no folder"),
    ("report {model} -o {tmp}/r.html --against tensorflow", "tensorflow"),
    ("report {model} -o {tmp}/r.html --against none --other-db {tmp}/none.sqlite", "none.sqlite"),
    ("report {model} -o {tmp}/r.html --against none --other-db {text}", "notes.txt"),
    ("report {model} -o {tmp}/r.txt --against none", "r.txt"),
    # db
    ("db list --db {tmp}/none.sqlite", "none.sqlite"),
    ("db stats --db {text}", "notes.txt"),
    ("db sessions --db {tmp}/none.sqlite", "none.sqlite"),
    ("db verify --db {tmp}/none.sqlite", "none.sqlite"),
    ("db prune --db {tmp}/none.sqlite", "none.sqlite"),
    ("db upgrade --db {tmp}/none.sqlite", "none.sqlite"),
    ("db show ffff --db {db}", "ffff"),
    ("db show poem\xa0of=8 --db {db}", "poem"),
    ("db best ffff --db {db}", "ffff"),
    ("db best {key} --db {db} --residency L9", "L2, L3 or DRAM"),
    ("db best {key} --db {db} --target z80", "z80"),
    ("db diff {tmp}/none.sqlite --db {db}", "none.sqlite"),
    ("db diff {text} --db {db}", "notes.txt"),
    ("db export {tmp}/none/out.jsonl --db {db}", "none"),
    ("db export {tmp}/out.jsonl --db {tmp}/none.sqlite", "none.sqlite"),
    ("db import {tmp}/none.jsonl --db {db}", "none.jsonl"),
    ("db import {text} --db {db}", "notes.txt"),
    ("db import {array} --db {db}", "x.npy"),
    ("db merge {tmp}/none.sqlite --db {db}", "none.sqlite"),
    ("db import {text} --db {tmp}/new.sqlite", "notes.txt"),
    ("db import {tmp}/none.jsonl --db {tmp}/new.sqlite", "none.jsonl"),
    ("db merge {text} --db {db}", "notes.txt"),
    ("db merge {tmp}/none.sqlite --db {tmp}/new.sqlite", "none.sqlite"),
    ("db merge {db} --db {db}", "the same file"),
    ("db repair {tmp}/none.sqlite -o {tmp}/new.sqlite", "none.sqlite"),
    ("db repair {text} -o {tmp}/new.sqlite", "notes.txt"),
    ("db repair {db} -o {db}", "db.sqlite"),
    # model, machine, worker, cluster
    ("model train --db {tmp}/none.sqlite", "none.sqlite"),
    ("model train --db {text}", "notes.txt"),
    ("model train --db {db} -o {tmp}/none/model.json", "none"),
    ("model evaluate --db {tmp}/none.sqlite", "none.sqlite"),
    ("model evaluate --db {db} --leave-out luck", "luck"),
    ("machine --target z80 --no-peaks", "z80"),
    ("machine --force", "--measure"),
    ("machine --measure --target x86", "--target"),
    ("worker --cluster nowhere", "nowhere"),
    ("worker --cluster tcp://127.0.0.1:1 --target z80", "z80"),
    ("worker --cluster tcp://127.0.0.1:1 --memory lots", "--memory"),
    ("worker --cluster tcp://127.0.0.1:1 --import {broken}", "broken.py"),
    ("cluster status --cluster nowhere", "nowhere"),
    ("cluster status --cluster tcp://127.0.0.1:1", "127.0.0.1:1"),
]

# Called wrongly: exit code 2.
WRONG: list[tuple[str, str]] = [
    ("poem", "poem"),
    ("--poem", "--poem"),
    ("quick", "MODEL"),
    ("tune {model} --buget 5s", "--budget"),
    ("tune {model} --trials many", "--trials"),
    ("tune {model} --trials", "--trials"),
    ("tune {model} --seed=-1", "--seed"),
    ("tune {model} {model}", "m.onnx"),
    ("tune {model} -q -v --trials 1", "--verbose"),
    ("check", "MODEL"),
    ("check {model} --max-error 1", "--max-error"),
    ("tasks {model} --max-error much", "--max-error"),
    ("compile", "MODEL"),
    ("run {model} --random=-1", "--random"),
    ("bench {model} --threads 0", "--threads"),
    ("bench {model} --rounds 0", "--rounds"),
    ("bench {model} --streams 0", "--streams"),
    ("bench {model} --duration soon", "--duration"),
    ("bench {model} --duration 5", "--duration"),
    ("bench {model} --warm-up never", "--warm-up"),
    ("bench {model} --sweep-threads 1,a", "--sweep-threads"),
    ("bench {model} --sweep-batch 0", "--sweep-batch"),
    ("bench {model} --threads 1 --sweep-threads 1", "--sweep-threads"),
    ("bench {model} --json --csv", "--csv"),
    ("profile {model} --rounds 0", "--rounds"),
    ("profile {model} --top 0", "--top"),
    ("explain", "MODEL"),
    ("explain {model} --op relu", "MODEL"),
    ("explain {model} --show poem", "--show"),
    ("report {model} --rounds none", "--rounds"),
    ("db poem", "poem"),
    ("db show --db {db}", "WORKLOAD"),
    ("db show ffff --top 0", "--top"),
    ("db merge --db {db}", "OTHER"),
    ("db prune --keep 0 --db {db}", "--keep"),
    ("db repair {db}", "-o"),
    ("model poem", "poem"),
    ("worker", "--cluster"),
    ("worker --cluster tcp://127.0.0.1:1 --jobs 0", "--jobs"),
    ("worker --cluster tcp://127.0.0.1:1 --timeout 0", "--timeout"),
    ("cluster status", "--cluster"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the placeholders stand for, but `{tmp}`."""
    import numpy as np

    folder = tmp_path_factory.mktemp("files")
    model, compiled, database = save(conv_model(), folder / "m.onnx"), folder / "m.at", folder / "db.sqlite"
    (folder / "notes.txt").write_text("not what you look for\n")
    (folder / "broken.py").write_text("def operator(:\n")
    np.save(folder / "x.npy", np.zeros(2, np.float32))
    assert invoke("compile", model, "-o", compiled, "--untuned", "--target", ONE).exit_code == 0
    assert invoke("tune", "--op", OP, "--trials", "2", "--db", database, "--target", ONE, "-q").exit_code == 0
    listed = invoke("db", "show", OP, "--db", database)
    names = {"open": save(conv_model(batch="n"), folder / "open.onnx"), "text": folder / "notes.txt",
             "broken": folder / "broken.py", "array": folder / "x.npy", "model": model, "at": compiled,
             "db": database}  # fmt: skip
    return {"key": listed.stdout.split()[0], **{name: str(path) for name, path in names.items()}}


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "user.sqlite"))
    monkeypatch.chdir(tmp_path)


def typed(text: str, files: dict[str, str], tmp_path: Path) -> list[str]:
    """The words of a command line; a space within a word is written as a hard one."""
    for name, value in {**files, "tmp": str(tmp_path), "long": "n" * 300}.items():
        text = text.replace("{" + name + "}", value)
    return [word.replace("\xa0", " ") for word in text.split(" ")]


@pytest.mark.parametrize(("text", "named"), REFUSED, ids=[text for text, _ in REFUSED])
def test_refused(text: str, named: str, files: dict[str, str], tmp_path: Path) -> None:
    result = invoke(*typed(text, files, tmp_path))
    assert result.exit_code == 1, (result.stdout, result.stderr, result.exception)
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and len(errors[0]) < 600, result.stderr
    assert named.replace("{tmp}", str(tmp_path)) in errors[0]
    assert "Traceback" not in result.stderr and result.stdout.count("\n") <= 1, result.stdout
    assert not [name for name in os.listdir(tmp_path) if name.endswith((".at", ".so", ".html", ".h", "new.sqlite"))]


@pytest.mark.parametrize(("text", "named"), WRONG, ids=[text for text, _ in WRONG])
def test_called_wrongly(text: str, named: str, files: dict[str, str], tmp_path: Path) -> None:
    result = invoke(*typed(text, files, tmp_path))
    assert result.exit_code == 2, (result.stdout, result.stderr, result.exception)
    error = result.stderr.splitlines()[-1]
    assert error.startswith("Error: ") and named in error, result.stderr
    assert not os.listdir(tmp_path)


def test_files_that_nobody_may_read_or_write_are_refused_not_called_wrongly(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """typer would look whether a file may be read, and call it a wrong call."""
    monkeypatch.setattr(os, "access", lambda *args, **more: False)
    assert invoke("check", files["model"]).exit_code == 0
    assert invoke("db", "list", "--db", files["db"]).exit_code == 0
    refused = invoke("compile", files["model"], "-o", tmp_path / "m.at")
    assert refused.exit_code == 1 and refused.stderr.count("\n") == 1
    assert f"cannot write {tmp_path / 'm.at'}: Permission denied in the folder {tmp_path}" in refused.stderr


def test_options_without_effect_on_a_compiled_file_are_named(files: dict[str, str]) -> None:
    more = ("--precision", "bf16", "--skip-pass", "fold-scale", "--untuned", "-t", "1", "--target", "x86 -mcpu=haswell")
    done = invoke("run", files["at"], "--random", "0", *more)
    named = "--target, --threads, --precision, --untuned, --skip-pass"
    assert done.exit_code == 0 and f"{named} have no effect" in done.stderr
    assert invoke("run", files["at"], "--random", "0").stderr == ""


def test_a_model_is_evaluated_on_too_few_records(files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    alike = Evaluation((Score("a", 2, math.nan, 1.0, 1.0),), ())
    monkeypatch.setattr("autotune.api.model.evaluate_model", lambda databases, leave_out: alike)
    shown = invoke("model", "evaluate", "--db", files["db"])
    assert shown.exit_code == 0 and "too little was measured" in shown.stdout and "nan" not in shown.stdout
    found = json.loads(invoke("model", "evaluate", "--db", files["db"], "--json").stdout)
    assert found["left_out"] == [] and found["before"][0]["order"] is None
