"""Quantised models: ours against ONNX Runtime and OpenVINO on the same file, beside the f32 model.

python -m benchmarks.quantized                        all of them, 1 thread
python -m benchmarks.quantized resnet50 bert_base     some
python -m benchmarks.quantized --kind s8s8 resnet50   signed activations
python -m benchmarks.quantized --tune 5m --db FILE    each quantised file tuned first, and timed so, too
python -m benchmarks.quantized --write FOLDER         the files alone
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
from numpy.typing import NDArray
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

from autotune.measure.timing import latency, speedup, spread
from benchmarks import zoo
from benchmarks.engines import Engine, EngineError, runs_per_turn, time_in_turn
from benchmarks.models import example, tune
from benchmarks.report import Report, Row, parser, progress

MODELS = ("resnet50", "mobilenetv2", "bert_base", "vit_base")
KINDS = ("u8s8", "s8s8", "u8u8", "operators", "dynamic")
DYNAMIC = frozenset({"bert_base", "vit_base"})
"""Models of which the dynamic kind is asked for, too."""
OPSET = 17  # scales per channel need 13
SAMPLES = 3
PEERS = ("onnxruntime", "openvino")
TUNED = "autotune int8, tuned"
METHOD = (
    "Random seeded weights, files of onnxruntime.quantization, calibrated on random input. Each engine in its own "
    "process, pinned to its cores; all loaded side by side and timed in turn, a warm-up run before each turn; latency "
    "is the median of all runs. SNR: of the first output against ONNX Runtime's of the f32 model."
)


class Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Varied input to find ranges with."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._feeds: Iterator[Mapping[str, NDArray[np.float32]]] = iter([example(model, n + 1) for n in range(SAMPLES)])

    def get_next(self) -> Mapping[str, NDArray[np.float32]] | None:
        return next(self._feeds, None)


def prepared(name: str, folder: Path) -> Path:
    """The float model as ONNX Runtime's tool wants it: of a new opset, batch norms folded."""
    model = onnx.version_converter.convert_version(zoo.build(name), OPSET)
    raw, path = folder / f"{name}.raw.onnx", folder / f"{name}.onnx"
    onnx.save(model, raw)
    quant_pre_process(str(raw), str(path), skip_symbolic_shape=True)
    raw.unlink()
    return path


def quantized(path: Path, kind: str) -> Path:
    """The quantised file beside the float one."""
    made = path.with_suffix(f".{kind}.onnx")
    signed, unsigned = quantization.QuantType.QInt8, quantization.QuantType.QUInt8
    if kind == "dynamic":
        quantization.quantize_dynamic(str(path), str(made), weight_type=signed)
        return made
    form = quantization.QuantFormat.QOperator if kind == "operators" else quantization.QuantFormat.QDQ
    quantization.quantize_static(
        str(path), str(made), Samples(onnx.load(path)), quant_format=form, per_channel=kind != "u8u8",
        activation_type=signed if kind == "s8s8" else unsigned, weight_type=unsigned if kind == "u8u8" else signed,
    )  # fmt: skip
    return made


def snr(output: NDArray[Any], reference: NDArray[Any]) -> float:
    """Signal over noise in dB."""
    wide = reference.astype(np.float64)
    noise = float(((output.astype(np.float64) - wide) ** 2).sum())
    return math.inf if not noise else 10 * math.log10(float((wide**2).sum()) / noise)


def contenders(floating: Path, file: Path, database: Path | None) -> list[tuple[str, str, Path, dict[str, object]]]:
    """(label, kind of engine, file, its options) of all in the race."""
    found: list[tuple[str, str, Path, dict[str, object]]] = []
    if database is not None:
        found.append((TUNED, "autotune", file, {"database": str(database.resolve())}))
    for kind in ("autotune", *PEERS):
        options: dict[str, object] = {"database": False} if kind == "autotune" else {}
        found += [(f"{kind} {what}", kind, path, options) for what, path in (("f32", floating), ("int8", file))]
    return found


def our_integers(labels: Container[str]) -> str:
    """Which of our rows is compared with the peers'."""
    return TUNED if TUNED in labels else "autotune int8"


def race(
    floating: Path, file: Path, feeds: Mapping[str, NDArray[Any]], threads: int, rounds: int,
    database: Path | None = None,
) -> list[Row]:  # fmt: skip
    """One row per engine and file: latency, SNR and what they are to our integers, tuned where there is a database."""
    rows: dict[str, dict[str, Any]] = {}
    outputs: dict[str, NDArray[Any]] = {}
    with ExitStack() as stack:
        engines: list[Engine] = []
        for label, kind, path, options in contenders(floating, file, database):
            try:
                engine = stack.enter_context(Engine(kind, path, threads, label=label, options=options))
                engine.feed(feeds)
                outputs[label] = engine.run()[0]
                engines.append(engine)
            except EngineError as error:
                rows[label] = {"engine": label, "note": str(error)}
        samples = time_in_turn(engines, rounds, runs_per_turn(engines[0])) if engines else []
        for engine, found in zip(engines, samples):
            rows[engine.label] = {
                "engine": engine.label, "ms": latency(found) * 1e3, "spread %": spread(found) * 100,
                "runs": len(found), "resident MB": engine.memory()["now"] / 1e6,
            }  # fmt: skip
    reference, ours = outputs.get("onnxruntime f32"), rows.get(our_integers(rows), {}).get("ms")
    for label, row in rows.items():
        if "ms" in row and ours:
            row["over ours"] = speedup(ours, row["ms"])
        if label in outputs and reference is not None and outputs[label] is not reference:
            row["SNR dB"] = snr(outputs[label], reference)
    return [rows[label] for label, *_ in contenders(floating, file, database) if label in rows]


def claims(report: Report, where: str, rows: Sequence[Row]) -> None:
    """We are no slower than the best peer on the same file, and no noisier than the best by more than 1 dB."""
    found = {str(row["engine"]): row for row in rows if "ms" in row}
    peers = [found[f"{peer} int8"] for peer in PEERS if f"{peer} int8" in found]
    ours = found.get(our_integers(found))
    if ours is None or not peers:
        return
    best = min(float(peer["over ours"] or 0) for peer in peers)
    report.claim(f"{where}: best int8 peer over ours", best, "at least", 1.0, "x")
    noise = max(float(peer["SNR dB"] or 0) for peer in peers) - float(ours["SNR dB"] or 0)
    report.claim(f"{where}: SNR below the best int8 peer's", noise, "at most", 1.0, " dB")


def kinds_of(name: str, given: Sequence[str] | None) -> Sequence[str]:
    return given or (("u8s8", "dynamic") if name in DYNAMIC else ("u8s8",))


def main(arguments: list[str] | None = None) -> int:
    options = parser("quantized", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("models", nargs="*", metavar="MODEL", help=f"default: {' '.join(MODELS)}")
    options.add_argument("--kind", action="append", choices=KINDS, help="may be repeated (default: u8s8, and dynamic)")
    options.add_argument("--threads", type=int, action="append", help="may be repeated (default: 1)")
    options.add_argument("--rounds", type=int, default=11)
    options.add_argument("--db", type=Path, help="a tuning database: also time the tuned build")
    options.add_argument(
        "--tune", metavar="BUDGET", help="first tune into --db for so long per file and threads, as 5m"
    )
    options.add_argument("--write", type=Path, metavar="FOLDER", help="write the models there, and time nothing")
    given = options.parse_args(arguments)
    unknown = [name for name in given.models if name not in zoo.names()]
    if unknown:
        options.error(f"unknown model {', '.join(unknown)}; there are {', '.join(zoo.names())}")
    if given.tune and given.db is None:
        options.error("--tune needs --db FILE to put the records in")
    if given.db is not None and not given.tune and not given.db.exists():
        options.error(f"there is no database '{given.db}'")
    warnings.filterwarnings("ignore", module="onnxruntime")
    names = given.models or (["mobilenetv2"] if given.quick else MODELS)
    report = Report("quantized", METHOD, given.quick)
    with tempfile.TemporaryDirectory(prefix="autotune-quantized-") as temporary:
        folder = given.write or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            progress(f"{name}: writing")
            floating = prepared(name, folder)
            feeds = example(onnx.load(floating))
            for kind in kinds_of(name, given.kind):
                file = quantized(floating, kind)
                for threads in [] if given.write else given.threads or [1]:
                    if given.tune:
                        progress(f"{name} {kind}, {threads} threads: tuning for {given.tune}")
                        tune(file, threads, given.tune, given.db, "model")
                    progress(f"{name} {kind}, {threads} threads")
                    rows = race(floating, file, feeds, threads, 2 if given.quick else given.rounds, given.db)
                    report.table("latency", [{"model": name, "kind": kind, "threads": threads, **row} for row in rows])
                    claims(report, f"{name} {kind}, {threads} threads", rows)
    if not given.write:
        report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
