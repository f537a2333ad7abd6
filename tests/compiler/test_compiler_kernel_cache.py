"""A second build takes kernels and layouts from the cache, and what the user brought is never kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.codegen.object_cache import ObjectCache
from autotune.compiler import choose, kernel_cache
from autotune.compiler.compile import compile_model
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.search_spaces import Config, Interface, make_schedule
from autotune.target import Target

TARGET = Target.parse("native -num-cores=1")


@pytest.fixture
def model() -> bytes:
    """A convolution and a relu."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16, 9, 9]) for name in ("x", "y")]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [16, 16, 3, 3], np.linspace(-1, 1, 16 * 16 * 9).tolist())
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4), helper.make_node("Relu", ["c"], ["y"])]
    graph = helper.make_graph(nodes, "conv", values[:1], values[1:], [weight])
    encoded: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]).SerializeToString()
    return encoded


def test_a_second_build_schedules_nothing(model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_model(model, TARGET, cache=ObjectCache(tmp_path))

    def never(*given: object) -> None:
        raise AssertionError("scheduled again")

    monkeypatch.setattr(choose, "make_schedule", never)
    second = compile_model(model, TARGET, cache=ObjectCache(tmp_path))
    assert second.program == first.program and second.objects == first.objects
    np.testing.assert_array_equal(
        np.concatenate([*second.constants.chunks()]), np.concatenate([*first.constants.chunks()])
    )
    x = np.random.default_rng(0).standard_normal((1, 16, 9, 9), dtype=np.float32)
    np.testing.assert_array_equal(second.run({"x": x})[0], first.run({"x": x})[0])


def test_other_sources_make_every_entry_a_miss(model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_model(model, TARGET, cache=ObjectCache(tmp_path))
    monkeypatch.setattr(kernel_cache, "code_version", lambda workload, config: "other")
    built: list[Config] = []

    def watched(workload: Workload, config: Config, target: Target, interface: Interface | None = None) -> Schedule:
        built.append(config)
        return make_schedule(workload, config, target, interface)

    monkeypatch.setattr(choose, "make_schedule", watched)
    compile_model(model, TARGET, cache=ObjectCache(tmp_path))
    assert built


def test_a_damaged_entry_is_built_again(model: bytes, tmp_path: Path) -> None:
    first = compile_model(model, TARGET, cache=ObjectCache(tmp_path))
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert compile_model(model, TARGET, cache=ObjectCache(tmp_path)).objects == first.objects
