"""Staged files: who opens one compiles nothing for what was prepared, and gets what a session of the model gives."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autotune
from autotune.api.session import InferenceSession
from autotune.compiler.background import Background
from autotune.compiler.foreseen import Foreseen
from autotune.compiler.staged_file import StagedFile
from autotune.errors import CompiledModelError, InputError, ModelError, TargetError
from autotune.runtime.artifact import load_artifact
from autotune.runtime.file_head import HEAD
from autotune.runtime.sealed import MAGIC
from autotune.target import Target
from autotune.tensor.shape_range import ShapeRange
from benchmarks import found
from benchmarks.decode import Size, gpt2, product_of
from tests.api.test_api_open_shapes import nonzero_model
from tests.cli.cli_models import conv_model
from tests.compiler.test_compiler_growing import decoder as short_decoder
from tests.compiler.test_compiler_loops import cell_model
from tests.compiler.test_compiler_staged import data, model_of

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
TARGET = "native -num-cores=1"

CHILD = """
import json, sys
from pathlib import Path
import numpy as np
import autotune
from autotune.codegen import jit
from autotune.compiler import compile as compiling
from autotune.search_spaces.space import registry

calls = []
def counted(module, name):
    real = getattr(module, name)
    def call(*args, **more):
        calls.append(name)
        return real(*args, **more)
    setattr(module, name, call)
counted(jit, "_parse")  # all that LLVM compiles
counted(compiling, "partition")  # a program is being made
counted(registry, "_by_time")  # the models of costs
session = autotune.InferenceSession(sys.argv[1])
runs = json.loads(sys.argv[2])
for number, names in enumerate(runs):
    folder = Path(sys.argv[3])
    feeds = {name: np.load(folder / f"{number}.{n}.in.npy") for n, name in enumerate(names)}
    for n, array in enumerate(session.run(None, feeds)):
        np.save(folder / f"{number}.{n}.out.npy", array)
print(json.dumps(calls))
"""


def opened(file: Path, runs: Sequence[Feeds], folder: Path) -> tuple[list[list[Array]], list[str]]:
    """What a fresh process answers, which has an empty cache and no database, and what it compiled."""
    folder.mkdir()
    for number, feeds in enumerate(runs):
        for n, array in enumerate(feeds.values()):
            np.save(folder / f"{number}.{n}.in.npy", array)
    names = json.dumps([list(feeds) for feeds in runs])
    own = {"XDG_CACHE_HOME": "cache", "XDG_DATA_HOME": "data", "AUTOTUNE_DB": "none.sqlite"}
    path = str(Path(autotune.__file__).parents[1])
    env = {**os.environ, **{name: str(folder / place) for name, place in own.items()}, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, file, names, folder], env=env, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    outputs = []
    for number in range(len(runs)):
        count = len(list(folder.glob(f"{number}.*.out.npy")))
        outputs.append([np.load(folder / f"{number}.{n}.out.npy") for n in range(count)])
    return outputs, json.loads(done.stdout)


def right(model: bytes, runs: Sequence[Feeds]) -> list[list[Array]]:
    session = InferenceSession(model, target=TARGET, database=False)
    return [session.run(None, dict(feeds)) for feeds in runs]


def equal(ours: Sequence[Sequence[Array]], wanted: Sequence[Sequence[Array]]) -> None:
    for one, other in zip(ours, wanted, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def decoder() -> onnx.ModelProto:
    """Two layers of GPT-2, whose caches grow."""
    return gpt2(product_of("f32"), None, Size(32, 2, 2, 64, 50))


def step(past: int, tokens: int, seed: int = 0) -> dict[str, Array]:
    feeds: dict[str, Array] = {
        "input_ids": np.full((1, tokens), seed + 3), "attention_mask": np.ones((1, past + tokens), np.int64),
        "position_ids": np.arange(past, past + tokens)[None],
    }  # fmt: skip
    return {**feeds, **{f"past.{n}": data(1, 2, past, 16, seed=seed + n) for n in range(4)}}


def test_a_detector_answers_at_once(tmp_path: Path) -> None:
    """A layer behind NonMaxSuppression: what is kept of other images is more or less than of those that it was made
    ready with."""
    case = found.boxes()
    rng = np.random.default_rng(5)
    samples, runs = [case.feeds(rng) for _ in range(3)], [case.feeds(rng) for _ in range(3)]
    made = autotune.compile_staged(case.model, TARGET, False, inputs=samples)
    made.save(tmp_path / "model.at")
    ours, compiled = opened(tmp_path / "model.at", [*samples, *runs], tmp_path / "run")
    equal(ours, right(case.model, [*samples, *runs]))
    assert compiled == [] and len(made.programs) > 0


def test_what_is_not_zero(tmp_path: Path) -> None:
    """Inputs that are drawn make it ready, since no shape is open."""
    model = nonzero_model().SerializeToString()
    runs = [{"x": data(2, 3)}, {"x": np.zeros((2, 3), np.float32)}, {"x": np.eye(2, 3, dtype=np.float32)}]
    autotune.compile_staged(model, TARGET, False).save(tmp_path / "model.at")
    ours, compiled = opened(tmp_path / "model.at", runs, tmp_path / "run")
    equal(ours, right(model, runs))
    assert compiled == []


@pytest.mark.slow
def test_a_decoder_is_ready_for_prompts_and_steps(tmp_path: Path) -> None:
    """Nobody has named a shape; what is behind the context that is foreseen is compiled."""
    model = decoder().SerializeToString()
    made = autotune.compile_staged(model, TARGET, False)
    made.save(tmp_path / "model.at")
    shapes = [(0, 16), (32, 1), (33, 1), (0, 64), (200, 1), (900, 1)]
    runs = [step(*shape, seed=n) for n, shape in enumerate(shapes)]
    ours, compiled = opened(tmp_path / "model.at", runs, tmp_path / "run")
    equal(ours, right(model, runs))
    assert compiled == []
    later, more = opened(tmp_path / "model.at", [step(1500, 1)], tmp_path / "later")
    equal(later, right(model, [step(1500, 1)]))
    assert "_parse" in more


def test_what_lies_between_what_is_ready_runs_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a program of just that length; one may be made where nobody waits."""
    model = decoder().SerializeToString()
    autotune.compile_staged(model, TARGET, False).save(tmp_path / "model.at")
    monkeypatch.setattr(Background, "offer", lambda self, work: False)
    session = autotune.InferenceSession(tmp_path / "model.at", database=False)
    runs = [step(0, tokens, seed) for seed, tokens in enumerate((20, 17, 100, 250))]
    equal([session.run(None, one) for one in runs], right(model, runs))
    assert {use.inputs["input_ids"] for use in session.shapes()} == {(1, 32), (1, 128), (1, 256)}


@pytest.mark.slow
def test_a_decoder_is_ready_for_no_more_than_it_can(tmp_path: Path) -> None:
    """It has 64 positions: where nobody names a shape, what it refuses is passed over."""
    made = autotune.compile_staged(short_decoder().SerializeToString(), TARGET, False)
    runs = [(shape["past"], shape["tokens"]) for shape in made.shapes.ranged]
    assert runs == [(32, 1), (0, 16), (0, 32), (0, 64)]
    with pytest.raises(ModelError, match="an index into axis 0 is outside"):
        autotune.compile_staged(short_decoder().SerializeToString(), TARGET, False, shapes={"past": (100,)})


def test_a_loop_on_the_host(tmp_path: Path) -> None:
    model = cell_model().SerializeToString()
    feeds = {"n": np.asarray(5), "x0": data(2, 8), "h0": data(2, 8, seed=1)}
    autotune.compile_staged(model, TARGET, False, inputs=[feeds]).save(tmp_path / "model.at")
    ours, compiled = opened(tmp_path / "model.at", [feeds], tmp_path / "run")
    equal(ours, right(model, [feeds]))
    assert compiled == []


def named_batch() -> bytes:
    """A layer for a batch of rows, and where its result is not zero."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Relu", ["p"], ["y"]),
        helper.make_node("NonZero", ["y"], ["where"]),
    ]
    model = model_of(nodes, {"x": (TensorProto.FLOAT, ["n", 6])}, ["y", "where"], {"w": data(6, 5)})
    found: bytes = model.SerializeToString()
    return found


@pytest.fixture(scope="module")
def ready() -> StagedFile:
    return autotune.compile_staged(named_batch(), TARGET, False, shapes=[ShapeRange({"n": (n,)}) for n in (4, 7)])


@pytest.fixture(scope="module")
def file(ready: StagedFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("staged") / "model.at"
    ready.save(path)
    return path


def test_shapes_are_ready_in_whatever_order_they_come(ready: StagedFile, file: Path, tmp_path: Path) -> None:
    assert ready.shapes == Foreseen(({"n": 4}, {"n": 7}))
    runs = [{"x": data(7, 6, seed=1)}, {"x": data(4, 6, seed=2)}]
    ours, compiled = opened(file, runs, tmp_path / "run")
    equal(ours, right(named_batch(), runs))
    assert compiled == []


def test_equal_models_give_equal_bytes(file: Path, tmp_path: Path) -> None:
    again = autotune.compile_staged(named_batch(), TARGET, False, shapes=[ShapeRange({"n": (n,)}) for n in (4, 7)])
    again.save(tmp_path / "again.at")
    assert (tmp_path / "again.at").read_bytes() == file.read_bytes()


def test_a_session_of_a_file_is_one_of_the_model(file: Path) -> None:
    session = InferenceSession(file, shapes={"n": [7]})
    assert [(arg.name, arg.shape) for arg in session.get_inputs()] == [("x", [7, 6])]
    assert session.engine == "autotune" and session.host_nodes == ("node 'where' (NonZero)",)
    for n in (7, 4, 5, 1):  # two of which were not foreseen
        equal([session.run(None, {"x": data(n, 6)})], right(named_batch(), [{"x": data(n, 6)}]))


def test_shapes_that_were_not_named_can_be_refused(file: Path) -> None:
    session = InferenceSession(file, on_new_shape="error")
    session.run(None, {"x": data(4, 6)})
    with pytest.raises(InputError, match="no program was prepared for n = 5"):
        session.run(None, {"x": data(5, 6)})


def test_inputs_that_are_constants_stay_constants(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("NonZero", ["r"], ["y"]),
    ]
    inputs = {"x": (TensorProto.FLOAT, [2, 3]), "shape": (TensorProto.INT64, [1])}
    model = model_of(nodes, inputs).SerializeToString()
    made = autotune.compile_staged(model, TARGET, False, fixed={"shape": np.asarray([6])})
    made.save(tmp_path / "model.at")
    session = InferenceSession(tmp_path / "model.at")
    assert [arg.name for arg in session.get_inputs()] == ["x"]
    np.testing.assert_array_equal(session.run(None, {"x": np.eye(2, 3, dtype=np.float32)})[0], [[0, 4]])


def test_external_data_is_folded_in(file: Path, tmp_path: Path) -> None:
    """The file is as good where the data is not."""
    model = onnx.load_from_string(named_batch())
    folder = tmp_path / "with data"
    folder.mkdir()
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    made = autotune.compile_staged(folder / "m.onnx", TARGET, False, shapes={"n": (4,)})
    made.save(tmp_path / "model.at")
    shutil.rmtree(folder)
    equal([InferenceSession(tmp_path / "model.at").run(None, {"x": data(4, 6)})],
          right(named_batch(), [{"x": data(4, 6)}]))  # fmt: skip


def test_a_single_program_is_no_staged_file() -> None:
    with pytest.raises(InputError, match=r"single program: autotune\.compile makes its file"):
        autotune.compile_staged(conv_model(1).SerializeToString(), TARGET, False)


def test_shapes_that_nobody_knows_are_asked_for() -> None:
    with pytest.raises(ModelError, match="no extent is given for n: give --shape n="):
        autotune.compile_staged(named_batch(), TARGET, False)


def other_cpu() -> Target:
    """One that has what this machine lacks."""
    here = Target.parse(TARGET)
    found = replace(here, features=(*here.features, "avx512er"))
    assert found.missing_features()
    return found


def test_it_is_made_where_it_can_run() -> None:
    with pytest.raises(TargetError, match="needs avx512er"):
        autotune.compile_staged(named_batch(), other_cpu(), False, shapes={"n": (4,)})


def refused(path: Path, message: str, **more: Any) -> None:
    with pytest.raises(CompiledModelError, match=message) as raised:
        InferenceSession(path, **more)
    assert "\n" not in str(raised.value)


def test_any_damaged_byte_is_noticed(file: Path, tmp_path: Path) -> None:
    whole, damaged = file.read_bytes(), tmp_path / "damaged.at"
    first = HEAD.size + HEAD.unpack(whole[: HEAD.size])[1]  # of the parts
    digests = json.loads(whole[HEAD.size : first])["parts"]
    ends = first + np.cumsum([-(-size // 64) * 64 for size, _ in digests])
    places = [9, 20, HEAD.size, first - 1, first, *(int(end) - 64 for end in ends)]
    for place in (place for place in places if place < len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 0x10
        damaged.write_bytes(flipped)
        refused(damaged, "is damaged")


def test_a_file_that_was_cut_is_refused(file: Path, tmp_path: Path) -> None:
    whole, cut = file.read_bytes(), tmp_path / "cut.at"
    for length in (HEAD.size, 200, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:length])
        refused(cut, "is damaged")
    cut.write_bytes(whole[:20])
    refused(cut, "is not a compiled model")


def test_files_of_other_versions_and_kinds_are_refused(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.at"
    other.write_bytes(MAGIC[:7] + bytes([MAGIC[7] + 1]) + file.read_bytes()[8:])
    refused(other, "was written by another version of autotune; compile the model again")
    with pytest.raises(CompiledModelError, match="holds a model of another kind"):
        load_artifact(file)


def test_a_file_for_another_cpu_is_refused(ready: StagedFile, tmp_path: Path) -> None:
    replace(ready, target=other_cpu().to_json()).save(tmp_path / "other.at")
    refused(tmp_path / "other.at", "cannot run here: .*avx512er")


@pytest.mark.parametrize("package", ["llvmlite", "onnx"])
def test_what_is_not_installed_is_named(file: Path, package: str) -> None:
    script = f"import sys; sys.modules[{package!r}] = None; import autotune; autotune.InferenceSession({str(file)!r})"
    env = {**os.environ, "PYTHONPATH": str(Path(autotune.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    (*_, last) = done.stderr.splitlines()
    assert last.startswith(f"autotune.errors.IncompleteInstallError: {file} holds a model with the programs of its")
    assert f"opening it needs the package {package}, which is not installed: pip install autotune-compiler" in last


def test_signatures_are_those_of_all_files(ready: StagedFile, file: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    from tests.runtime.test_runtime_signature import keys

    (private, public), (_, stranger) = keys(tmp_path, "ours"), keys(tmp_path, "theirs")
    ready.save(tmp_path / "signed.at", sign=private)
    InferenceSession(tmp_path / "signed.at", trust=public).run(None, {"x": data(4, 6)})
    InferenceSession(tmp_path / "signed.at")
    refused(tmp_path / "signed.at", "was signed with another key", trust=stranger)
    refused(file, "is not signed", trust=public)
    whole = bytearray((tmp_path / "signed.at").read_bytes())
    whole[20] ^= 1
    (tmp_path / "signed.at").write_bytes(whole)
    refused(tmp_path / "signed.at", "was altered after it was signed", trust=public)
