"""Staged files: who opens one compiles nothing for what was prepared, and gets what a session of the model gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import autotune
from autotune.api.session import InferenceSession
from benchmarks import found
from benchmarks.decode import Size, gpt2, product_of
from tests.api.test_api_open_shapes import nonzero_model
from tests.compiler.test_compiler_loops import cell_model
from tests.compiler.test_compiler_staged import data

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


def test_a_loop_on_the_host(tmp_path: Path) -> None:
    model = cell_model().SerializeToString()
    feeds = {"n": np.asarray(5), "x0": data(2, 8), "h0": data(2, 8, seed=1)}
    autotune.compile_staged(model, TARGET, False, inputs=[feeds]).save(tmp_path / "model.at")
    ours, compiled = opened(tmp_path / "model.at", [feeds], tmp_path / "run")
    equal(ours, right(model, [feeds]))
    assert compiled == []
