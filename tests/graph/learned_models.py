"""Random models of classical machine learning, as exporters write them, and what others compute from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import autotune

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def random_trees(
    rng: np.random.Generator, count: int, depth: int, features: int, targets: Sequence[int], prefix: str,
    modes: Sequence[str] = MODES[:1], *, positive: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Attributes of an ensemble: trees of any form, thresholds among a few values that data has, too."""
    nodes: list[tuple[int, int, str, int, float, int, int, int]] = []
    leaves: list[tuple[int, int, int, float]] = []
    for tree in range(count):
        next_id = [0]

        def grow(level: int, tree: int = tree, next_id: list[int] = next_id) -> int:
            here = next_id[0]
            next_id[0] += 1
            if level == depth or (level and rng.random() < 0.2):
                nodes.append((tree, here, "LEAF", 0, 0.0, 0, 0, 0))
                for target in targets:
                    weight = float(rng.random() if positive else rng.standard_normal())
                    leaves.append((tree, here, target, weight / count))
                return here
            place = len(nodes)
            nodes.append((tree, here, "", 0, 0.0, 0, 0, 0))
            yes, no = grow(level + 1), grow(level + 1)
            mode, value = str(rng.choice(modes)), float(rng.integers(-3, 4)) / 2
            nodes[place] = (tree, here, mode, int(rng.integers(features)), value, yes, no, int(rng.integers(2)))
            return here

        grow(0)
    columns = list(zip(*nodes))
    names = (
        "treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids",
        "missing_value_tracks_true",
    )  # fmt: skip
    found: dict[str, Any] = {f"nodes_{name}": list(column) for name, column in zip(names, columns)}
    weights = list(zip(*leaves))
    found |= {f"{prefix}_{name}": list(c) for name, c in zip(("treeids", "nodeids", "ids", "weights"), weights)}
    return found


def data(rng: np.random.Generator, rows: int, features: int) -> np.ndarray:
    """Numbers that thresholds hit, others, and now and then NaN."""
    x = np.where(rng.random((rows, features)) < 0.5, rng.integers(-3, 4, (rows, features)) / 2,
                 rng.standard_normal((rows, features)))  # fmt: skip
    x[rng.random(x.shape) < 0.05] = np.nan
    return x.astype(np.float32)


def model(
    op: str, inputs: dict[str, tuple[int, Sequence[Any]]], outputs: dict[str, int], *, nodes: Sequence[Any] = (),
    version: int = 3, **attributes: Any,
) -> onnx.ModelProto:  # fmt: skip
    """One operator of ai.onnx.ml, or several that are given as nodes."""
    every = nodes or [helper.make_node(op, list(inputs), list(outputs), domain="ai.onnx.ml", **attributes)]
    graph = helper.make_graph(
        every,
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
    )
    opsets = [helper.make_opsetid("ai.onnx.ml", version), helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


FLOAT, DOUBLE, INT64, STRING = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING
ML = "ai.onnx.ml"

TARGET = "native -num-cores=1"


def both(proto: onnx.ModelProto, feeds: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    text = proto.SerializeToString()
    ours = autotune.InferenceSession(text, target=TARGET, database=False).run(None, feeds)
    theirs = onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"]).run(None, feeds)
    return ours, theirs


def as_reference(proto: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    ours = autotune.InferenceSession(proto.SerializeToString(), target=TARGET, database=False).run(None, feeds)
    for one, other in zip(ours, ReferenceEvaluator(proto).run(None, feeds), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def agree(proto: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    ours, theirs = both(proto, feeds)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
