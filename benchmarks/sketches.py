"""Kernels without a template: what a sketch reaches untuned and after some trials, in shares of measured peaks.

python -m benchmarks.sketches                         the contractions of CASES and MAPS, 200 trials each, one thread
python -m benchmarks.sketches --trials 0              untuned only: the shipped model's choice
python -m benchmarks.sketches --against resnet50      its kernels untuned, beside the template written for the operator
python -m benchmarks.sketches --op "einsum data=var:64,64 data=var:64,64 equation=ik,kj->ij"
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from pathlib import Path

from autotune.api.compile import tasks
from autotune.measure.failure import Failure
from autotune.measure.peaks import Peaks, measure_peaks
from autotune.ops import parse_workload
from autotune.ops.workload import Workload
from autotune.search_spaces import Config, templates_for
from autotune.search_spaces.space.limit import limit
from autotune.target import Target
from autotune.tensor.dtype import DType
from benchmarks import zoo
from benchmarks.report import Report, Row, parser, progress
from benchmarks.workshop import Workshop, default_of, tuned_by

TEMPLATE, MAP = "sketch.contraction", "sketch.map"
RESORTS = ("generic", "plain")
CASES = {
    "product as einsum": ("einsum data=var:512,512 data=var:512,512 equation=ik,kj->ij", 93.0),
    "scores, heads inside": ("einsum data=var:1,197,12,64 data=var:1,197,12,64 equation=bqhd,bkhd->bhqk", 85.0),
    "tensor contraction": ("einsum data=var:48,32,24,32 data=var:32,32,40 equation=abcd,dbe->ace", 75.0),
    "correlation": ("einsum data=var:1,64,28,28 data=var:1,64,28,28 equation=bchw,bcxy->bhwxy", 85.0),
    "u8 x i8 product": ("matmul a=128,768:u8 b=const:768,768:i8", 90.0),
    "bf16 product": ("matmul a=128,768:bf16 b=const:768,768:bf16", 90.0),
    "f16 convolution": ("conv2d data=1,64,56,56:f16 weight=64,64,3,3:f16 pad=1", None),
    "f32 convolution": ("conv2d data=1,64,56,56 weight=64,64,3,3 pad=1", None),
    "grouped 3-D convolution": ("conv3d data=1,64,8,28,28 weight=64,32,3,3,3 groups=2 pad=1,1,1,1,1,1", None),
}
MAPS = {
    "transpose of a matrix": "transpose data=1024,1024 perm=1,0",
    "channels last": "transpose data=1,768,197 perm=0,2,1",
    "channels first": "transpose data=1,56,56,64 perm=0,3,1,2",
    "heads inside": "transpose data=16,197,12,64 perm=0,2,1,3",
    "last to first": "transpose data=3,1000,700 perm=2,0,1",
    "3-D pooling": "max_pool data=1,16,32,56,56 kernel=2,2,2 stride=2,2,2",
}
ROW = 1024
MOVED = 70.0
"""Per cent of the bandwidth of copying as many bytes."""
METHOD = (
    "One thread. Untuned is the config that the shipped model expects the most of; tuned is the best after so many "
    "trials of the usual search from an empty database, that config first. Both run in turn, verified; a time is "
    "the minimum of batches. Peaks are of the same process: fp32 multiply-adds, u8 x i8 and bf16 dot products. "
    "The limit is the least time by arithmetic and by bytes (search_spaces/space/limit.py). The bandwidth of a map is "
    "that of an elementwise kernel that reads and writes as many bytes, timed in the same process."
)


def peak_of(workload: Workload, peaks: Peaks) -> float:
    """Operations per second that the instruction for the workload's types reaches on one core, in units of 1e9."""
    kinds = {peaks.int8: ("u8", "i8"), peaks.bf16: ("bf16",)}
    types = {i.type.dtype for i in workload.inputs}
    found = next((rate for rate, names in kinds.items() if rate is not None and types <= set(names)), None)
    return (found or peaks.fp32).one_core


def measure(text: str, trials: int, shop: Workshop, peaks: Peaks, folder: Path) -> Row:
    """One contraction, untuned and tuned."""
    workload, target = parse_workload(text), shop.target
    entries = {"untuned": default_of(TEMPLATE, workload, target)}
    if trials:
        entries["tuned"] = tuned_by(TEMPLATE, workload, target, trials, folder / f"{workload.key}.sqlite")
    found = shop.race(workload, {label: config for label, config in entries.items() if config is not None}, 20)
    row: dict[str, str | float | None] = {"contraction": text}
    for label, outcome in found.items():
        if isinstance(outcome, Failure):
            row[label] = f"{outcome.kind}: {outcome.message}"[:60]
            continue
        row[f"{label} µs"] = outcome.seconds * 1e6
        row[f"{label} % of peak"] = 100 * workload.flops / outcome.seconds * 1e-9 / peak_of(workload, peaks)
        row[f"{label} % of limit"] = 100 * limit(workload, target).seconds / outcome.seconds
    return row


def measure_map(text: str, trials: int, shop: Workshop, folder: Path) -> Row:
    """A map: `generic`, and the sketch untuned and tuned, in shares of the bandwidth of a copy."""
    workload, target = parse_workload(text), shop.target
    entries = {"generic": default_of("generic", workload, target), "untuned": default_of(MAP, workload, target)}
    if trials:
        entries["tuned"] = tuned_by(MAP, workload, target, trials, folder / f"{workload.key}.sqlite")
    types = [i.type for i in workload.inputs] + [workload.types()[n] for n in workload.outputs]
    moved = sum(math.prod(t.shape) * DType(t.dtype).bytes for t in types)
    copy = parse_workload(f"relu data={max(1, moved // (2 * 4 * ROW))},{ROW}")
    plain_copy = default_of("generic", copy, target)
    copied = shop.race(copy, {"copy": Config(()) if plain_copy is None else plain_copy}, 20)["copy"]
    found = shop.race(workload, {label: config for label, config in entries.items() if config is not None}, 20)
    row: dict[str, str | float | None] = {"map": text}
    for label, outcome in found.items():
        if isinstance(outcome, Failure) or isinstance(copied, Failure):
            row[label] = str(outcome)[:60]
            continue
        row[f"{label} µs"] = outcome.seconds * 1e6
        row[f"{label} % of a copy"] = 100 * copied.seconds / outcome.seconds
    return row


def against(model: str, shop: Workshop) -> list[Row]:
    """Untuned kernels of a zoo model: the template that was first without sketches, and the sketch, timed in turn."""
    target = shop.target
    workloads = {task.workload.key: task.workload for task in tasks(zoo.build(model).SerializeToString(), target)}
    rows: list[Row] = []
    for workload in workloads.values():
        others = [t.name for t in templates_for(workload, target, strict_fp=True) if t.name not in (TEMPLATE, *RESORTS)]
        configs = [default_of(name, workload, target) for name in (*others[:1], TEMPLATE)]
        if not others or configs[-1] is None or configs[0] is None:
            continue
        outcomes = shop.race(workload, {others[0]: configs[0], TEMPLATE: configs[-1]}, 15)
        written, sketch = outcomes[others[0]], outcomes[TEMPLATE]
        if isinstance(written, Failure) or isinstance(sketch, Failure):
            rows.append(
                {"kernel": workload.describe(), "note": str(written if isinstance(written, Failure) else sketch)}
            )
            continue
        rows.append(
            {
                "kernel": workload.describe(),
                "template": others[0],
                "template µs": written.seconds * 1e6,
                "sketch µs": sketch.seconds * 1e6,
                "times as fast": written.seconds / sketch.seconds,
            }
        )
    return rows


def main(arguments: list[str] | None = None) -> int:
    options = parser("sketches", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument(
        "--op", action="append", help="a contraction as `autotune tune --op` takes it; may be repeated"
    )
    options.add_argument("--trials", type=int, default=200)
    options.add_argument("--target", default="native -num-cores=1")
    options.add_argument("--against", choices=zoo.names(), action="append", help="kernels of a model; may be repeated")
    given = options.parse_args(arguments)
    target, trials = Target.parse(given.target), min(given.trials, 8) if given.quick else given.trials
    cases = {text: (text, None) for text in given.op} if given.op else CASES
    report = Report("sketches", METHOD, given.quick)
    if given.against:
        with Workshop(target) as shop:
            for model in given.against:
                rows = against(model, shop)
                report.table(f"{model}, untuned, {target}", rows)
                ratios = [ratio for row in rows if isinstance(ratio := row.get("times as fast"), float)]
                mean = statistics.geometric_mean(ratios) if ratios else None
                report.claim(f"{model}: sketches against templates, geometric mean", mean, "at least", 0.95, "x")
        report.finish(given.json)
        return 0
    peaks = measure_peaks(target)
    label = "tuned" if trials else "untuned"
    with Workshop(target) as shop, tempfile.TemporaryDirectory(prefix="autotune-sketches-") as folder:
        for name, (text, bound) in list(cases.items())[: 1 if given.quick else None]:
            progress(name)
            row = measure(text, trials, shop, peaks, Path(folder))
            report.table("contractions", [row])
            if bound is not None:
                share = row.get(f"{label} % of peak")
                report.claim(
                    f"{name}: share of the peak", share if isinstance(share, float) else None, "at least", bound, " %"
                )
        for name, text in list(() if given.op else MAPS.items())[: 1 if given.quick else None]:
            progress(name)
            row = measure_map(text, trials, shop, Path(folder))
            report.table("maps", [row])
            share = row.get(f"{label} % of a copy")
            report.claim(
                f"{name}: share of a copy", share if isinstance(share, float) else None, "at least", MOVED, " %"
            )
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
