"""Seconds from starting Python to the first answer of models whose shapes a run decides: from ONNX, and from one file.

python -m benchmarks.staged_files                 YOLOv5-s with NonMaxSuppression, and GPT-2 whose caches grow
python -m benchmarks.staged_files yolov5s --repeats 3
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray

import autotune
from benchmarks.convnets import yolov5s
from benchmarks.decode import GPT2, MASK, MODELS, POSITIONS, TOKENS, Size, product_of
from benchmarks.report import Report, Row, parser, progress
from benchmarks.startup import medians, start
from benchmarks.zoo import Net, Weights

METHOD = (
    "Every start is a fresh Python process, in turn: from the ONNX file with an empty object cache, with the cache "
    "that the start before has filled, and from the staged file with an empty cache; untuned, medians. `answer`: from "
    "starting Python to the results of the first run; `session`: to a session; `second`: what the same run takes then. "
    "The data of the run is not what the file was made with."
)
CHILD = """
import sys, json, time
options = json.loads(sys.argv[1])
import numpy as np
import autotune
more = {} if options["model"].endswith(".at") else {"target": options["target"], "database": False}
session = autotune.InferenceSession(options["model"], **more)
ready = time.monotonic()
with np.load(options["feeds"]) as found:
    feeds = dict(found)
begun = time.monotonic()
session.run(None, feeds)
answered = time.monotonic()
session.run(None, feeds)
print(json.dumps({"answer s": answered - options["begin"], "session s": ready - options["begin"],
                  "second s": time.monotonic() - answered}))
"""
FEW, OVERLAP, LEAST = 100, 0.45, 0.7


class Case(NamedTuple):
    """A model, what it is made ready with (nothing where it is drawn), and what the first run is fed with."""

    model: onnx.ModelProto
    samples: Sequence[Mapping[str, NDArray[Any]]]
    feeds: Mapping[str, NDArray[Any]]


def detector() -> Case:
    """YOLOv5-s and what exporters write behind it: the rows of the boxes that NonMaxSuppression keeps."""
    net = Net("yolov5s", Weights(0))
    yolov5s(net)
    rows = net.last
    boxes, sure, each = (net.node("Slice", rows, *map(net.shape, cut)) for cut in ((0, 4, 2), (4, 5, 2), (5, 85, 2)))
    scores = net.node("Transpose", net.node("Mul", sure, each), perm=[0, 2, 1])
    limits = net.index(FEW), net.scalar(OVERLAP), net.scalar(LEAST)
    kept = net.node("NonMaxSuppression", boxes, scores, *limits, center_point_box=1)
    places = net.node("Reshape", net.node("Gather", kept, net.index(2), axis=1), net.shape(-1))
    found = net.node("Gather", net.node("Squeeze", rows, net.shape(0)), places)
    rng = np.random.default_rng(0)
    images = [{"input": rng.random((1, 3, 320, 320), np.float32) * (n + 1)} for n in range(4)]
    return Case(net.finish(found, (1, 3, 320, 320), ("found", 85)), images[:3], images[3])


def decoder(size: Size = GPT2) -> Case:
    """GPT-2 as exporters write it; the run is a token behind 40 others."""
    past, rng = 40, np.random.default_rng(0)
    form = (1, size.heads, past, size.width // size.heads)
    feeds: dict[str, NDArray[Any]] = {
        TOKENS: np.full((1, 1), 7), MASK: np.ones((1, past + 1), np.int64), POSITIONS: np.full((1, 1), past),
        **{f"past.{n}": rng.standard_normal(form, np.float32) for n in range(2 * size.layers)},
    }  # fmt: skip
    return Case(MODELS["gpt2"](product_of("f32"), None, size), [], feeds)


CASES = {"yolov5s": detector, "gpt2": decoder}


def measure(case: Case, threads: int, repeats: int, folder: Path) -> tuple[list[Row], Row]:
    """Each way to start, and what the file is."""
    target = f"native -num-cores={threads}"
    model, file, feeds = folder / "model.onnx", folder / "model.at", folder / "feeds.npz"
    onnx.save(case.model, model)
    np.savez(feeds, **dict(case.feeds))  # type: ignore[arg-type]  # names of inputs
    begun = time.monotonic()
    ready = autotune.compile_staged(model, target, False, inputs=case.samples)
    ready.save(file)
    made: Row = {"programs": len(ready.programs), "seconds": time.monotonic() - begun,
                 "file MB": file.stat().st_size / 1e6, "model MB": model.stat().st_size / 1e6}  # fmt: skip
    found: dict[str, list[dict[str, float]]] = {"ONNX, empty cache": [], "ONNX, warm cache": [], "staged file": []}
    for number in range(repeats):
        cache = folder / f"cache{number}"
        for way, (source, kept) in zip(found, ((model, cache), (model, cache), (file, folder / f"empty{number}"))):
            found[way].append(start(CHILD, kept, model=str(source), target=target, feeds=str(feeds)))
    return [{"from": way, **medians(samples)} for way, samples in found.items()], made


def main(arguments: list[str] | None = None) -> int:
    options = parser("staged_files", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(CASES)} (default: all)")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--repeats", type=int, default=5)
    given = options.parse_args(arguments)
    unknown = [name for name in given.models if name not in CASES]
    if unknown:
        options.error(f"unknown model {', '.join(unknown)}; there are {', '.join(CASES)}")
    report = Report("staged_files", METHOD, given.quick)
    for name in given.models or list(CASES)[: 1 if given.quick else None]:
        progress(name)
        with tempfile.TemporaryDirectory(prefix="autotune-staged-") as folder:
            starts, made = measure(CASES[name](), given.threads, 1 if given.quick else given.repeats, Path(folder))
        report.table("files", [{"model": name, **made}])
        report.table("first answer", [{"model": name, **row} for row in starts])
        cold, warm, file = (float(row["answer s"] or 0) for row in starts)
        report.claim(f"{name}: first answer, ONNX with an empty cache over the staged file", cold / file, "at least", 2)
        report.claim(f"{name}: first answer, ONNX with a warm cache over the staged file", warm / file, "at least", 1)
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
