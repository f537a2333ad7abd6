"""Bad input through the command line: one clear line on stderr, a code that is not 0, nothing left behind."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.records.schema import STEPS
from autotune.runtime.artifact import load_artifact, save_artifact
from tests.cli.cli_models import conv_model, invoke, save

ROOT = Path(__file__).parents[2]
TARGET = ("--target", "native -num-cores=1")


@pytest.fixture(autouse=True)
def _no_user_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "user.sqlite"))


def refused(*args: str | Path) -> str:
    """The one line with which `autotune ...` refuses."""
    result = invoke(*args)
    assert result.exit_code == 1, (result.stdout, result.stderr, result.exception)
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert len(result.stderr) < 600
    return result.stderr


def refused_process(*args: str | Path, limit_bytes: int) -> str:
    """The same in a process that may write no file larger than `limit_bytes`: what a full disk does."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    done = subprocess.run(
        [sys.executable, "-m", "tests.hasty", *map(str, args)],
        capture_output=True, text=True, cwd=ROOT, timeout=120, check=False, preexec_fn=limit,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert "Traceback" not in done.stderr
    return errors[0]


# Models ------------------------------------------------------------------------------------------------


def missing(folder: Path) -> Path:
    return folder / "nowhere.onnx"


def not_onnx(folder: Path) -> Path:
    path = folder / "picture.onnx"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    return path


def empty(folder: Path) -> Path:
    path = folder / "empty.onnx"
    path.touch()
    return path


def truncated(folder: Path) -> Path:
    path = save(conv_model(), folder / "cut.onnx")
    path.write_bytes(path.read_bytes()[:-1000])
    return path


def unknown_operator(folder: Path) -> Path:
    return save(conv_model(op="Convolve"), folder / "op.onnx")


def unknown_domain(folder: Path) -> Path:
    model = conv_model()
    model.graph.node[1].domain = "com.example"
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    return save(model, folder / "domain.onnx")


def dynamic(folder: Path) -> Path:
    return save(conv_model(batch="n"), folder / "dynamic.onnx")


def negative(folder: Path) -> Path:
    return save(conv_model(batch=-4), folder / "negative.onnx")


def huge(folder: Path) -> Path:
    return save(conv_model(batch=2**40), folder / "huge.onnx")


def external_outside(folder: Path) -> Path:
    (folder / "secret.bin").write_bytes(bytes(16 * 27 * 4))
    inside = folder / "inside"
    inside.mkdir()
    model = conv_model()
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="../secret.bin")
    path = inside / "external.onnx"
    path.write_bytes(model.SerializeToString())
    return path


MODELS: list[tuple[Callable[[Path], Path], str]] = [
    (missing, "nowhere.onnx"),
    (not_onnx, "picture.onnx"),
    (empty, "empty.onnx"),
    (truncated, "cut.onnx"),
    (unknown_operator, "Convolve"),
    (unknown_domain, "com.example"),
    (negative, "-4"),
    (huge, "x"),
    (external_outside, "secret.bin"),
]


@pytest.mark.parametrize("command", ["tasks", "compile", "run", "bench", "tune", "profile"])
def test_open_dimensions_without_a_shape(command: str, tmp_path: Path) -> None:
    model = dynamic(tmp_path)
    more: dict[str, tuple[str | Path, ...]] = {
        "compile": (model, "-o", tmp_path / "out.at"), "tune": (model, "--trials", "1"),
        "run": (model, "--random", "0"),
    }  # fmt: skip
    assert "--shape x=1,3,8,8" in refused(command, *more.get(command, (model,)))


@pytest.mark.parametrize(("make", "named"), MODELS, ids=[make.__name__ for make, _ in MODELS])
@pytest.mark.parametrize("command", ["check", "tasks", "compile", "run", "bench", "tune"])
def test_bad_models(make: Callable[[Path], Path], named: str, command: str, tmp_path: Path) -> None:
    model = make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    more: dict[str, tuple[str | Path, ...]] = {
        "compile": (model, "-o", tmp_path / "out.at"), "run": (model, "--random", "0"),
        "tune": (model, "--trials", "1"),
    }  # fmt: skip
    assert named in refused(command, *more.get(command, (model,)), *TARGET)
    assert sorted(tmp_path.rglob("*")) == before, "something was left behind"


def test_all_unsupported_operators_are_named_at_once(tmp_path: Path) -> None:
    model = conv_model(op="Convolve")
    model.graph.node[1].op_type = "Relux"
    message = refused("check", save(model, tmp_path / "m.onnx"))
    assert "Convolve" in message
    assert "Relux" in message


@pytest.mark.parametrize(
    ("shape", "named"),
    [
        ("x", "--shape 'x'"),
        ("x=a,b", "whole numbers"),
        ("z=1,3,8,8", "z"),
        ("x=1,3", "x"),
        ("x=-1,3,8,8", "-1"),
    ],
)
def test_bad_shapes(shape: str, named: str, tmp_path: Path) -> None:
    assert named in refused("tasks", dynamic(tmp_path), "--shape", shape)


@pytest.mark.parametrize(
    ("shape", "named"),
    [
        ("x", "--shape 'x' is not NAME=D,...[=WEIGHT]"),
        ("x=1..,3,8,8", "whole numbers or ranges"),
        ("x=8..1,3,8,8", "a range begins with the smaller number, as in 1..8"),
        ("x=1..2,3,8,8=often", "the weight is a number above 0"),
        ("x=1..2,3,8,8=0", "the weight is a number above 0"),
        ("x=1..2,4,8,8", "'x': 4 contradicts 3"),
        ("z=1..8", "there is no input 'z'"),
    ],
)
@pytest.mark.parametrize("command", ["compile", "tune"])
def test_bad_ranges(command: str, shape: str, named: str, tmp_path: Path) -> None:
    more = ["-o", f"{tmp_path}/m.at"] if command == "compile" else ["--trials", "1", "--db", f"{tmp_path}/db.sqlite"]
    assert named in refused(command, dynamic(tmp_path), "--shape", shape, *more)


def test_ranges_are_for_files_and_tuning(tmp_path: Path) -> None:
    assert "for compile and tune" in refused("tasks", dynamic(tmp_path), "--shape", "x=1..8,3,8,8")
    shared = refused("compile", dynamic(tmp_path), "--shape", "x=1..8,3,8,8", "-o", tmp_path / "m.so")
    assert "a library is a program of one shape" in shared


def test_a_shape_given_twice(tmp_path: Path) -> None:
    assert "twice" in refused("tasks", dynamic(tmp_path), "--shape", "x=1,3,8,8", "--shape", "x=2,3,8,8")


# Targets, operators, options ---------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["arm", "x86 -mcpu=z80", "x86 -num-cores=0", "x86 -mcpu", "native -x=1"])
@pytest.mark.parametrize("command", ["tasks", "compile", "tune"])
def test_bad_targets(target: str, command: str, tmp_path: Path) -> None:
    model = save(conv_model(), tmp_path / "m.onnx")
    more: dict[str, tuple[str | Path, ...]] = {
        "compile": (model, "-o", tmp_path / "out.at"), "tune": (model, "--trials", "1"),
    }  # fmt: skip
    refused(command, *more.get(command, (model,)), "--target", target)


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("--op", "conv2d data=1,3,8,8 weight=4,4,3,3", "--trials", "1"), "weight"),
        (("--op", "convolve data=1,3,8,8", "--trials", "1"), "convolve"),
        (("--op", "matmul a=8,8 b=8,8", "--budget", "soon"), "no budget"),
        (("--op", "matmul a=8,8 b=8,8", "--budget", "5"), "write 5s, 5m or 5 trials"),
        (("--op", "matmul a=8,8 b=8,8", "--trials", "1", "--strategy", "luck"), "luck"),
        (("--op", "matmul a=8,8 b=8,8", "--trials", "1", "--effort", "heroic"), "heroic"),
        (("--op", "matmul a=8,8 b=8,8", "--trials", "1", "--shape", "a=1"), "shapes"),
    ],
)
def test_bad_tuning(args: tuple[str, ...], named: str, tmp_path: Path) -> None:
    assert named in refused("tune", *args, *TARGET, "--db", tmp_path / "db.sqlite")


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--op", "matmul a=8,8 b=8,8", "--model", "m.onnx"),
        ("--op", "matmul a=8,8 b=8,8", "m.onnx"),
        ("m.onnx", "--model", "m.onnx"),
        ("--op", "x", "--trials", "0"),
    ],
)
def test_wrong_usage_of_tune(args: tuple[str, ...]) -> None:
    result = invoke("tune", *args)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


# Databases ---------------------------------------------------------------------------------------------


def text_file(folder: Path) -> Path:
    path = folder / "db.sqlite"
    path.write_text("not a database " * 100)
    return path


def newer(folder: Path) -> Path:
    from autotune.records import Database

    path = folder / "db.sqlite"
    with pytest.MonkeyPatch.context() as future:
        future.setitem(STEPS, "9999_future", lambda db: db["extra"].create({"id": int}))
        Database.open(path).close()
    return path


def a_folder(folder: Path) -> Path:
    path = folder / "db.sqlite"
    path.mkdir()
    return path


def in_no_folder(folder: Path) -> Path:
    return folder / "nowhere" / "db.sqlite"


@pytest.mark.parametrize("make", [text_file, newer, a_folder, in_no_folder], ids=lambda make: make.__name__)
@pytest.mark.parametrize("command", ["tasks", "compile", "run", "tune"])
def test_unusable_databases(make: Callable[[Path], Path], command: str, tmp_path: Path) -> None:
    model, database = save(conv_model(), tmp_path / "m.onnx"), make(tmp_path)
    more: dict[str, tuple[str | Path, ...]] = {
        "compile": (model, "-o", tmp_path / "out.at"), "run": (model, "--random", "0"),
        "tune": (model, "--trials", "1"),
    }  # fmt: skip
    message = refused(command, *more.get(command, (model,)), *TARGET, "--db", database)
    assert str(database.parent) in message
    assert not (tmp_path / "out.at").exists()


# A full disk -------------------------------------------------------------------------------------------


def test_a_full_disk_while_compiling(tmp_path: Path) -> None:
    model = save(conv_model(), tmp_path / "m.onnx")
    message = refused_process("compile", model, "-o", tmp_path / "out.at", "--untuned", *TARGET, limit_bytes=8192)
    assert "out.at" in message
    assert sorted(tmp_path.iterdir()) == [model], "half a file was left behind"


def test_a_full_disk_while_tuning(tmp_path: Path) -> None:
    database = tmp_path / "db.sqlite"
    args = ("tune", "--op", "conv2d data=1,16,6,6 weight=16,16,3,3 pad=1", *TARGET, "--db", database)
    message = refused_process(*args, "--trials", "500", limit_bytes=500_000)
    assert "db.sqlite" in message
    found = json.loads(invoke("db", "stats", "--db", database, "--json").stdout)
    assert found["trials"] == found["verified"] + sum(found["failures"].values()) > 0


def test_a_full_disk_while_saving_outputs(tmp_path: Path) -> None:
    model = save(conv_model(), tmp_path / "m.onnx")
    args = ("run", model, "--random", "0", "--output", tmp_path / "out", "--untuned", *TARGET)
    assert "cannot write" in refused_process(*args, limit_bytes=1000)


def test_outputs_that_cannot_be_written(tmp_path: Path) -> None:
    model = save(conv_model(), tmp_path / "m.onnx")
    assert "no folder" in refused("compile", model, "-o", tmp_path / "nowhere" / "out.at", *TARGET)
    assert "it is a folder" in refused("compile", model, "-o", tmp_path, *TARGET)


# Feeds -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    model, out = save(conv_model(), folder / "m.onnx"), folder / "m.at"
    assert invoke("compile", model, "-o", out, "--untuned", *TARGET).exit_code == 0
    return out


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "named"),
    [
        ("z", (1, 3, 8, 8), "float32", "z"),
        ("x", (1, 3, 8, 9), "float32", "[1, 3, 8, 9]"),
        ("x", (3, 8, 8), "float32", "[3, 8, 8]"),
        ("x", (1, 3, 8, 8), "float64", "float64"),
        ("x", (1, 3, 8, 8), "object", "no .npy file of numbers"),
    ],
)
def test_bad_feeds(compiled: Path, name: str, shape: tuple[int, ...], dtype: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "value.npy"
    np.save(path, np.zeros(shape, dtype), allow_pickle=dtype == "object")
    assert named in refused("run", compiled, "--input", f"{name}={path}")


def test_feeds_that_are_missing_or_unreadable(compiled: Path, tmp_path: Path) -> None:
    assert "no value for input x" in refused("run", compiled)
    assert "No such file" in refused("run", compiled, "--input", f"x={tmp_path / 'nowhere.npy'}")
    (tmp_path / "text.npy").write_text("1 2 3")
    assert "no .npy file" in refused("run", compiled, "--input", f"x={tmp_path / 'text.npy'}")
    np.savez(tmp_path / "many.npz", a=np.zeros(1))
    assert ".npz" in refused("run", compiled, "--input", f"x={tmp_path / 'many.npz'}")
    assert "NAME=VALUE" in refused("run", compiled, "--input", "x")


# Compiled files ----------------------------------------------------------------------------------------


def flipped_plan(source: Path, out: Path) -> None:
    data = bytearray(source.read_bytes())
    data[data.index(b'"num_threads":1') + 14] ^= 2
    out.write_bytes(data)


def flipped_weight(source: Path, out: Path) -> None:
    data = bytearray(source.read_bytes())
    data[-1000] ^= 1
    out.write_bytes(data)


def cut(source: Path, out: Path) -> None:
    out.write_bytes(source.read_bytes()[:-100])


def head_only(source: Path, out: Path) -> None:
    out.write_bytes(source.read_bytes()[:20])


def other_version(source: Path, out: Path) -> None:
    data = bytearray(source.read_bytes())
    data[7] = 99
    out.write_bytes(data)


def other_cpu(source: Path, out: Path) -> None:
    artifact = load_artifact(source)
    (program,) = artifact.programs
    target = json.loads(program.target)
    target["features"] = sorted([*target["features"], "sse9"])
    save_artifact(out, replace(artifact, programs=[replace(program, target=json.dumps(target))]))


@pytest.mark.parametrize(
    "damage", [flipped_plan, flipped_weight, cut, head_only, other_version, other_cpu], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("command", ["run", "bench"])
def test_bad_compiled_files(compiled: Path, damage: Callable[[Path, Path], None], command: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.at"
    damage(compiled, bad)
    message = refused(command, bad, *(["--random", "0"] if command == "run" else []))
    assert "bad.at" in message
    if damage is other_cpu:
        assert "sse9" in message
