"""What the schedule language reaches: direct and Winograd convolution, GEMM, softmax, GELU, attention, one thread.

python -m benchmarks.language                   the templates' defaults, native and -mcpu=haswell
python -m benchmarks.language --tuned 64        also the best of 64 trials per template
python -m benchmarks.language --db tuning.db    also the best record of each workload
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autotune.measure.failure import Failure
from autotune.measure.timing import latency, speedup, spread
from autotune.measure.types import MeasureResult
from autotune.ops import parse_workload
from autotune.ops.workload import Workload
from autotune.schedule import Schedule
from autotune.search_spaces import Config
from autotune.search_spaces.space.registry import default_config
from autotune.target import Target
from benchmarks import proofs
from benchmarks.engines import Engine, EngineError, runs_per_turn, time_in_turn
from benchmarks.models import example
from benchmarks.report import Cell, Report, Row, parser, progress
from benchmarks.workshop import Outcome, Workshop, default_of, figures, recorded, tuned_by

CONVOLUTIONS = {
    "56² 64→64 3×3": "conv2d data=1,64,56,56 weight=64,64,3,3 pad=1",
    "28² 128→128 3×3": "conv2d data=1,128,28,28 weight=128,128,3,3 pad=1",
    "14² 256→256 3×3": "conv2d data=1,256,14,14 weight=256,256,3,3 pad=1",
    "7² 512→512 3×3": "conv2d data=1,512,7,7 weight=512,512,3,3 pad=1",
    "56² 256→64 1×1": "conv2d data=1,256,56,56 weight=64,256,1,1",
    "14² 1024→256 1×1": "conv2d data=1,1024,14,14 weight=256,1024,1,1",
    "56² 128→128 3×3 s2": "conv2d data=1,128,56,56 weight=128,128,3,3 pad=1 stride=2",
    "14² 512→512 3×3 s2": "conv2d data=1,512,14,14 weight=512,512,3,3 pad=1 stride=2",
    "224² 3→64 7×7 s2": "conv2d data=1,3,224,224 weight=64,3,7,7 pad=3 stride=2",
}
PRODUCTS = {
    "1024³": ("matmul a=1024,1024 b=1024,1024", 93.0),
    "512³": ("matmul a=512,512 b=512,512", 92.0),
    "128×768×3072": ("matmul a=128,768 b=768,3072", 92.0),
}
CONV_BOUND = {"native": 90.0, "haswell": 85.0}
WINOGRAD_BOUND = 2.5
METHOD = (
    "One thread. Kernels are verified against a float64 reference, then timed in a compiled loop in turn with a "
    "fixed FMA probe at the target's vector width; time is the minimum of the batches, % is of the best probe of the "
    "same run. GFLOP/s count 2 per multiply-add of the definition. Against ONNX Runtime: the same single-operator "
    "model in both, one process each, timed in turn through Python's run(), medians."
)

Case = TypeVar("Case")


@dataclass(frozen=True, slots=True)
class Settings:
    """How much effort goes into a run."""

    rounds: int
    tuned: int
    tuning_database: Path
    database: Path | None
    quick: bool


def main(arguments: list[str] | None = None) -> int:
    options = parser("language", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("--target", choices=("native", "haswell"), action="append", help="default: both")
    options.add_argument("--tuned", type=int, default=0, metavar="N", help="tune each template for N trials")
    options.add_argument("--db", type=Path, help="use its records; with --tuned, also put the trials there")
    options.add_argument("--rounds", type=int, default=60)
    given = options.parse_args(arguments)
    if given.db is not None and not given.tuned and not given.db.exists():
        options.error(f"there is no database '{given.db}'")
    report = Report("language", METHOD, given.quick)
    with tempfile.TemporaryDirectory(prefix="autotune-language-") as folder:
        tuning = given.db or Path(folder) / "tuning.sqlite"
        settings = Settings(4 if given.quick else given.rounds, given.tuned, tuning, given.db, given.quick)
        for name in given.target or ("native", "haswell"):
            kernels(report, name, settings)
        against_onnxruntime(report, Path(folder), settings)
    report.finish(given.json)
    return 0


def target_of(name: str) -> Target:
    return Target.parse("native -num-cores=1" if name == "native" else f"x86 -mcpu={name} -num-cores=1")


def kernels(report: Report, name: str, settings: Settings) -> None:
    """All that is measured kernel by kernel, on one target."""
    target = target_of(name)
    with Workshop(target) as workshop:
        for case, text in _some(CONVOLUTIONS, settings):
            progress(f"{name}: direct convolution {case}")
            best = contest(report, workshop, f"direct convolution, {name}", case, text, "conv2d.direct", settings)
            report.claim(
                f"direct convolution {case}, {name}: % of the FMA probe", best, "at least", CONV_BOUND[name], " %"
            )
        for case, (text, bound) in _some(PRODUCTS, settings):
            progress(f"{name}: matrix product {case}")
            best = contest(report, workshop, f"matrix product, {name}", case, text, "sketch.contraction", settings)
            if name == "native":
                report.claim(f"GEMM {case}, {name}: % of the FMA probe", best, "at least", bound, " %")
        winograd(report, workshop, name, settings)
        correctness(report, workshop, name, settings)


def _some(cases: Mapping[str, Case], settings: Settings) -> list[tuple[str, Case]]:
    """All of them; the last when it must be quick."""
    return list(cases.items())[-1 if settings.quick else 0 :]


def contest(
    report: Report, workshop: Workshop, table: str, case: str, text: str, template: str, settings: Settings
) -> float | None:
    """Race a template's default, tuned and recorded configs; the best one's % of the probe."""
    workload, target = parse_workload(text), workshop.target
    entries = entries_of(template, workload, target, settings)
    outcomes = workshop.race(workload, entries, settings.rounds)
    rows: list[Row] = []
    for label, outcome in outcomes.items():
        row: dict[str, Cell] = {"case": case, "kernel": label}
        if "k_block" in entries[label]:
            row["K blocks of"] = entries[label].get_int("k_block")
        rows.append({**row, **figures(workload, outcome)})
    report.table(table, rows or [{"case": case, "note": f"{template} does not apply"}])
    return max((float(row["% of probe"] or 0) for row in rows if "% of probe" in row), default=None)


def entries_of(template: str, workload: Workload, target: Target, settings: Settings) -> dict[str, Config]:
    """The configs of one template that there are, by label."""
    found = {"default": default_of(template, workload, target)}
    if found["default"] is not None and settings.tuned:
        found[f"best of {settings.tuned}"] = tuned_by(
            template, workload, target, settings.tuned, settings.tuning_database
        )
    if settings.database is not None and settings.database.exists():
        record = recorded(workload, target, settings.database)
        found["record"] = record if record is not None and record.template == template else None
    return {label: config for label, config in found.items() if config is not None}


def winograd(report: Report, workshop: Workshop, name: str, settings: Settings) -> None:
    """Winograd against our direct convolution, both in one race."""
    case = "56² 64→64 3×3"
    workload = parse_workload(CONVOLUTIONS[case])
    progress(f"{name}: Winograd against direct {case}")
    entries = {
        f"{template} {label}": config
        for template in ("conv2d.direct", "conv2d.winograd_f6", "conv2d.winograd_f4", "conv2d.winograd_f2")
        for label, config in entries_of(template, workload, workshop.target, settings).items()
    }
    outcomes = workshop.race(workload, entries, settings.rounds)
    rows = [{"case": case, "kernel": label, **figures(workload, outcome)} for label, outcome in outcomes.items()]
    report.table(f"Winograd, {name}", rows)
    direct, tiles = _fastest(outcomes, "conv2d.direct"), _fastest(outcomes, "conv2d.winograd_f4")
    ratio = direct / tiles if direct and tiles else None
    if name == "native":
        report.claim(f"Winograd F(4×4) {case}: times our direct", ratio, "at least", WINOGRAD_BOUND, "x")


def _fastest(outcomes: dict[str, Outcome], template: str) -> float | None:
    times = [o.seconds for label, o in outcomes.items() if label.startswith(template) and isinstance(o, MeasureResult)]
    return min(times, default=None)


def correctness(report: Report, workshop: Workshop, name: str, settings: Settings) -> None:
    """What the language must be able to say at all: verified like everything else, its speed printed too."""
    target = workshop.target
    attention = proofs.attention(2, 37, 20) if settings.quick else proofs.attention(12, 128, 64)
    product = parse_workload("matmul a=64,4096 b=4096,64")
    cases: list[tuple[str, Workload, Config | Schedule]] = [
        ("row-blocked attention", attention, proofs.row_blocked(attention, target)),
        ("split-K GEMM 64×4096×64", product, proofs.split_k(product, target)),
    ]
    for case, text in (
        ("argmax 256×1000", "argmax data=256,1000 axis=1"),
        ("cumulative sum 256×1000", "cumsum data=256,1000 axis=1"),
        ("softmax 1536×128", "softmax data=1536,128"),
        ("GELU 128×3072", "gelu data=128,3072"),
    ):
        workload = parse_workload(text)
        cases.append((case, workload, default_config(workload, target)))
    rows: list[Row] = []
    for case, workload, entry in cases:
        progress(f"{name}: {case}")
        outcome = workshop.race(workload, {case: entry}, settings.rounds)[case]
        by = entry.template if isinstance(entry, Config) else "primitives"
        rows.append(
            {"case": case, "schedule": by, "right": not isinstance(outcome, Failure), **figures(workload, outcome)}
        )
    report.table(f"correctness, {name}", rows)
    report.claim(f"operators that are right, {name}", sum(bool(row["right"]) for row in rows), "at least", len(rows))


def against_onnxruntime(report: Report, folder: Path, settings: Settings) -> None:
    """Single-operator models in both engines."""
    for name, model in {
        "softmax 1536×128": softmax_model(1536, 128),
        "GELU chain 128×3072": gelu_model(128, 3072),
    }.items():
        path = folder / "operator.onnx"
        onnx.save(model, path)
        progress(f"{name} against ONNX Runtime")
        times: dict[str, float] = {}
        rows: list[Row] = []
        note = ""
        with ExitStack() as stack:
            engines = []
            for kind in ("autotune", "onnxruntime"):
                try:
                    engine = stack.enter_context(Engine(kind, path, 1))
                    engine.feed(example(model))
                    engine.time(3)
                    engines.append(engine)
                except EngineError as error:
                    note = str(error)
                    rows.append({"operator": name, "engine": kind, "note": note})
            rounds = 4 if settings.quick else settings.rounds
            samples = time_in_turn(engines, rounds, runs_per_turn(engines[0], 0.02)) if engines else []
        for engine, found in zip(engines, samples):
            times[engine.kind] = latency(found)
            rows.append(
                {"operator": name, "engine": engine.kind, "µs": latency(found) * 1e6, "spread %": spread(found) * 100}
            )
        report.table("against ONNX Runtime", rows)
        ratio = speedup(times["autotune"], times["onnxruntime"]) if len(times) == 2 else None
        report.claim(f"{name}: times as fast as ONNX Runtime", ratio, "at least", 1.0, "x", note)


def softmax_model(rows: int, columns: int) -> onnx.ModelProto:
    return _model([helper.make_node("Softmax", ["x"], ["y"], axis=-1)], [], rows, columns)


def gelu_model(rows: int, columns: int) -> onnx.ModelProto:
    """GELU as exporters write it: x · 0.5 · (1 + erf(x / √2))."""
    constants = {"sqrt2": np.sqrt(2.0), "one": 1.0, "half": 0.5}
    nodes = [
        helper.make_node("Div", ["x", "sqrt2"], ["a"]),
        helper.make_node("Erf", ["a"], ["b"]),
        helper.make_node("Add", ["b", "one"], ["c"]),
        helper.make_node("Mul", ["x", "c"], ["d"]),
        helper.make_node("Mul", ["d", "half"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in constants.items()]
    return _model(nodes, tensors, rows, columns)


def _model(nodes: list[onnx.NodeProto], tensors: list[onnx.TensorProto], rows: int, columns: int) -> onnx.ModelProto:
    def value(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, columns])

    graph = helper.make_graph(nodes, "operator", [value("x")], [value("y")], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return model


if __name__ == "__main__":
    sys.exit(main())
