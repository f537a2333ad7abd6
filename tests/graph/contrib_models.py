"""Models of one operator of ONNX Runtime's own, and what ONNX Runtime computes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from autotune.errors import UnsupportedError
from autotune.graph import evaluate_graph, load_model, optimize
from tests.graph.graph_models import Array, build
from tests.peer import exactly

DOMAIN = "com.microsoft"


def model_of(
    op: str, feeds: Mapping[str, Array], tensors: Mapping[str, Array], outputs: Sequence[str] = ("y",),
    order: str = "", domain: str = DOMAIN, **attrs: Any,
) -> onnx.ModelProto:  # fmt: skip
    """One node whose inputs are named in `order`, "-" for one that is left out; all there are without."""
    names = ["" if name == "-" else name for name in order.split()] or [*feeds, *tensors]
    node = helper.make_node(op, names, outputs, "node", domain=domain, **attrs)
    model = build(node, feeds, tensors, [name for name in outputs if name], 17)
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    model.ir_version = 9
    return model


def theirs(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def compare(
    op: str,
    feeds: dict[str, Array],
    tensors: dict[str, Array] | None = None,
    within: float = 2e-5,
    exact: bool = False,
    **rest: Any,
) -> None:
    """Ours, optimised or not, with constants as such and as inputs, is what ONNX Runtime computes.

    Its sums of products of bytes are as it computes them on this CPU, unless `exact`.
    """
    given = tensors or {}
    model = model_of(op, feeds, given, **rest)
    expected = exactly(model.SerializeToString(), feeds) if exact else theirs(model, feeds)
    open_ = model_of(op, feeds | given, {}, **rest)
    for variant, values in ((model, feeds), (open_, feeds | given)) if given else ((model, feeds),):
        graph = load_model(variant.SerializeToString())
        for form in (graph, optimize(graph)):
            found = evaluate_graph(form, values)
            for array, wanted in zip(found.values(), expected, strict=True):
                assert array.dtype == wanted.dtype
                assert array.shape == wanted.shape
                np.testing.assert_allclose(array.astype(np.float64), wanted, rtol=min(within, 1e-4), atol=within)


def refusal(*args: Any, kind: type[Exception] = UnsupportedError, **rest: Any) -> str:
    with pytest.raises(kind) as raised:
        load_model(model_of(*args, **rest).SerializeToString())
    said = str(raised.value)
    assert f"node 'node' (com.microsoft.{args[0]})" in said
    assert "\n" not in said
    return said


def numbers(*shape: int, dtype: Any = np.uint8, seed: int = 0) -> Array:
    ends = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(ends.min, ends.max + 1, shape).astype(dtype)
