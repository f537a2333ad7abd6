"""A new operator in a hundred lines: define it, say how it may be computed, print it, tune it, run it.

    python -m examples.new_operator --trials 24

The operator is root mean square normalisation: y[i, j] = x[i, j] * gain[j] / sqrt(mean over j of x[i, j]**2 + epsilon).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import autotune
from autotune.lower import lower, print_program
from autotune.measure.pipeline import open_pipeline
from autotune.ops import TensorType, Workload, WorkloadInput, WorkloadNode, compute_def
from autotune.ops.registry import operator
from autotune.records import Database
from autotune.schedule import Schedule
from autotune.search.budget import Budget
from autotune.search.task import TuningTask
from autotune.search.tuner import tune
from autotune.search_spaces import Choice, Config, ConfigSpace, Interface, make_schedule, template
from autotune.search_spaces.library.anchored import with_layouts
from autotune.target import Target
from autotune.tensor import Tensor, compute, const, reduce_axis, sum_, unary


# What is computed. NumPy evaluates the same definition, so every candidate is checked against it.
@operator("rows_rms", operands="data gain", weights="gain", epsilon=1e-6)
def rows_rms(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    x, gain = inputs
    rows, columns = x.shape
    k = reduce_axis(columns, "k")
    squares = compute((rows,), lambda i: sum_(x[i, k] * x[i, k], k), name="squares")
    scale = compute(
        (rows,), lambda i: const(1.0, x.dtype) / unary("sqrt", squares[i] / columns + attrs["epsilon"]), name="scale"
    )
    return compute((rows, columns), lambda i, j: x[i, j] * scale[i] * gain[j], name="rows_rms")


# How it may be computed: a row at a time, summing squares in `partials` lanes, then writing vectors of `lanes`.
@template("rows_rms.rows", op="rows_rms")
class Rows:
    def applies(self, workload: Workload, target: Target) -> bool:
        return len(workload.nodes) == 1

    def space(self, workload: Workload, target: Target) -> ConfigSpace:
        (columns,) = workload.inputs[1].type.shape
        widths = tuple(n for n in (1, 4, 8, 16, 32, 64) if n <= columns)
        return ConfigSpace((Choice("partials", widths), Choice("lanes", widths)))

    def default(self, workload: Workload, target: Target) -> Config:
        space = self.space(workload, target)
        widest = max(n for n in space.knob("lanes").values if isinstance(n, int) and n <= target.lanes(4))
        return space.default().replace(partials=widest, lanes=widest)

    def schedule(self, workload: Workload, config: Config, target: Target, interface: Interface | None) -> Schedule:
        s = with_layouts(Schedule(compute_def(workload)), interface, {})
        s = s.inline("scale").rfactor("squares", "k", config.get_int("partials"), keep="inner")
        s = s.split("out0", "j", config.get_int("lanes")).vectorize("out0", "j.1").parallel("out0", "i")
        s = s.compute_at("squares", "out0", "i", "register").compute_at("squares.rf", "out0", "i", "register")
        s = s.reorder("squares.rf", "k.o", "k.i").vectorize("squares.rf", "k.i")
        return s.vectorize("squares", "k.i")


def workload(rows: int, columns: int) -> Workload:
    data, gain = TensorType("f32", (rows, columns)), TensorType("f32", (columns,))
    node = WorkloadNode.make("rows_rms", (0, 1), epsilon=1e-6)
    return Workload((WorkloadInput(data), WorkloadInput(gain, constant=True)), (node,), (2,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--db", type=Path, default=Path("new_operator.sqlite"))
    args = parser.parse_args()
    norm, target = workload(128, 768), Target.parse("native")

    print("what:", compute_def(norm), sep="\n")
    task = TuningTask.of(norm, target)
    untuned = make_schedule(norm, task.space.default(), target)
    print("\nhow, untuned:", untuned, "\nas loops:", print_program(lower(untuned)), sep="\n")

    # Workers are processes of their own: they import this file to know the operator and its template.
    with Database.open(args.db) as database, open_pipeline(target, imports=(__file__,)) as (pipeline, _):
        outcome = tune([task], pipeline=pipeline, database=database, budget=Budget(trials=args.trials)).tasks[0]
    print(f"tuned: {outcome.trials} trials, {outcome.failed} failed, {outcome.speedup or 1:.2f} x the untuned speed")

    best = autotune.best_schedule(norm, target, database=args.db)
    print(f"best: {best.config.to_json()} ({best.tier.value}: {best.reason})")
    x, gain = np.random.default_rng(0).standard_normal((2, 128, 768), np.float32)
    with best.build() as run:
        (y,) = run(x, gain[0])
    expected = x * gain[0] / np.sqrt(np.mean(x.astype(np.float64) ** 2, axis=1, keepdims=True) + 1e-6)
    print(f"largest error against NumPy: {np.abs(y - expected).max():.1e}")


if __name__ == "__main__":
    main()
