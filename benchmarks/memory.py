"""Peak memory above the baseline after importing the engine: ours against ONNX Runtime, in fresh processes.

python -m benchmarks.memory                 resnet50, resnet18, squeezenet, mobilenetv2
python -m benchmarks.memory vgg19 --db tuning.sqlite
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx

import autotune
from autotune import machine
from autotune.ops.workload import Workload
from autotune.search_spaces import Config
from autotune.tensor.dtype import DType
from benchmarks import zoo
from benchmarks.engines import Engine, EngineError
from benchmarks.models import example
from benchmarks.report import ROOT, Report, Row, parser, progress

MODELS = ("resnet50", "resnet18", "squeezenet", "mobilenetv2")
BOUND = 1.2
MIB = 1 << 20
COLD, WARM, FILE = "autotune, first build of all", "autotune, from ONNX", "autotune, compiled file"
# Weights after the transform, per weight before it: 8×8, 6×6 or 4×4 numbers for every 3×3; 7×7 for a first layer's
# window of 7×7, once for each of its four phases.
GROWTH = {
    "conv2d.winograd_f4": 36 / 9, "conv2d.winograd_f2": 16 / 9, "conv2d.winograd_f6": 64 / 9,
    "conv2d.winograd_f5": 49 / 9, "conv2d.winograd_f4x2": 24 / 9,
    "conv2d.winograd_image": 4.0,
}  # fmt: skip
METHOD = (
    "A fresh process per figure: import the engine (ours with InferenceSession and compile, which load lazily), note "
    "the resident memory (the baseline), load the model from its file, run it three times, note the peak since the "
    "import (VmHWM after clearing it). Figures are peak minus baseline; the total is shown too. The first build of "
    "all has an empty object cache and runs LLVM. `Winograd`: what its "
    "transformed weights take beyond the plain ones; claims are made without that."
)


def peak(
    kind: str, path: Path, source: Path, threads: int, database: Path | None, cache: Path | None
) -> dict[str, float]:
    """MiB of one engine: baseline, peak above it, and what stays resident above it."""
    environment = {} if cache is None else {"XDG_CACHE_HOME": str(cache)}
    options: dict[str, object] = {"database": str(database.resolve()) if database is not None else False}
    with Engine(kind, path, threads, options=options, environment=environment) as engine:
        engine.feed(example(onnx.load(source)))
        engine.time(2, warmup=1)
        found = engine.memory()
    base = found["baseline"]
    return {
        "total": found["peak"] / MIB,
        "baseline": base / MIB,
        "peak": (found["peak"] - base) / MIB,
        "stays": (found["now"] - base) / MIB,
    }


def winograd_bytes(path: Path, threads: int, database: Path | None) -> float:
    """What transformed weights take beyond plain ones."""
    weights = {}
    for task in autotune.tasks(path):
        weights[task.workload.key] = _largest_constant(task.workload)
    compiled = autotune.compile(path, f"native -num-cores={threads}", database or False)
    total = 0.0
    for kernel in compiled.kernels:
        growth = GROWTH.get(Config.from_json(kernel.config).template or "", 1.0)
        total += (growth - 1.0) * weights.get(kernel.workload.key, 0)
    return total


def _largest_constant(workload: Workload) -> int:
    sizes = []
    for entry in workload.inputs:
        count = 1
        for extent in entry.type.shape:
            count *= extent
        sizes.append(count * DType(entry.type.dtype).bytes if entry.constant else 0)
    return max(sizes, default=0)


def measure(report: Report, name: str, threads: int, database: Path | None, folder: Path) -> None:
    """The rows and claims of one model."""
    source, compiled = folder / f"{name}.onnx", folder / f"{name}.atc"
    onnx.save(zoo.build(name), source)
    where = ["--db", str(database.resolve())] if database is not None else ["--untuned"]
    target = f"native -num-cores={threads}"
    command = [
        sys.executable,
        "-m",
        "autotune",
        "compile",
        str(source),
        "-o",
        str(compiled),
        "--target",
        target,
        *where,
    ]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    rows: list[Row] = []
    found: dict[str, float] = {}
    empty = folder / f"{name}-cache"
    for label, kind, path, cache in (
        (COLD, "autotune", source, empty),
        (WARM, "autotune", source, empty),
        (FILE, "autotune", compiled, None),
        ("onnxruntime", "onnxruntime", source, None),
    ):
        try:
            figures = peak(kind, path, source, threads, database, cache)
            found[label] = figures["peak"]
            rows.append({"model": name, "engine": label, **{f"{k} MiB": v for k, v in figures.items()}})
        except EngineError as error:
            rows.append({"model": name, "engine": label, "note": str(error)})
    extra = winograd_bytes(source, threads, database) / MIB
    weights = source.stat().st_size / MIB
    rows.append({"model": name, "engine": "(weights in the file)", "peak MiB": weights})
    rows.append({"model": name, "engine": "(Winograd's larger weights)", "peak MiB": extra})
    report.table("memory", rows)
    theirs = found.get("onnxruntime")
    for label in (COLD, WARM, FILE):
        ratio = (found[label] - extra) / theirs if theirs and label in found else None
        report.claim(
            f"{name}: {label}, over ONNX Runtime", ratio, "at most", BOUND, "x", f"Winograd {extra:.0f} MiB apart"
        )


def main(arguments: list[str] | None = None) -> int:
    options = parser("memory", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("models", nargs="*", metavar="MODEL", help=f"default: {' '.join(MODELS)}")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--db", type=Path, help="a tuning database (default: none, every kernel gets its default)")
    given = options.parse_args(arguments)
    unknown = [name for name in given.models if name not in zoo.names()]
    if unknown:
        options.error(f"unknown model {', '.join(unknown)}; there are {', '.join(zoo.names())}")
    if not 1 <= given.threads <= machine.allowed_cores():
        options.error(f"--threads must be 1 to {machine.allowed_cores()}")
    report = Report("memory", METHOD, given.quick)
    with tempfile.TemporaryDirectory(prefix="autotune-memory-") as folder:
        for name in given.models or (["squeezenet"] if given.quick else MODELS):
            progress(name)
            measure(report, name, given.threads, given.db, Path(folder))
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
