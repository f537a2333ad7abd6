"""What ONNX Runtime's quantisation tool writes is computed in integers, and as ONNX Runtime computes it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.api.session import InferenceSession
from autotune.engines.engine import Feeds
from autotune.graph import load_model, optimize
from benchmarks.models import example
from benchmarks.quantized import KINDS, OPSET, claims, quantized, snr
from benchmarks.report import Report, Row
from tests.peer import exactly


def network() -> onnx.ModelProto:
    """A convolution, a depthwise one, a residual sum, pools, a join and a dense layer."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (16, 3, 3, 3), "w2": (16, 1, 3, 3), "w3": (16, 16, 1, 1), "w4": (10, 32)}
    weights = {name: rng.standard_normal(shape) / math.prod(shape[1:]) ** 0.5 for name, shape in shapes.items()}
    weights |= {f"b{name[1:]}": rng.standard_normal(shape[0]) / 10 for name, shape in shapes.items()}
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1], group=16),
        helper.make_node("Clip", ["c2", "low", "high"], ["r2"]),
        helper.make_node("Conv", ["r2", "w3", "b3"], ["c3"]),
        helper.make_node("Add", ["c3", "r1"], ["s"]),
        helper.make_node("MaxPool", ["s"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("AveragePool", ["s"], ["a"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Concat", ["m", "a"], ["j"], axis=1),
        helper.make_node("GlobalAveragePool", ["j"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["y"], transB=1),
    ]
    tensors += [numpy_helper.from_array(np.asarray(v, np.float32), n) for n, v in (("low", 0), ("high", 6))]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 16, 16))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 10))]
    graph = helper.make_graph(nodes, "net", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def as_written(file: Path, feeds: Feeds) -> list[Any]:
    """Bytes are read as real numbers, and written as bytes again, around each operator."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    peer = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return list(peer.run(None, dict(feeds)))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "dynamic"])
def test_files_of_the_tool(kind: str, tmp_path: Path) -> None:
    floating = tmp_path / "net.onnx"
    onnx.save(network(), floating)
    file, feeds = quantized(floating, kind), example(network())
    graph = optimize(load_model(file))
    products = [node for node in graph.nodes if node.op in ("conv2d", "matmul")]
    assert {node.output.dtype for node in products} == {"i32"}
    (ours,) = InferenceSession(file, database=False).run(None, feeds)
    (theirs,) = as_written(file, feeds) if kind != "operators" else exactly(file.read_bytes(), feeds)
    step = np.diff(np.unique(np.concatenate([np.asarray(theirs).ravel(), [0.0]]))).min()  # of the last grid
    assert np.abs(np.asarray(ours) - theirs).max() <= 1.01 * step
    (real,) = onnxruntime.InferenceSession(floating, providers=["CPUExecutionProvider"]).run(None, feeds)
    assert snr(np.asarray(ours), real) > 20


def test_noise_is_counted_in_decibels() -> None:
    assert snr(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == math.inf
    assert snr(np.array([1.1]), np.array([1.0])) == pytest.approx(20)


def test_claims_compare_with_the_best_peer() -> None:
    report = Report("quantized", "", environment={})
    rows: list[Row] = [
        {"engine": "autotune int8", "ms": 2.0, "over ours": 1.0, "SNR dB": 20.0},
        {"engine": "onnxruntime int8", "ms": 3.0, "over ours": 1.5, "SNR dB": 20.5},
        {"engine": "openvino int8", "note": "not installed"},
    ]
    claims(report, "net", rows)
    assert [claim.value for claim in report.claims] == [1.5, 0.5]
    assert all(claim.holds for claim in report.claims)


def test_tuned_integers_are_what_is_claimed_where_there_are_any() -> None:
    report = Report("quantized", "", environment={})
    rows: list[Row] = [
        {"engine": "autotune int8, tuned", "ms": 1.5, "over ours": 1.0, "SNR dB": 20.0},
        {"engine": "autotune int8", "ms": 2.0, "over ours": 4 / 3, "SNR dB": 17.0},
        {"engine": "openvino int8", "ms": 3.0, "over ours": 2.0, "SNR dB": 20.5},
    ]
    claims(report, "net", rows)
    assert [claim.value for claim in report.claims] == [2.0, 0.5]
