"""Programs in the object cache: a second start compiles nothing, and whatever differs from the first is compiled."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune import packages, plugins
from autotune.api import kept
from autotune.api.kept import WRITER, KeptProgram
from autotune.api.session import InferenceSession
from autotune.codegen.object_cache import ObjectCache
from autotune.records import Database
from autotune.target import Target

TARGET = "native -num-cores=1"
X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)


def model(factor: float = 2.0) -> onnx.ModelProto:
    """tanh of a product with weights of 6×5."""
    weights = numpy_helper.from_array((np.arange(30, dtype=np.float32).reshape(6, 5) / 30 * factor), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Tanh", ["p"], ["y"])]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [4, 6]), ("y", [4, 5]))]
    graph = helper.make_graph(nodes, "small", values[:1], values[1:], [weights])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    made.ir_version = 8
    return made


def expected(factor: float = 2.0) -> np.ndarray:
    return np.tanh(X @ (np.arange(30, dtype=np.float32).reshape(6, 5) / 30 * factor))


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each compile from now on; the cache is empty, and nobody has extended autotune."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(plugins, "_registered", [])
    monkeypatch.setattr(plugins, "plugin_modules", tuple)
    from autotune.api import load as module
    from autotune.compiler.precise import compile_precisely as real

    seen: list[int] = []

    def counting(*args: object, **kwargs: object) -> object:
        seen.append(1)
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "compile_precisely", counting)
    return seen


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(model(), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def start(source: Path | bytes, **options: object) -> InferenceSession:
    """A session whose program is kept by now, if it is kept at all."""
    session = InferenceSession(source, **{"target": TARGET, "database": False, **options})  # type: ignore[arg-type]
    for thread in threading.enumerate():
        if thread.name == WRITER:
            thread.join()
    return session


def answer(session: InferenceSession) -> np.ndarray:
    return session.run(None, {"x": X})[0]


def entry(tmp_path: Path) -> Path:
    """The program's file: the largest."""
    return max((tmp_path / "cache" / "autotune" / "objects").iterdir(), key=lambda file: file.stat().st_size)


def test_a_second_start_compiles_nothing(path: Path, compiled: list[int]) -> None:
    first = start(path)
    again = start(path)
    assert len(compiled) == 1
    assert again.program == first.program
    assert np.array_equal(answer(again), answer(first))
    assert np.allclose(answer(again), expected(), atol=1e-6)
    assert answer(start(path.read_bytes())) is not None  # the same model from memory
    assert len(compiled) == 1


def test_a_second_start_imports_neither_the_compiler_nor_what_it_needs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    heavy = "autotune.compiler autotune.graph importlib.metadata llvmlite ml_dtypes onnx sqlite3 xgboost".split()
    program = (
        "import sys; from autotune import InferenceSession\n"
        f"InferenceSession({str(path)!r}, target={TARGET!r}, database=False)\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    run = functools.partial(subprocess.run, [sys.executable, "-c", program], check=True, capture_output=True, text=True)
    first, second = (ast.literal_eval(run().stdout) for _ in range(2))
    assert "llvmlite" in first and "autotune.compiler" in first
    assert second == []


def other_model(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    before = path.stat()
    onnx.save(model(3.0), path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # times prove nothing
    return {}


def other_code(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setattr(kept, "hash_of_all", lambda: "another")
    return {}


def other_library(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setattr(packages, "version", lambda name: "99")
    return {}


def other_cost_model(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setattr(kept, "prior_key", lambda: "another")
    return {}


def fewer_features(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    host = Target.parse(TARGET)
    return {"target": replace(host, features=tuple(f for f in host.features if f != "bmi2"))}


def other_database(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    Database.open(path.with_name("tuning.sqlite")).close()
    return {"database": path.with_name("tuning.sqlite")}


def other_option(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    return {"strict_fp": True}


@pytest.mark.parametrize(
    "change",
    [other_model, other_code, other_library, other_cost_model, fewer_features, other_database, other_option],
)
def test_what_decides_about_a_program_is_in_its_name(
    path: Path,
    compiled: list[int],
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path, pytest.MonkeyPatch], Mapping[str, object]],
) -> None:
    start(path)
    options = change(path, monkeypatch)
    found = start(path, **options)
    assert len(compiled) == 2
    assert np.allclose(answer(found), expected(3.0 if change is other_model else 2.0), atol=1e-6)
    start(path, **options)
    assert len(compiled) == 2


def test_what_a_database_has_not_written_into_its_file_counts(path: Path, compiled: list[int]) -> None:
    database = path.with_name("tuning.sqlite")
    Database.open(database).close()
    start(path, database=database)
    for beside in ("-wal", "-journal"):
        names = set()
        for content in (b"1", b"2"):
            database.with_name(database.name + beside).write_bytes(content)
            options = dict.fromkeys(("dump_graph",))
            names.add(KeptProgram(path, Target.parse(TARGET), database, options)._find_name())
        assert len(names) == 2 and None not in names


@pytest.mark.parametrize("damage", ["flip", "flip in the weights", "cut", "empty", "another's"])
def test_damage_is_compiled_again(
    path: Path, tmp_path: Path, compiled: list[int], damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    start(path)
    file = entry(tmp_path)
    data = bytearray(file.read_bytes())
    if damage == "another's":
        start(model(3.0).SerializeToString())
        (other,) = (one for one in file.parent.iterdir() if one.stat().st_size >= len(data) - 64 and one != file)
        os.replace(other, file)
    elif damage.startswith("flip"):
        data[-100 if "weights" in damage else len(data) // 2] ^= 1
        file.write_bytes(data)
    else:
        file.write_bytes(data[:-10] if damage == "cut" else b"")
    compiled.clear()
    assert np.allclose(answer(start(path)), expected(), atol=1e-6)
    assert len(compiled) == 1
    assert "damaged" in caplog.text
    assert np.allclose(answer(start(path)), expected(), atol=1e-6)
    assert len(compiled) == 1


def test_a_model_that_changes_while_it_is_compiled_is_not_kept(
    path: Path, compiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = KeptProgram.keep

    def late(self: KeptProgram, artifact: object) -> None:
        onnx.save(model(3.0), path)
        real(self, artifact)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(KeptProgram, "keep", late)
        start(path)
    onnx.save(model(), path)
    start(path)
    assert len(compiled) == 2


def test_nothing_is_kept_of_what_no_name_tells(
    path: Path, tmp_path: Path, compiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(model(), tmp_path / "apart.onnx", save_as_external_data=True, size_threshold=0, location="weights.bin")
    for _ in range(2):
        assert np.allclose(answer(start(tmp_path / "apart.onnx")), expected(), atol=1e-6)
        start(path, dump_graph=tmp_path / "graphs")
        start(path, fixed={"x": X})
        with Database.open(tmp_path / "open.sqlite") as database:
            start(path, database=database)
    assert len(compiled) == 8
    start(path)
    plugins.registered(lambda: None)
    start(path)
    assert len(compiled) == 10


def test_what_is_too_large_is_not_kept(
    path: Path, tmp_path: Path, compiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache" / "autotune" / "objects"
    monkeypatch.setattr(kept, "object_cache", lambda: ObjectCache(folder, max_bytes=20_000))
    start(path)
    start(path)
    assert len(compiled) == 2
