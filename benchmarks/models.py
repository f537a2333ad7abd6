"""Whole models: ours untuned and tuned against ONNX Runtime, OpenVINO (f32) and MNN, timed in turn.

python -m benchmarks.models                              all of them, 1 and 2 threads, untuned
python -m benchmarks.models resnet50 --db tuning.sqlite  with the records of `autotune tune --db tuning.sqlite`
python -m benchmarks.models --tune 5m --db FRESH.sqlite  tunes first, per model and number of threads
python -m benchmarks.models --precision bf16             ours and OpenVINO in 16 bits, beside both in f32
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from autotune import machine
from autotune.measure.timing import latency, speedup, spread
from benchmarks import zoo
from benchmarks.engines import PEERS, Engine, EngineError, runs_per_turn, time_in_turn
from benchmarks.report import ROOT, Report, Row, parser, progress

SMALL = ("resnet50", "resnet18", "squeezenet", "vgg19", "inception_v1", "alexnet", "mobilenetv2")
MODELS = (*SMALL, "vgg16", "unet", "bert_base", "vit_base", "lstm")
# Best peer over ours: what each model promises beyond 1, and all together in geometric mean.
PROMISED = {
    "resnet50": 1.2, "resnet18": 1.6, "unet": 1.6, "vgg16": 1.8, "mobilenetv2": 1.15, "bert_base": 1.05,
    "vit_base": 1.05,
}  # fmt: skip
PROMISED_MEAN = 1.35
MAX_ERROR = 1e-4  # of the range of the last layer before softmax
PEER_ERROR = 1e-2  # an engine that is further off computed something else
PEERS_ARE = {PEER_ERROR: "best peer", MAX_ERROR: "best peer with answers as right as ours must be"}
METHOD = (
    "Batch 1, random seeded weights. Each engine in its own process, pinned to its cores; all loaded side by side and "
    "timed in turn through Python's run(), a warm-up run before each turn; latency is the median of all runs. Output "
    "error: largest difference from onnxruntime over the range of the last layer before softmax, on varied input."
)


def without_softmax(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model whose output is the last layer before a softmax at the end."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if copy.graph.node[-1].op_type == "Softmax":
        source = copy.graph.node[-1].input[0]
        del copy.graph.node[-1]
        copy.graph.output[0].name = source
        copy.graph.output[0].type.tensor_type.ClearField("shape")
    return copy


def example(model: onnx.ModelProto, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Varied input of the model's one input shape."""
    constants = {tensor.name for tensor in model.graph.initializer}
    (value,) = (value for value in model.graph.input if value.name not in constants)
    shape = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
    return {value.name: np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)}


def contenders(database: Path | None, precision: str = "f32") -> list[tuple[str, str, dict[str, object]]]:
    """(label, kind, options) of every engine in the race; in another precision, beside f32 ones."""
    if precision != "f32":
        records = False if database is None else str(database.resolve())
        label = "untuned" if database is None else "tuned"
        peer = "openvino-f16" if precision == "f16" else "openvino-bf16"
        return [
            (label, "autotune", {"database": records, "precision": precision}),
            ("autotune f32", "autotune", {"database": records}),
            *((kind, kind, {}) for kind in ("onnxruntime", "openvino", peer)),
        ]
    ours: list[tuple[str, str, dict[str, object]]] = [("untuned", "autotune", {"database": False})]
    if database is not None:
        ours.append(("tuned", "autotune", {"database": str(database.resolve())}))
    return [*ours, *((kind, kind, {}) for kind in PEERS)]


def race(
    path: Path, feeds: dict[str, NDArray[np.float32]], threads: int, database: Path | None, rounds: int,
    precision: str = "f32",
) -> list[Row]:  # fmt: skip
    """One row per engine: latency, spread, and how much faster than it our best is."""
    with ExitStack() as stack:
        engines: list[Engine] = []
        rows: dict[str, Row] = {}
        for label, kind, options in contenders(database, precision):
            try:
                engine = stack.enter_context(Engine(kind, path, threads, label=label, options=options))
                engine.feed(feeds)
                engine.time(2)
                engines.append(engine)
            except EngineError as error:
                rows[label] = {"engine": label, "note": str(error)}
        runs = runs_per_turn(engines[0]) if engines else 1
        samples = time_in_turn(engines, rounds, runs)
    for engine, found in zip(engines, samples):
        rows[engine.label] = {
            "engine": engine.label, "ms": latency(found) * 1e3, "spread %": spread(found) * 100,
            "runs": len(found), "load s": engine.load_seconds,
        }  # fmt: skip
    return [rows[label] for label, _, _ in contenders(database, precision) if label in rows]


def output_error(
    model: onnx.ModelProto, folder: Path, feeds: dict[str, NDArray[np.float32]], threads: int, database: Path | None,
    precision: str = "f32",
) -> list[Row]:  # fmt: skip
    """The error of each of our builds and each peer against ONNX Runtime, relative to the range of the logits."""
    path = folder / "logits.onnx"
    onnx.save(without_softmax(model), path)
    outputs: dict[str, NDArray[np.float64]] = {}
    rows: list[Row] = []
    for label, kind, options in contenders(database, precision):
        try:
            with Engine(kind, path, threads, label=label, options=options) as engine:
                engine.feed(feeds)
                outputs[label] = engine.run()[0].astype(np.float64).reshape(-1)
        except EngineError as error:
            rows.append({"engine": label, "note": str(error)})
    reference = outputs.pop("onnxruntime", None)
    if reference is None:
        return rows
    allowed = MAX_ERROR if precision == "f32" else PEER_ERROR
    for label, output in outputs.items():
        found = float(np.abs(output - reference).max() / np.ptp(reference)) if output.size == reference.size else np.inf
        rows.append({"engine": label, "error / range": found, "right": found <= allowed})
    return rows


def tune(path: Path, threads: int, budget: str, database: Path, precision: str = "f32") -> None:
    """Run `autotune tune` on the model.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    target = f"native -num-cores={threads}"
    command = [sys.executable, "-m", "autotune", "tune", "--model", str(path), "--target", target]
    words = ["--db", str(database.resolve()), "--budget", budget, "--precision", precision]
    subprocess.run([*command, *words], check=True, cwd=ROOT)


def compare(
    report: Report, names: Sequence[str], thread_counts: Sequence[int], database: Path | None, budget: str | None,
    rounds: int, precision: str = "f32",
) -> None:  # fmt: skip
    """Fill the report, model by model."""
    gains: dict[tuple[int, float], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="autotune-models-") as temporary:
        folder = Path(temporary)
        for name in names:
            model = zoo.build(name)
            path = folder / f"{name}.onnx"
            onnx.save(model, path)
            feeds = example(model)
            for threads in thread_counts:
                if budget is not None and database is not None:
                    progress(f"tuning {name} with {threads} threads for {budget}")
                    tune(path, threads, budget, database, precision)
                progress(f"{name}, {threads} threads")
                here: Row = {"model": name, "threads": threads}
                rows = race(path, feeds, threads, database, rounds, precision)
                errors = output_error(model, folder, feeds, threads, database, precision)
                report.table("latency", [{**here, **row} for row in rows])
                report.table("output error", [{**here, **row} for row in errors])
                if precision != "f32":
                    narrow_claims(report, name, threads, rows, errors, precision)
                    continue
                claims(report, name, threads, rows, errors)
                for error, peer in PEERS_ARE.items():
                    best = against_best_peer(rows, errors, error)
                    if best is not None:
                        gains.setdefault((threads, error), []).append(best)
                    report.claim(f"{name}, {threads} threads: {peer} over ours", best, "at least",
                                 PROMISED.get(name, 1.0), "x")  # fmt: skip
            path.unlink()
    for (threads, error), found in gains.items():
        mean = statistics.geometric_mean(found)
        text = f"{len(found)} models, {threads} threads: {PEERS_ARE[error]} over ours, geometric mean"
        report.claim(text, mean, "at least", PROMISED_MEAN, "x")


def against_best_peer(rows: Sequence[Row], errors: Sequence[Row], error: float = PEER_ERROR) -> float | None:
    """How much faster our build, tuned if it was, is than the best of the engines whose answers are not further off."""
    wrong = {row["engine"] for row in errors if float(row.get("error / range") or 0) > error}
    times = {str(row["engine"]): float(row["ms"] or 0) for row in rows if "ms" in row}
    ours = [times[label] for label in ("untuned", "tuned") if label in times]
    peers = [times[peer] for peer in PEERS if peer in times and peer not in wrong]
    return speedup(ours[-1], min(peers)) if ours and peers else None


def claims(report: Report, name: str, threads: int, rows: Sequence[Row], errors: Sequence[Row]) -> None:
    """What the figures of one model say."""
    times = {str(row["engine"]): float(row["ms"] or 0) for row in rows if "ms" in row}
    found = {str(row["engine"]): float(row["error / range"] or 0) for row in errors if "error / range" in row}
    notes = {str(row["engine"]): str(row["note"]) for row in rows if "note" in row}
    where = f"{name}, {threads} threads"
    best_peer = min((times[peer] for peer in ("onnxruntime", "openvino") if peer in times), default=None)
    for label in ("untuned", "tuned"):
        if label in times or label in notes:
            ratio = speedup(times[label], best_peer) if label in times and best_peer else None
            text = f"{where}: {label} against the better of ONNX Runtime and OpenVINO"
            report.claim(text, ratio, "at least", 1.0, "x", notes.get(label, ""))
            report.claim(f"{where}: {label} output error", found.get(label), "at most", MAX_ERROR)
    if "tuned" in times and "untuned" in times:
        report.claim(f"{where}: untuned over tuned time", times["untuned"] / times["tuned"], "at most", 1.25, "x")


def narrow_claims(
    report: Report, name: str, threads: int, rows: Sequence[Row], errors: Sequence[Row], precision: str
) -> None:
    """What the figures of a model in 16 bits say: against f32, against OpenVINO in the same, and how far off it is."""
    times = {str(row["engine"]): float(row["ms"] or 0) for row in rows if "ms" in row}
    found = {str(row["engine"]): float(row["error / range"] or 0) for row in errors if "error / range" in row}
    label = next((label for label in ("tuned", "untuned") if label in times), "untuned")
    where = f"{name}, {threads} threads: {precision}"
    for other in [engine for engine in times if engine == "autotune f32" or engine.startswith("openvino-")]:
        ratio = speedup(times[label], times[other]) if label in times else None
        report.claim(f"{where} against {other}", ratio, "at least", 1.0, "x")
    report.claim(f"{where} output error", found.get(label), "at most", PEER_ERROR)


def main(arguments: list[str] | None = None) -> int:
    options = parser("models", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("models", nargs="*", metavar="MODEL", help=f"default: {' '.join(MODELS)}")
    options.add_argument("--threads", type=int, action="append", help="may be repeated (default: 1 and all cores)")
    options.add_argument("--db", type=Path, help="a tuning database: also time the tuned build")
    options.add_argument(
        "--tune", metavar="BUDGET", help="first tune into --db for so long per model and threads, as 5m"
    )
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--precision", choices=("f32", "bf16", "f16", "auto"), default="f32", help="of our products")
    given = options.parse_args(arguments)
    unknown = [name for name in given.models if name not in zoo.names()]
    if unknown:
        options.error(f"unknown model {', '.join(unknown)}; there are {', '.join(zoo.names())}")
    if given.tune and given.db is None:
        options.error("--tune needs --db FILE to put the records in")
    if given.db is not None and not given.tune and not given.db.exists():
        options.error(f"there is no database '{given.db}'")
    names = given.models or (["squeezenet"] if given.quick else MODELS)
    threads = given.threads or ([1] if given.quick else sorted({1, machine.allowed_cores()}))
    report = Report("models", METHOD, given.quick)
    compare(report, names, threads, given.db, given.tune, 2 if given.quick else given.rounds, given.precision)
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
