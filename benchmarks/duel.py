"""What the untuned choices of two trees, or of two sets of templates, cost: each kernel in turn, weighted by its uses.

python -m benchmarks.duel resnet50 bert_base@bf16 model.onnx --write old.kernels      in one tree: choose, build, keep
python -m benchmarks.duel resnet50 bert_base@bf16 model.onnx --against old.kernels    in the other: time both
python -m benchmarks.duel resnet50 --templates 'conv2d.*' 'sketch.*'                  templates of one tree
python -m benchmarks.duel bert_base --cold 400 --against old.kernels                  with weights from memory
"""

from __future__ import annotations

import argparse
import base64
import json
import lzma
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from autotune import machine
from autotune.api.compile import tasks
from autotune.measure.builder import Builder
from autotune.measure.local_runner import RunOptions
from autotune.measure.protocol import Message
from autotune.measure.runner import Runner
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult
from autotune.ops.workload import Workload
from autotune.search_spaces.space.config import TEMPLATE, Config
from autotune.search_spaces.space.registry import default_config, templates_for
from autotune.target import Target
from benchmarks import zoo
from benchmarks.prebuilt import add_cold, add_turns, turn_of
from benchmarks.report import Report, Row, parser, progress

ROUNDS = 12
SPELL = 90.0
"""Seconds of timing after which others get the lock."""

MEAN, WORST = 0.98, 0.90
METHOD = (
    "Of each distinct kernel of a model both choices are built, verified and timed in turn, in the layouts that they "
    "ask for, with weights that caches may hold or, --cold, as many copies of them as make so many MiB; those of equal "
    "code are left out. The ratio is the time of the old one by that of the new one: above 1 the new one is faster. "
    "Sums count a kernel as often as the model runs it; means are geometric."
)

Choose = Callable[[Workload, Target], "Config | None"]
Kernels = dict[str, "Kernel"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """What one side takes for a workload: its config as text, and the code. What could not be built is no `Kernel`."""

    config: str
    build: BuildResult


@dataclass(frozen=True, slots=True)
class Use:
    """A kernel of a model, and how often a run of it takes it."""

    model: str
    workload: Workload
    count: float


def uses(model: str, target: Target) -> list[Use]:
    """The kernels of a model: one of the zoo or a file, with @bf16 or another precision behind it."""
    name, _, precision = model.partition("@")
    source = zoo.build(name).SerializeToString() if name in zoo.names() else name
    found: dict[Workload, float] = {}
    for task in tasks(source, target, precision=precision or "model", database=False):
        found[task.workload] = found.get(task.workload, 0.0) + task.uses
    return [Use(model, workload, count) for workload, count in found.items()]


def of_templates(pattern: str) -> Choose:
    """The default of the first template with such a name; None where there is none."""

    def choose(workload: Workload, target: Target) -> Config | None:
        named = (one for one in templates_for(workload, target) if fnmatchcase(one.name, pattern))
        found = next(named, None)
        return None if found is None else found.default(workload, target).replace(**{TEMPLATE: found.name})

    return choose


def built(workloads: Mapping[str, Workload], choose: Choose, target: Target) -> Kernels:
    """The choice for each workload by its key, without those for which there is none or that cannot be built."""
    with Builder(machine.allowed_cores(), timeout=120.0) as builder:
        chosen = {key: choose(workload, target) for key, workload in workloads.items()}
        futures = {
            key: (config, builder.submit(MeasureInput(workloads[key], config, None, target)))
            for key, config in chosen.items()
            if config is not None
        }
        results = {key: (str(config), future.result()) for key, (config, future) in futures.items()}
    for key, (_, result) in results.items():
        if not isinstance(result, BuildResult):
            progress(f"not built: {workloads[key].describe()}: {result}")
    return {key: Kernel(config, result) for key, (config, result) in results.items() if isinstance(result, BuildResult)}


def keep(path: Path, kernels: Kernels, target: Target) -> None:
    """Writes kernels with their code, for a duel with those of another tree."""
    lines = []
    for key, kernel in kernels.items():
        message = kernel.build.to_message()
        code = [base64.b64encode(blob).decode() for blob in message.blobs]
        lines.append(json.dumps({"key": key, "config": kernel.config, "body": message.body, "code": code}))
    path.write_bytes(lzma.compress("\n".join([json.dumps({"target": str(target)}), *lines]).encode(), preset=1))


def kept(path: Path, target: Target) -> Kernels:
    """What `keep` wrote.

    Raises:
        SystemExit: the file is none of those, or of another target.
    """
    try:
        first, *lines = (json.loads(line) for line in lzma.decompress(path.read_bytes()).decode().splitlines())
        if first["target"] != str(target):
            raise SystemExit(f"{path} is of target {first['target']}, not of {target}; give --target")
        return {line["key"]: Kernel(line["config"], _build(line)) for line in lines}
    except (OSError, lzma.LZMAError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path} is no file of `benchmarks.duel --write`: {error}") from error


def _build(line: Mapping[str, Any]) -> BuildResult:
    return BuildResult.from_message(Message(line["body"], tuple(map(base64.b64decode, line["code"]))))


def fights(found: list[Use], old: Kernels, new: Kernels) -> Iterator[tuple[Use, Kernel, Kernel]]:
    """Uses of which both sides have a kernel, and not the same one."""
    for use in found:
        key = use.workload.key
        if key in old and key in new and old[key].build.kernel.object_code != new[key].build.kernel.object_code:
            yield use, old[key], new[key]


def fought(one: tuple[Use, Kernel, Kernel], runner: Runner, target: Target, rounds: int, cold: int = 0) -> Row:
    """A kernel of both sides, timed in turn.

    Args:
        cold: MiB of copies of its weights that the runs go through.
    """
    use, *sides = one
    candidate = MeasureInput(use.workload, Config.of(()), None, target)
    results = runner.compare(candidate, [side.build for side in sides], rounds, RunOptions(weight_bytes=cold << 20))
    old, new = (r.seconds * 1e6 if isinstance(r, MeasureResult) else math.nan for r in results)
    failed = "; ".join(str(r) for r in results if not isinstance(r, MeasureResult))
    return {
        "model": use.model,
        "uses": use.count,
        "old µs": old,
        "new µs": new,
        "old / new": old / new,
        "kernel": use.workload.describe(),
        "old": sides[0].config,
        "new": sides[1].config,
        "note": failed,
    }


def summary(rows: Sequence[Row]) -> Row:
    """Of the kernels of one model that differ and ran on both sides."""
    good = [row for row in rows if not row["note"]]
    ratios = [float(row["old / new"] or 0) for row in good]
    sums = [sum(float(row["uses"] or 0) * float(row[side] or 0) for row in good) / 1e3 for side in ("old µs", "new µs")]
    return {
        "model": rows[0]["model"],
        "kernels": len(rows),
        "failed": len(rows) - len(good),
        "old ms": sums[0],
        "new ms": sums[1],
        "old / new": sums[0] / sums[1] if good else None,
        "mean": statistics.geometric_mean(ratios) if good else None,
        "worst": min(ratios, default=None),
    }


def main(arguments: list[str] | None = None) -> int:
    options = parser("duel", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.description = __doc__
    options.add_argument(
        "models", nargs="*", metavar="MODEL", help="of the zoo, or a file; behind it @bf16 or another precision"
    )
    options.add_argument("--target", default="native -num-cores=1", help="default: one core of this machine")
    options.add_argument("--only", metavar="OP", nargs="+", help="only kernels with one of these operators")
    options.add_argument("--rounds", type=int, default=ROUNDS)
    add_cold(options)
    sides = options.add_mutually_exclusive_group(required=True)
    sides.add_argument("--write", type=Path, metavar="FILE", help="keep this tree's kernels")
    sides.add_argument("--against", type=Path, metavar="FILE", help="the old side: what another tree kept")
    sides.add_argument("--templates", nargs=2, metavar=("OLD", "NEW"), help="patterns of two sets of templates' names")
    add_turns(options)
    given = options.parse_args(arguments)
    target = Target.parse(given.target)
    models = given.models or (["squeezenet"] if given.quick else ["resnet50", "bert_base", "mobilenetv2"])
    found = []
    for model in models:
        progress(f"reading {model}")
        of_model = uses(model, target)
        if given.only:
            of_model = [use for use in of_model if any(node.op in given.only for node in use.workload.nodes)]
        found += of_model[:3] if given.quick else of_model
    workloads = {use.workload.key: use.workload for use in found}
    progress(f"building {len(workloads)} kernels")
    if given.write:
        keep(given.write, built(workloads, default_config, target), target)
        progress(f"written to {given.write}")
        return 0
    report = Report("duel", METHOD, given.quick)
    if given.templates:
        first, second = (of_templates(pattern) for pattern in given.templates)
        both = {k: w for k, w in workloads.items() if all(choose(w, target) is not None for choose in (first, second))}
        old, new = built(both, first, target), built(both, second, target)
    else:
        old, new = kept(given.against, target), built(workloads, default_config, target)
    different = list(fights(found, old, new))
    waiting = list({one[0].workload.key: one for one in different}.values())
    timed: dict[str, Row] = {}
    with Runner(target, timeout=120.0) as runner:
        for one in waiting[-1:]:
            fought(one, runner, target, 1, given.cold)  # what a worker starts later is not in real time
        while waiting:
            with turn_of(given, runner)():
                end = time.monotonic() + SPELL
                while waiting and time.monotonic() < end:
                    one = waiting.pop()
                    rounds = 2 if given.quick else given.rounds
                    timed[one[0].workload.key] = fought(one, runner, target, rounds, given.cold)
    rows = [{**timed[use.workload.key], "model": use.model, "uses": use.count} for use, _, _ in different]
    report.table("kernels", sorted(rows, key=lambda row: float(row["old / new"] or 0)))
    report.table("models", [summary(each) for name in models if (each := [r for r in rows if r["model"] == name])])
    ratios = [float(row["old / new"] or 0) for row in timed.values() if not row["note"]]
    note = f"{len(workloads) - len(timed)} of {len(workloads)} kernels are the same or on one side only"
    mean = statistics.geometric_mean(ratios) if ratios else None
    report.claim(f"old / new of {len(ratios)} kernels, geometric mean", mean, "at least", MEAN, note=note)
    report.claim("old / new of the worst kernel", min(ratios, default=None), "at least", WORST)
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
