"""The whole way in one go: `make demo`, or `python -m benchmarks.demo [--budget 2m] [--model resnet50] [--threads 1]`.

Builds a real architecture with seeded random weights, tunes it, compiles it to one file, checks the file's answer
against ONNX Runtime, and prints the latencies of the untuned program, the tuned one and ONNX Runtime, timed in
turn. The database is kept, so a second demo continues where the first one stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import onnx

import autotune
from autotune.api.bench import UNTUNED
from autotune.cli.bench_table import show_comparison
from autotune.cli.text import size
from autotune.engines.compare import Comparison, compare
from autotune.engines.engine import Ours
from autotune.engines.peers import load_peer
from autotune.errors import AutotuneError
from autotune.report.coverage import Coverage
from autotune.report.text import duration
from autotune.runtime.artifact import load_artifact
from autotune.runtime.executor import Executor
from autotune.runtime.feeds import random_feeds
from autotune.target import Target
from benchmarks import zoo

MAX_ERROR = 1e-4  # of the range of the output


def main(args: Sequence[str] | None = None) -> int:
    """Run the demo; exit code 1 when the answer is wrong or something refuses."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--budget", default="2m", help="how long to tune, e.g. 90s or 5m (default: 2m)")
    parser.add_argument("--model", default="resnet50", choices=zoo.names())
    parser.add_argument("--threads", type=int, help="threads of every engine (default: the cores allowed)")
    parser.add_argument("--folder", type=Path, default=Path("build/demo"), help="where the files go")
    given = parser.parse_args(args)
    try:
        return demo(given.model, given.budget, given.threads, given.folder)
    except AutotuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def demo(name: str, budget: str, threads: int | None, folder: Path) -> int:
    """See the module; the steps in order."""
    folder.mkdir(parents=True, exist_ok=True)
    model, database, compiled = folder / f"{name}.onnx", folder / "tuning.sqlite", folder / f"{name}.at"
    target = Target.parse()
    target = target.with_threads(threads) if threads else target

    print(f"1. build   {model}")
    onnx.save(zoo.build(name), model)

    print(f"2. tune    for {budget} on {target}, trials in {database}")
    report = autotune.tune(model, target, database, budget=budget, progress=True, command="make demo")
    if report.interrupted or report.model is None:
        print("interrupted; the same command continues", file=sys.stderr)
        return 130
    print(f"           {report.search.new_trials} trials, {report.search.trials_per_second:.1f} per second")

    program = autotune.compile(model, target, database)
    program.save(compiled)
    print(f"3. compile {compiled} ({size(compiled.stat().st_size)}); {Coverage.of(program.kernels).line()}")

    print("4. compare the file with ONNX Runtime, and time all in turn")
    executor = Executor(*load_artifact(compiled).alone())
    untuned = autotune.compile(model, target, False)
    engines = [Ours(executor), load_peer("onnxruntime", model, target.num_threads, {})]
    if untuned.key != program.key:
        engines.insert(1, Ours(untuned.executor, UNTUNED))
    found = compare(engines, random_feeds(executor.program.inputs, 0), target, flops=executor.program.flops)
    show_comparison(target, found, executor.program.flops)
    print(outcome(found))
    worst = max(one.max_error or 0.0 for one in found.results)
    if worst > MAX_ERROR:
        print(
            f"error: the answer is off by {worst:.1e} of the output's range, {MAX_ERROR:.0e} allowed", file=sys.stderr
        )
        return 1
    print(f"the answers agree: largest difference {worst:.1e} of the output's range")
    return 0


def outcome(found: Comparison) -> str:
    """The times in a line, and what tuning gained, if anything; equal programs have one time."""
    tuned, *others = found.results
    peer = f"{others[-1].name} {duration(others[-1].seconds)}"
    if len(others) == 1:
        what = "tuning found nothing faster: the model stays untuned, a longer --budget may change it"
        return f"untuned {duration(tuned.seconds)}, {peer}; {what}"
    gained = found.speedup(others[0])
    times = f"untuned {duration(others[0].seconds)}, tuned {duration(tuned.seconds)}, {peer}"
    if gained.faster or gained.slower:
        return f"{times}; tuning made it {gained.median:.2f}× as fast"
    return f"{times}; untuned and tuned do not differ by more than noise does"


if __name__ == "__main__":
    sys.exit(main())
