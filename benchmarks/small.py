"""Models of one tiny operator, where what a run costs beside computing is all that it costs, against ONNX Runtime.

python -m benchmarks.small                  all models, in one process, in turn
python -m benchmarks.small unique nms       some of them
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks.report import Report, Row, parser, progress

BLOCK = 50  # runs between two readings of the clock
ROUNDS = 200
METHOD = (
    f"Both engines in one process, one thread each, blocks of {BLOCK} runs in turn; the median of the blocks of each "
    "engine, and of the ratios of neighbouring blocks. Inputs are the same in every run; outputs are dropped."
)
Feeds = Mapping[str, NDArray[Any]]


class Case(NamedTuple):
    """A model and what it is fed with."""

    model: onnx.ModelProto
    feeds: Feeds


def _model(
    nodes: list[onnx.NodeProto], feeds: Feeds, outputs: list[str], constants: Mapping[str, object] | None = None
) -> onnx.ModelProto:
    """A model of these nodes whose inputs have the shapes of the feeds; what comes out, onnx finds out."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "small", inputs, results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    known = {value.name: value for value in onnx.shape_inference.infer_shapes(model).graph.output}
    for value in model.graph.output:
        value.CopyFrom(known[value.name])
    return model


def _floats(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def _unique(*outputs: str) -> Case:
    feeds = {"x": np.round(_floats(50), 1)}
    return Case(_model([helper.make_node("Unique", ["x"], list(outputs))], feeds, list(outputs)), feeds)


def _boxes() -> Case:
    corners = np.abs(_floats(1, 100, 4))
    corners[..., 2:] += corners[..., :2]
    feeds = {"boxes": corners, "scores": np.abs(_floats(1, 1, 100))}
    limits = {"most": np.int64(20), "overlap": np.float32(0.5), "least": np.float32(0.3)}
    node = helper.make_node("NonMaxSuppression", [*feeds, *limits], ["kept"])
    return Case(_model([node], feeds, ["kept"], {name: np.asarray([n]) for name, n in limits.items()}), feeds)


def _computed_if() -> Case:
    """x + 1 where the sum of x is positive, else x - 1."""
    feeds = {"x": _floats(4, 8)}
    branches = [
        helper.make_graph(
            [helper.make_node(op, ["x", "one"], [name])], name, [],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8])],
        )
        for op, name in (("Add", "more"), ("Sub", "less"))
    ]  # fmt: skip
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    return Case(_model(nodes, feeds, ["y"], {"one": np.float32(1), "zero": np.float32(0)}), feeds)


def _masked_select() -> Case:
    """`x[x > 0]` as exporters write it."""
    feeds = {"x": _floats(10, 10)}
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["mask"]),
        helper.make_node("NonZero", ["mask"], ["columns"]),
        helper.make_node("Transpose", ["columns"], ["places"], perm=[1, 0]),
        helper.make_node("GatherND", ["x", "places"], ["y"]),
    ]
    return Case(_model(nodes, feeds, ["y"], {"zero": np.float32(0)}), feeds)


def _nonzero() -> Case:
    feeds = {"x": np.maximum(_floats(10, 10), 0)}
    return Case(_model([helper.make_node("NonZero", ["x"], ["y"])], feeds, ["y"]), feeds)


def _compress() -> Case:
    feeds = {"x": _floats(20, 4), "keep": _floats(20) > 0}
    return Case(_model([helper.make_node("Compress", [*feeds], ["y"], axis=0)], feeds, ["y"]), feeds)


def _slice() -> Case:
    """A slice whose end the run gives."""
    feeds = {"x": _floats(20, 4), "end": np.asarray([7])}
    node = helper.make_node("Slice", ["x", "start", "end", "axis"], ["y"])
    return Case(_model([node], feeds, ["y"], {"start": np.asarray([0]), "axis": np.asarray([0])}), feeds)


def _add() -> Case:
    feeds = {"a": _floats(4), "b": _floats(4)}
    return Case(_model([helper.make_node("Add", ["a", "b"], ["y"])], feeds, ["y"]), feeds)


def _mlp() -> Case:
    """A row of 16 through 32 hidden units to 4."""
    feeds = {"x": _floats(1, 16)}
    weights = {"w": _floats(16, 32), "b": _floats(32), "v": _floats(32, 4), "c": _floats(4)}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "v", "c"], ["y"]),
    ]
    return Case(_model(nodes, feeds, ["y"], weights), feeds)


CASES: Mapping[str, Callable[[], Case]] = {
    "unique": lambda: _unique("y"),
    "unique, all results": lambda: _unique("y", "first", "inverse", "counts"),
    "nms": _boxes,
    "if": _computed_if,
    "masked select": _masked_select,
    "nonzero": _nonzero,
    "compress": _compress,
    "slice": _slice,
    "add": _add,
    "mlp": _mlp,
}


def measure(case: Case, rounds: int) -> tuple[float, float, float]:
    """Seconds of a run of ours and of ONNX Runtime's, and how many times as long that takes."""
    import onnxruntime

    import autotune

    source = case.model.SerializeToString()
    ours = autotune.InferenceSession(source, target="native -num-cores=1", database=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # helpers that spin would slow the others down
    theirs = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    for one, other in zip(ours.run(None, case.feeds), theirs.run(None, case.feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)

    def block(run: Callable[[None, Feeds], object]) -> float:
        begun = time.perf_counter()
        for _ in range(BLOCK):
            run(None, case.feeds)
        return (time.perf_counter() - begun) / BLOCK

    pairs = [(block(ours.run), block(theirs.run)) for _ in range(rounds + 2)][2:]
    one, other = (statistics.median(times) for times in zip(*pairs))
    return one, other, statistics.median(b / a for a, b in pairs)


def main(arguments: list[str] | None = None) -> int:
    options = parser("small", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(CASES)}; all of them if none")
    options.add_argument("--rounds", type=int, default=ROUNDS)
    given = options.parse_args(arguments)
    unknown = [name for name in given.models if name not in CASES]
    if unknown:
        options.error(f"no model is called {', '.join(unknown)}")
    report = Report("small", METHOD, given.quick)
    rows: list[Row] = []
    for name in given.models or CASES:
        progress(name)
        ours, theirs, times = measure(CASES[name](), 4 if given.quick else given.rounds)
        rows.append({"model": name, "autotune µs": ours * 1e6, "onnxruntime µs": theirs * 1e6, "times": times})
        report.claim(f"{name}: speed, of onnxruntime's", times, "at least", 1.0, "x")
    report.table("models of one tiny operator", rows)
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
