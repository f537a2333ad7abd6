"""Models in which data decides how much there is to compute, with other data in every call, against ONNX Runtime.

python -m benchmarks.found                  all models, in one process, in turn
python -m benchmarks.found boxes --calls 40 one of them, fewer calls
python -m benchmarks.found --model m.onnx   a model of yours whose inputs have known shapes
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.errors import AutotuneError, InputError
from benchmarks.report import Report, Row, parser, progress

CALLS = 400
METHOD = (
    "Both engines in one process, one thread each; an object cache that is empty at first. Every call has new data, is "
    "made by one engine, then by the other, and by ours again with the same data. Medians and the slowest call are of "
    "the second half of the calls."
)
Feeds = Mapping[str, NDArray[Any]]
FEW, BOXES, CLASSES = 20, 1000, 10
TOKENS, WIDTH, INNER, EXPERTS = 64, 128, 256, 8


class Case(NamedTuple):
    """A model and what a call is fed with."""

    model: bytes
    feeds: Callable[[np.random.Generator], Feeds]


class _Net:
    """Nodes and constants."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self._rng = np.random.default_rng(0)

    def __call__(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        names = [f"{op}{len(self.nodes)}.{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def ints(self, *values: int) -> str:
        return self._constant(np.asarray(values, np.int64))

    def number(self, value: float) -> str:
        return self._constant(np.asarray(value, np.float32))

    def weights(self, *shape: int) -> str:
        return self._constant(self._rng.standard_normal(shape).astype(np.float32) / np.float32(shape[0] ** 0.5))

    def _constant(self, value: NDArray[Any]) -> str:
        name = f"constant{len(self.constants)}"
        self.constants[name] = value
        return name

    def case(self, inputs: Mapping[str, tuple[int, ...]], result: str, feeds: Callable[..., Feeds]) -> Case:
        given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, form) for name, form in inputs.items()]
        outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)]
        tensors = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "found", given, outputs, tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return Case(model.SerializeToString(), feeds)


def _corners(rng: np.random.Generator) -> Feeds:
    start = rng.random((1, BOXES, 2), np.float32) * 100
    boxes = np.concatenate([start, start + rng.random((1, BOXES, 2), np.float32) * 20 + 1], -1)
    scores = rng.random((1, CLASSES, BOXES), np.float32) ** np.float32(rng.uniform(1, 9))
    return {"boxes": boxes, "scores": scores}


FORMS = {"boxes": (1, BOXES, 4), "scores": (1, CLASSES, BOXES)}


def boxes() -> Case:
    """What NonMaxSuppression keeps goes through a layer."""
    net = _Net()
    limits = net.ints(FEW), net.number(0.5), net.number(0.9)
    kept = net("NonMaxSuppression", "boxes", "scores", *limits)
    places = net("Reshape", net("Gather", kept, net.ints(2), axis=1), net.ints(-1))
    rows = net("Gather", net("Squeeze", "boxes", net.ints(0)), places)
    found = net("Softmax", net("Relu", net("MatMul", rows, net.weights(4, 64))), axis=-1)
    return net.case(FORMS, found, _corners)


def classes() -> Case:
    """The best boxes of each class, as many as there are, all together: the tail of a single shot detector."""
    net = _Net()
    flat, each = net("Squeeze", "boxes", net.ints(0)), net("Squeeze", "scores", net.ints(0))
    parts = []
    for number in range(CLASSES):
        scores = net("Gather", each, net.ints(number))
        scores = net("Reshape", scores, net.ints(-1))
        found = net("Reshape", net("NonZero", net("Greater", scores, net.number(0.9))), net.ints(-1))
        good = net("Gather", scores, found)
        count = net("Min", net("Shape", good), net.ints(FEW))
        _, order = net("TopK", good, count, outputs=2)
        parts.append(net("Gather", net("Gather", flat, found), order))
    return net.case(FORMS, net("Concat", *parts, axis=0), _corners)


def experts() -> Case:
    """Each of two experts of eight of a token, chosen by its scores: a layer of a mixture."""
    net = _Net()
    weights, chosen = net(
        "TopK", net("Softmax", net("MatMul", "x", net.weights(WIDTH, EXPERTS))), net.ints(2), outputs=2
    )
    total = net("Mul", "x", net.number(0.0))
    for number in range(EXPERTS):
        found = net("NonZero", net("Equal", chosen, net.ints(number)))
        tokens = net("Reshape", net("Gather", found, net.ints(0)), net.ints(-1))
        rows = net("Gather", "x", tokens)
        hidden = net("Relu", net("MatMul", rows, net.weights(WIDTH, INNER)))
        result = net("MatMul", hidden, net.weights(INNER, WIDTH))
        share = net("Unsqueeze", net("GatherND", weights, net("Transpose", found)), net.ints(1))
        total = net(
            "ScatterND", total, net("Unsqueeze", tokens, net.ints(1)), net("Mul", result, share), reduction="add"
        )
    return net.case({"x": (TOKENS, WIDTH)}, total, lambda rng: {"x": rng.standard_normal((TOKENS, WIDTH), np.float32)})


CASES: Mapping[str, Callable[[], Case]] = {"boxes": boxes, "classes": classes, "experts": experts}


def of_file(path: Path) -> Case:
    """A model with inputs of floats of known shapes, which are drawn evenly, some darker than others.

    Raises:
        AutotuneError: it is none.
    """
    session = autotune.InferenceSession(path, database=False)
    forms: dict[str, tuple[int, ...]] = {}
    for one in session.get_inputs():
        forms[one.name] = tuple(extent for extent in one.shape if isinstance(extent, int))
        if one.type != "tensor(float)" or len(forms[one.name]) < len(one.shape):
            raise InputError(
                f"{path}: input {one.name!r} is {one.type} {one.shape}; only floats of known shapes are drawn"
            )

    def feeds(rng: np.random.Generator) -> Feeds:
        return {name: rng.random(form, np.float32) * np.float32(rng.uniform(0.3, 3)) for name, form in forms.items()}

    return Case(path.read_bytes(), feeds)


def measure(case: Case, calls: int) -> Row:
    """Milliseconds of calls.

    Raises:
        AssertionError: the answers differ.
    """
    import onnxruntime

    ours = autotune.InferenceSession(case.model, target="native -num-cores=1", database=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # helpers that spin would slow the others down
    theirs = onnxruntime.InferenceSession(case.model, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    times: dict[str, list[float]] = {"new": [], "again": [], "theirs": []}

    def timed(name: str, run: Callable[[None, Feeds], Any], feeds: Feeds) -> Any:
        begun = time.perf_counter()
        found = run(None, feeds)
        times[name].append((time.perf_counter() - begun) * 1e3)
        return found

    for _ in range(calls):
        feeds = case.feeds(rng)
        found = timed("new", ours.run, feeds)
        wanted = timed("theirs", theirs.run, feeds)
        timed("again", ours.run, feeds)
        for one, other in zip(found, wanted, strict=True):
            assert one.shape == other.shape, f"{one.shape}, and {other.shape} by ONNX Runtime"
    late = {name: found[calls // 2 :] for name, found in times.items()}
    return {
        "first ms": times["new"][0], "second ms": times["new"][1], "median ms": statistics.median(late["new"]),
        "slowest ms": max(late["new"]), "again ms": statistics.median(late["again"]),
        "onnxruntime ms": statistics.median(late["theirs"]),
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    options = parser("found", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(CASES)}; all of them if none")
    options.add_argument("--model", type=Path, action="append", help="a file; may be repeated")
    options.add_argument("--calls", type=int, default=CALLS)
    given = options.parse_args(arguments)
    unknown = [name for name in given.models if name not in CASES]
    if unknown:
        options.error(f"no model is called {', '.join(unknown)}")
    report = Report("found", METHOD, given.quick)
    try:
        files = {path.stem: of_file(path) for path in given.model or ()}
    except AutotuneError as error:
        options.error(str(error))
    cases = {name: CASES[name]() for name in given.models or (() if files else CASES)} | files
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="autotune-found-") as folder, patch.dict(os.environ, XDG_CACHE_HOME=folder):
        for name, case in cases.items():
            progress(name)
            row = measure(case, 4 if given.quick else given.calls)
            rows.append({"model": name, **row})
            ratio = float(row["onnxruntime ms"] or 0) / float(row["median ms"] or 1)
            report.claim(f"{name}: speed with new data, of onnxruntime's", ratio, "at least", 1.0, "x")
    report.table("calls with new data", rows)
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
