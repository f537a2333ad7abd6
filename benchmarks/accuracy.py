"""How exact whole models are: our error and ONNX Runtime's against a float64 evaluation.

python -m benchmarks.accuracy                  the deep networks, one thread, untuned
python -m benchmarks.accuracy vgg16 --threads 2
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

import autotune
from autotune.engines.peers import load_peer
from autotune.errors import EngineError
from autotune.graph import load_model
from autotune.graph.evaluate import evaluate_graph
from autotune.runtime.difference import max_error
from autotune.target import Target
from autotune.tensor import DType
from benchmarks import zoo
from benchmarks.models import example, without_softmax
from benchmarks.report import Report, Row, parser, progress

MODELS = (
    "resnet50", "resnet101", "resnet152", "wide_resnet50", "resnext50", "inception_v1", "inception_v3", "inception_v4",
    "vgg16", "vgg19", "densenet121", "unet", "fcn_resnet50", "darknet53", "yolov5s",
)  # fmt: skip
MOST, MOST_MEAN = 4.0, 2.0
METHOD = (
    "Full-size networks with seeded He-scaled weights, one seeded normal image, without the softmax at the end. Error: "
    "largest difference from the float64 evaluation of the same graph, over the range of that; mean: root mean square "
    "instead of the largest; expected: what the compiler foresees from the longest sums."
)
Arrays = list[NDArray[np.generic]]


def errors(found: Arrays, right: Arrays) -> tuple[float, float]:
    """The largest difference and the root mean square of all, of the range."""
    (ours,), (wanted,) = found, right
    square = np.mean((ours.astype(np.float64) - wanted.astype(np.float64)) ** 2)
    return max_error(found, right), float(np.sqrt(square) / np.ptp(wanted))


def measure(name: str, threads: int, strict: bool, folder: Path) -> Row:
    """One row: our errors, ONNX Runtime's, and theirs by ours."""
    model = without_softmax(zoo.build(name))
    feeds, path = example(model), folder / f"{name}.onnx"
    onnx.save(model, path)
    right = list(evaluate_graph(load_model(path), feeds, DType.f64).values())
    target = Target.parse(f"native -num-cores={threads}")
    compiled = autotune.compile(path, target, False, strict_fp=strict)
    largest, mean = errors(compiled.run(feeds), right)
    row: dict[str, str | float | None] = {"model": name, "expected": compiled.expected_error}
    row |= {"ours": largest, "ours mean": mean}
    try:
        peer = load_peer("onnxruntime", path, threads, {})
    except EngineError as error:
        return {**row, "note": str(error)}
    theirs, their_mean = errors([np.array(x) for x in peer.run(feeds)], right)
    return {**row, "ORT": theirs, "ORT mean": their_mean, "ours / ORT": largest / theirs, "means": mean / their_mean}


def main(arguments: list[str] | None = None) -> int:
    options = parser("accuracy", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("models", nargs="*", metavar="MODEL", help=f"default: {' '.join(MODELS)}")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--strict-fp", action="store_true", help="without Winograd")
    given = options.parse_args(arguments)
    unknown = [name for name in given.models if name not in zoo.names()]
    if unknown:
        options.error(f"unknown model {', '.join(unknown)}; there are {', '.join(zoo.names())}")
    report = Report("accuracy", METHOD, given.quick)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="autotune-accuracy-") as folder:
        for name in given.models or (["squeezenet"] if given.quick else MODELS):
            progress(name)
            rows.append(measure(name, given.threads, given.strict_fp, Path(folder)))
            (Path(folder) / f"{name}.onnx").unlink()
    report.table("errors", rows)
    ratios = {str(row["model"]): float(row["ours / ORT"] or 0) for row in rows if "ours / ORT" in row}
    for name, ratio in ratios.items():
        report.claim(f"{name}: our error by ONNX Runtime's", ratio, "at most", MOST, "x")
    mean = statistics.geometric_mean(ratios.values()) if ratios else None
    report.claim(f"{len(ratios)} models: geometric mean", mean, "at most", MOST_MEAN, "x")
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
