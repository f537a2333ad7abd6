"""The sweep of exported architectures, without torch: what is left open grows, and what breaks costs one result."""

import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from benchmarks.breadth import conversation
from benchmarks.breadth.__main__ import Folder, main, succeeded
from benchmarks.breadth.isolated import isolated
from benchmarks.breadth.judge import TOKENS, Decoding, check, grown
from tests.compiler.test_compiler_growing import decoder

MEMORY = 1 << 40


def test_larger_inputs_agree_wherever_their_axes_have_one_name() -> None:
    feeds: dict[str, NDArray[Any]] = {
        "ids": np.zeros((1, 4), np.int64),
        "mask": np.ones((1, 7), np.int64),
        "past": np.arange(6, dtype=np.float32).reshape(1, 6, 1),
    }
    axes = {"ids": {"0": "batch"}, "mask": {"0": "batch", "1": "total"}, "past": {"0": "batch", "1": "past"}}
    larger = grown(feeds, axes)
    assert {name: array.shape for name, array in larger.items()} == {"ids": (2, 4), "mask": (2, 10), "past": (2, 9, 1)}
    np.testing.assert_array_equal(larger["past"][0, :, 0], [0, 1, 2, 3, 4, 5, 0, 1, 2])


class _Appends:
    """An engine whose output is all that it was given, and a row more for each token."""

    name, version = "appends", ""

    def __init__(self) -> None:
        self.shapes: list[tuple[tuple[int, ...], ...]] = []

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        self.shapes.append((feeds["past"].shape, feeds["mask"].shape))
        return [feeds["ids"], np.concatenate([feeds["past"], feeds["past"][:, [-1] * feeds["ids"].shape[1]]], 1)]


@pytest.mark.parametrize("tokens", [1, 3])
def test_steps_go_on_from_what_came_out_and_begin_again(tokens: int) -> None:
    feeds: dict[str, NDArray[Any]] = {
        "ids": np.zeros((1, tokens), np.int64), "mask": np.ones((1, 3 + tokens), np.int64),
        "past": np.ones((1, 3, 2), np.float32),
    }  # fmt: skip
    engine = _Appends()
    decoding = Decoding(engine, {"past": 1}, {"mask": 1})
    wanted = [((1, 3 + n, 2), (1, 3 + tokens + n)) for n in range(0, TOKENS, tokens)]
    for _ in range(len(wanted) + 1):
        decoding.run(feeds)
    assert engine.shapes == [*wanted, wanted[0]]
    assert feeds["past"].shape == (1, 3, 2)


@pytest.mark.parametrize("few", [None, 1])
def test_a_conversation_is_right_in_few_programs(
    few: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(conversation, "TURNS", (3, 1, 4, 1))
    monkeypatch.setattr(conversation, "FEW", few or conversation.FEW)
    model = decoder()
    onnx.save(model, tmp_path / "model.onnx")
    caches = {value.name: {"0": "batch", "2": "past"} for value in model.graph.input if value.name.startswith("past")}
    axes = {"ids": {"0": "batch", "1": "new"}, "mask": {"0": "batch", "1": "total"}, **caches}
    shapes = {value.name: [d.dim_value or 1 for d in value.type.tensor_type.shape.dim] for value in model.graph.input}
    feeds: dict[str, NDArray[Any]] = {
        name: np.ones(shape, np.float32 if name in caches else np.int64) for name, shape in shapes.items()
    }
    feeds["ids"] = np.asarray([[0, 1, 2]])
    np.savez(tmp_path / "feeds.npz", allow_pickle=False, **feeds)
    found = check(tmp_path, axes)
    assert found["right"] == (few is None) and 1 < found["programs"] <= 8
    assert len(found["errors"]) == found["runs"] == 4 and max(one["peer"] for one in found["errors"].values()) < 1e-4


def _dies() -> dict[str, object]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def _sleeps() -> dict[str, object]:
    time.sleep(60)
    return {}


@pytest.mark.parametrize(
    "work, seconds, kind", [(dict, 60, None), (_dies, 60, "crash"), (_sleeps, 0.1, "timeout"), (int, 60, "error")]
)
def test_a_process_that_ends_badly_is_a_result(work: object, seconds: float, kind: str | None) -> None:
    arguments = ("none",) if work is int else ()
    found = isolated(work, *arguments, seconds=seconds, memory=MEMORY)  # type: ignore[arg-type]
    assert found.get("failed") == kind


def test_a_step_that_found_fault_did_not_succeed() -> None:
    assert not succeeded("check", {}) and not succeeded("check", {"check": {"right": False}})
    assert not succeeded("check", {"check": {"failed": "crash"}}) and succeeded("check", {"check": {"right": True}})
    assert succeeded("time", {"time": {"speedup": 1.0}}) and not succeeded("time", {"time": {"speedup": 0.9}})


def test_an_exported_model_is_checked_once_and_reported(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy"]
    model = helper.make_model(
        helper.make_graph([node], "g", values[:1], values[1:]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    folder = Folder(tmp_path)
    export = {"exporter": "by hand", "axes": {"x": {"0": "n"}}, "nodes": 1}
    folder.write("odd/relu", {"export": export})
    onnx.save(model, folder.of("odd/relu") / "model.onnx")
    np.savez(folder.of("odd/relu") / "feeds.npz", x=np.full((2, 3), -1, np.float32))
    assert main([str(tmp_path), "--step", "check"]) == 0
    found = folder.read("odd/relu")["check"]
    assert found["right"] and set(found["errors"]) == {"example", "larger"}
    folder.write("odd/relu", {"export": export, "check": {**found, "mark": 1}})
    report = tmp_path / "report.json"
    assert main([str(tmp_path), "--step", "check"]) == 0  # is done already
    assert folder.read("odd/relu")["check"]["mark"] == 1
    assert main([str(tmp_path), "--step", "table", "--json", str(report)]) == 0
    (row,) = json.loads(report.read_text())["tables"]["architectures"]
    assert row["architecture"] == "odd/relu" and row["right"] and row["open"]
