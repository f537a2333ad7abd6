"""As on a CPU without AVX-512: our code for AVX2, and OpenVINO kept to AVX2, timed in turn in f32 and int8.

python -m benchmarks.avx2                    ResNet-50, MobileNetV2, BERT, ViT; 1 thread
python -m benchmarks.avx2 resnet50 --threads 2

Neither ONNX Runtime nor MNN can be kept from what the CPU has beyond that by variables. All engines as on such a CPU:

python -m tests.as_cpu znver3 python -m benchmarks.quantized resnet50
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray

from autotune.measure.timing import latency, speedup, spread
from benchmarks import zoo
from benchmarks.engines import Engine, EngineError, runs_per_turn, time_in_turn
from benchmarks.models import example
from benchmarks.quantized import MODELS, prepared, quantized, snr
from benchmarks.report import Report, Row, parser, progress

CPU = "haswell"
KEPT = {"OV_CPU_MAX_ISA": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
"""What keeps OpenVINO to it: its own kernels by the one variable, oneDNN's by the other; alone neither is enough."""
METHOD = (
    f"Ours compiled for -mcpu={CPU}, untuned; OpenVINO with {' and '.join(f'{k}={v}' for k, v in KEPT.items())}. "
    "Random seeded weights; int8: files of onnxruntime.quantization. Each engine in its own process, pinned to its "
    "cores; all loaded side by side and timed in turn, a warm-up run before each turn; latency is the median of all "
    "runs. SNR: of the first output against ONNX Runtime's of the f32 model."
)


def race(floating: Path, file: Path, feeds: Mapping[str, NDArray[Any]], threads: int, rounds: int) -> list[Row]:
    """A row for each engine and file."""
    target = f"native -mcpu={CPU} -num-cores={threads}"
    with Engine("onnxruntime", floating, threads) as engine:
        engine.feed(feeds)
        reference = engine.run()[0]
    rows: list[Row] = []
    engines: list[tuple[Engine, float]] = []
    with ExitStack() as stack:
        for what, path in (("f32", floating), ("int8", file)):
            for kind, environment in (("autotune", {}), ("openvino", KEPT)):
                options = {"database": False, "target": target} if kind == "autotune" else {}
                label = f"{kind} {what}"
                try:
                    engine = stack.enter_context(
                        Engine(kind, path, threads, label=label, options=options, environment=environment)
                    )
                    engine.feed(feeds)
                    engines.append((engine, snr(engine.run()[0], reference)))
                except EngineError as error:
                    rows.append({"engine": label, "note": str(error)})
        racing = [engine for engine, _ in engines]
        samples = time_in_turn(racing, rounds, runs_per_turn(racing[0])) if racing else []
    for (engine, noise), found in zip(engines, samples, strict=True):
        rows.append(
            {"engine": engine.label, "ms": latency(found) * 1e3, "spread %": spread(found) * 100, "SNR dB": noise}
        )
    return rows


def main(arguments: list[str] | None = None) -> int:
    options = parser("avx2", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("models", nargs="*", metavar="MODEL", help=f"default: {' '.join(MODELS)}")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--rounds", type=int, default=11)
    given = options.parse_args(arguments)
    unknown = [name for name in given.models if name not in zoo.names()]
    if unknown:
        options.error(f"unknown model {', '.join(unknown)}; there are {', '.join(zoo.names())}")
    report = Report("avx2", METHOD, given.quick)
    with tempfile.TemporaryDirectory(prefix="autotune-avx2-") as temporary:
        for name in given.models or (["squeezenet"] if given.quick else MODELS):
            progress(f"{name}, {given.threads} threads")
            floating = prepared(name, Path(temporary))
            feeds = example(onnx.load(floating))
            rows = race(floating, quantized(floating, "u8s8"), feeds, given.threads, 2 if given.quick else given.rounds)
            report.table("latency", [{"model": name, "threads": given.threads, **row} for row in rows])
            times = {str(row["engine"]): float(row["ms"] or 0) for row in rows if "ms" in row}
            for what in ("f32", "int8"):
                ours, peer = times.get(f"autotune {what}"), times.get(f"openvino {what}")
                ratio = speedup(ours, peer) if ours and peer else None
                report.claim(
                    f"{name}, {given.threads} threads: OpenVINO's {what} over ours", ratio, "at least", 1.0, "x"
                )
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
