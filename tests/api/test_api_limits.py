"""strict_fp, max_memory and run_into: what a build may use, and where a session writes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.errors import InputError, ModelError
from autotune.ops import parse_workload
from autotune.search_spaces import Config
from autotune.search_spaces.space.registry import lookup, task_space, templates_for
from autotune.target import Target
from tests.cli.cli_models import conv_model, invoke, save

TARGET = "x86 -mcpu=haswell -num-cores=1"
"""Any CPU runs its code, and filters by Winograd what others multiply in pieces."""
CONV = "conv2d data=1,64,28,28 weight=64,64,3,3 pad=1"


def winograd_model(folder: Path) -> Path:
    """Two convolutions that are Winograd by default, the second with larger weights for its image."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array((rng.standard_normal((64, 64, 3, 3)) / 24).astype(np.float32), name) for name in "ab"
    ]
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["h"], pads=[1] * 4),
        helper.make_node("MaxPool", ["h"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", "b"], ["y"], pads=[1] * 4),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64, 28, 28])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64, 14, 14])
    model = helper.make_model(helper.make_graph(nodes, "two", [x], [y], weights), ir_version=9,
                              opset_imports=[helper.make_opsetid("", 13)])  # fmt: skip
    path = folder / "two.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return winograd_model(tmp_path_factory.mktemp("limits"))


def templates(compiled: object) -> list[str]:
    return [Config.from_json(kernel.config).template or "" for kernel in compiled.kernels]  # type: ignore[attr-defined]


def memory(compiled: object) -> int:
    program = compiled.program  # type: ignore[attr-defined]
    return int(program.constant_bytes + program.arena_bytes)


def test_strict_fp_leaves_winograd_out(model: Path) -> None:
    free = autotune.compile(model, TARGET, False)
    strict = autotune.compile(model, TARGET, False, strict_fp=True)
    assert sum("winograd" in name for name in templates(free)) == 2
    assert not any("winograd" in name for name in templates(strict))
    x = np.random.default_rng(1).standard_normal((1, 64, 28, 28)).astype(np.float32)
    np.testing.assert_allclose(free.run({"x": x})[0], strict.run({"x": x})[0], atol=1e-3)


def test_strict_fp_restricts_the_search() -> None:
    workload, target = parse_workload(CONV), Target.parse(TARGET)
    assert any(not entry.strict for entry in templates_for(workload, target))
    assert all(entry.strict for entry in templates_for(workload, target, strict_fp=True))
    space = task_space(workload, target, strict_fp=True)
    assert lookup(space.default().template or "").strict


def test_a_limit_of_memory_gives_up_winograd_where_it_wins_least(model: Path) -> None:
    free = autotune.compile(model, TARGET, False)
    limited = autotune.compile(model, TARGET, False, max_memory=memory(free) - 1)
    assert memory(limited) < memory(free)
    assert ["winograd" in name for name in templates(limited)].count(True) == 1
    first = next(kernel for kernel in limited.kernels if "winograd" in kernel.config)
    assert "28,28" in first.description  # the larger image saves more multiplications by the same weights
    strict = autotune.compile(model, TARGET, False, strict_fp=True)
    least = autotune.compile(model, TARGET, False, max_memory=memory(strict))
    assert memory(least) <= memory(strict)
    with pytest.raises(ModelError, match="more than the 1000 allowed"):
        autotune.compile(model, TARGET, False, max_memory=1000)


def test_the_limits_on_the_command_line(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "two.at"
    common = ("compile", model, "-o", out, "--untuned", "--target", TARGET)
    done = invoke(*common, "--strict-fp", "--max-memory", "64M", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["weight_bytes"] < 400_000
    for text, message in (("lots", "no size"), ("10k", "more than the 10240 allowed")):
        refused = invoke(*common, "--max-memory", text)
        assert refused.exit_code == 1 and message in refused.stderr


def test_run_into_writes_where_it_is_told(tmp_path: Path) -> None:
    path = save(conv_model(), tmp_path / "small.onnx")
    session = autotune.InferenceSession(path, target=TARGET, database=False)
    (spec,), (result,) = session.get_inputs(), session.get_outputs()
    x = np.random.default_rng(2).standard_normal(spec.spec.shape).astype(np.float32)
    wanted = session.run(None, {spec.name: x})[0]
    mine = np.empty(wanted.shape, wanted.dtype)
    session.run_into({result.name: mine}, {spec.name: x})
    np.testing.assert_array_equal(mine, wanted)
    with pytest.raises(InputError, match="no output named"):
        session.run_into({"nothing": mine}, {spec.name: x})
