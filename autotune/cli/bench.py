"""`autotune bench`: our latency beside that of other engines, in the same minutes on the same threads."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.compile import reason_lines, tune_command, with_threads
from autotune.cli.feeds import InputOption, load_arrays
from autotune.cli.options import (
    DbOption,
    ImportOption,
    JsonOption,
    RunnableArgument,
    ShapeOption,
    TargetOption,
    load_imports,
    parse_shapes,
)
from autotune.cli.text import duration, finite, percent, print_json, print_table, table

if TYPE_CHECKING:
    from autotune.engines.compare import Comparison
    from autotune.engines.engine import Engine
    from autotune.measure.ratio import Ratio
    from autotune.report.coverage import Coverage
    from autotune.target import Target


def bench(
    model: RunnableArgument,
    against: Annotated[
        str, typer.Option("--against", metavar="ENGINE,...", help="Engines to compare with, or none.")
    ] = "onnxruntime,openvino",
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Threads of every engine [default: the target's].")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often each engine has its turn.")] = 20,
    untuned: Annotated[bool, typer.Option("--untuned", help="Time our untuned program as well.")] = False,
    target: TargetOption = "native",
    shape: ShapeOption = None,
    inputs: InputOption = None,
    db: DbOption = None,
    imports: ImportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time a model, interleaved with other engines, and check the answers."""
    from autotune.api.feeds import complete_feeds, shapes_with
    from autotune.api.load import load
    from autotune.api.node_arg import NodeArg
    from autotune.api.observe import run_observed
    from autotune.engines.compare import compare
    from autotune.engines.engine import Ours
    from autotune.engines.peers import load_peer, peer_names
    from autotune.errors import EngineError
    from autotune.report.coverage import Coverage
    from autotune.runtime.artifact import is_compiled_file, load_artifact
    from autotune.runtime.executor import Executor
    from autotune.target import Target

    load_imports(imports)
    given = load_arrays(inputs, "--input")
    shapes = shapes_with(parse_shapes(shape), given)
    names, command = peer_names(against), ""
    coverage: Coverage | None = None
    engines: list[Engine] = []
    if is_compiled_file(model):
        executor = Executor(*load_artifact(model))
        wanted = Target.from_json(executor.program.target)
        if threads not in (None, wanted.num_threads):
            raise EngineError(f"{model} was compiled for {wanted.num_threads} threads; compile it again for {threads}")
        feeds = complete_feeds([NodeArg.of(spec) for spec in executor.program.inputs], given, 0)
        engines.append(Ours(executor))
        flops = executor.program.flops
        if names:
            _note(f"{model} is a compiled file, which other engines cannot read: they are left out")
        names = []
    else:
        wanted = Target.parse(target)
        wanted = wanted.with_threads(threads) if threads else wanted
        ours = load(model, wanted, db, shapes=shapes)
        feeds = complete_feeds([NodeArg.of(spec) for spec in ours.inputs], given, 0)
        programs = run_observed(ours, feeds, given)
        coverage = Coverage.of([kernel for program in programs for kernel in program.kernels])
        command = tune_command(model, with_threads(target, threads), shape, inputs, db)
        flops = sum(program.program.flops for program in programs)
        engines.append(Ours(ours))
        if untuned:
            engines.append(Ours(load(model, wanted, False, shapes=shapes), "autotune untuned"))
    for name in names:
        try:
            engines.append(load_peer(name, model, wanted.num_threads, shapes))
        except EngineError as error:
            _note(f"{error}: left out")
    found = compare(engines, feeds, wanted, flops=flops, rounds=rounds)
    if as_json:
        print_json(_values(model, wanted, found, flops, coverage, command))
    else:
        show_comparison(wanted, found, flops)
        if coverage is not None:
            print("\n".join([coverage.line(), *reason_lines(coverage, command)]))
    _refuse_wrong(found)


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def _refuse_wrong(found: Comparison) -> None:
    from autotune.engines.compare import ALLOWED_ERROR
    from autotune.errors import EngineError

    for result in found.results:
        if result.name.startswith("autotune") and result.max_error is not None and result.max_error > ALLOWED_ERROR:
            raise EngineError(
                f"{result.name}'s answer is off by {result.max_error:.1e} of the output's range; please report it"
            )


def _values(
    model: Path, target: Target, found: Comparison, flops: int, coverage: Coverage | None, command: str
) -> dict[str, Any]:
    from autotune.engines.environment import describe_environment

    return {
        "model": str(model),
        "threads": target.num_threads,
        "flops": flops,
        "rounds": found.rounds,
        "peak_gflops": found.peak_gflops,
        "peak_doubt": found.peak_doubt,
        "disturbance": found.disturbance,
        "coverage": coverage.exact if coverage else None,
        "reasons": [{"reason": reason, "kernels": count} for reason, count in coverage.reasons] if coverage else [],
        "to_tune": command if coverage and not coverage.complete else None,
        "engines": [
            {
                **asdict(one),
                "max_error": finite(one.max_error),
                "speedup": found.speedup(one).median,
                "speedup_interval": found.speedup(one).interval,
            }
            for one in found.results
        ],
        "environment": describe_environment(),
    }


def show_comparison(target: Target, found: Comparison, flops: int) -> None:
    """A table of the engines, ours first, and what the figures refer to."""
    from autotune.machine import this_machine

    ours = found.results[0]
    shown = table(
        "engine", "version", "latency", "spread", "GFLOP/s", "of peak", "× our time", "error",
        right=("latency", "spread", "GFLOP/s", "of peak", "× our time", "error"),
        spare=("spread", "version", "GFLOP/s", "of peak"),
    )  # fmt: skip
    for one in found.results:
        shown.add_row(
            one.name,
            one.version or "-",
            duration(one.seconds),
            percent(one.spread),
            f"{one.gflops:.1f}",
            "-" if found.peak_doubt else percent(one.peak_share),
            "-" if one is ours else _faster(found.speedup(one)),
            "-" if one.max_error is None else f"{one.max_error:.1e}",
        )
    print_table(shown)
    here = this_machine()
    threads = "1 thread" if target.num_threads == 1 else f"{target.num_threads} threads"
    print(f"{threads} on {here.model}; {flops / 1e9:.2f} GFLOP; {found.rounds} rounds in turn")
    checked = any(one.max_error is not None for one in found.results)
    errors = "; errors are relative to onnxruntime's range" if checked else ""
    doubt = f", in doubt: {found.peak_doubt}" if found.peak_doubt else ""
    print(f"FMA peak in the same rounds {found.peak_gflops:.0f} GFLOP/s{doubt}{errors}")
    if len(found.results) > 1:
        print(
            "we are: the median of the rounds' ratios, and its interval, which need not be the ratio of the latencies"
        )
    if found.disturbance:
        print(f"disturbed: {found.disturbance}")


def _faster(ratio: Ratio) -> str:
    shown = f"{ratio.median:.2f}×"
    return shown if ratio.interval is None else f"{shown} ({ratio.interval[0]:.2f} to {ratio.interval[1]:.2f})"
