"""`autotune bench`: our latency beside that of other engines, in the same minutes on the same threads."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.compile import reason_lines, tune_command, with_threads
from autotune.cli.feeds import InputOption, load_arrays
from autotune.cli.loudness import note
from autotune.cli.options import (
    DbOption,
    ImportOption,
    JsonOption,
    MaxErrorOption,
    PrecisionOption,
    RunnableArgument,
    ShapeOption,
    TargetOption,
    load_imports,
    parse_shapes,
    precision_words,
)
from autotune.cli.text import duration, percent, print_json, print_table, table

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
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Check answers against float64 arithmetic, which may take a minute."),
    ] = False,
    target: TargetOption = "native",
    shape: ShapeOption = None,
    inputs: InputOption = None,
    db: DbOption = None,
    precision: PrecisionOption = "model",
    max_error: MaxErrorOption = None,
    imports: ImportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time a model, interleaved with other engines, and check the answers."""
    from autotune.api.exact import exact_outputs
    from autotune.api.feeds import complete_feeds, shapes_with
    from autotune.api.load import load
    from autotune.api.node_arg import NodeArg
    from autotune.api.observe import run_observed
    from autotune.engines.compare import compare
    from autotune.engines.engine import Ours
    from autotune.engines.peers import load_peer, peer_names
    from autotune.errors import EngineError
    from autotune.ops.registry import has_trait
    from autotune.ops.traits import Trait
    from autotune.report.coverage import Coverage
    from autotune.runtime.artifact import is_compiled_file, load_artifact
    from autotune.runtime.executor import Executor
    from autotune.target import Target

    load_imports(imports)
    given = load_arrays(inputs, "--input")
    shapes = shapes_with(parse_shapes(shape), given)
    names, command = peer_names(against), ""
    coverage: Coverage | None = None
    right, rounding, narrow, rounded = None, None, False, False
    engines: list[Engine] = []
    if is_compiled_file(model) and exact:
        raise EngineError(f"{model} is a compiled file, which float64 arithmetic cannot follow; give the model itself")
    if is_compiled_file(model):
        executor = Executor(*load_artifact(model))
        wanted = Target.from_json(executor.program.target)
        if threads not in (None, wanted.num_threads):
            raise EngineError(f"{model} was compiled for {wanted.num_threads} threads; compile it again for {threads}")
        feeds = complete_feeds([NodeArg.of(spec) for spec in executor.program.inputs], given, 0)
        engines.append(Ours(executor))
        flops = executor.program.flops
        if names:
            note(f"{model} is a compiled file, which other engines cannot read: they are left out")
        names = []
    else:
        wanted = Target.parse(target)
        wanted = wanted.with_threads(threads) if threads else wanted
        ours = load(model, wanted, db, shapes=shapes, precision=precision, max_error=max_error)
        feeds = complete_feeds([NodeArg.of(spec) for spec in ours.inputs], given, 0)
        programs = run_observed(ours, feeds, given)
        coverage = Coverage.of([kernel for program in programs for kernel in program.kernels])
        command = tune_command(
            model, with_threads(target, threads), shape, inputs, db, more=precision_words(precision, max_error)
        )
        flops = sum(program.program.flops for program in programs)
        rounding = programs[0].expected_error if len(programs) == 1 else None
        right = exact_outputs(model, feeds, shapes) if exact else None
        engines.append(Ours(ours))
        narrow = any(program.precise.narrow for program in programs)
        nodes = (node for program in programs for kernel in program.kernels for node in kernel.workload.nodes)
        rounded = any(has_trait(node.op, Trait.ROUNDS) for node in nodes)
        if untuned:
            plain = load(model, wanted, False, shapes=shapes, precision=precision, max_error=max_error)
            engines.append(Ours(plain, "autotune untuned"))
        if precision not in ("model", "f32"):
            engines.append(Ours(load(model, wanted, db, shapes=shapes), "autotune f32"))
    for name in names:
        try:
            engines.append(load_peer(name, model, wanted.num_threads, shapes))
        except EngineError as error:
            note(f"{error}: left out")
    found = compare(engines, feeds, wanted, flops=flops, rounds=rounds, right=right)
    checked = "float64" if exact else "onnxruntime"
    if as_json:
        more = {"expected_error": rounding, "errors_from": checked}
        values = {**_values(model, wanted, found, flops, coverage, command), **more}
        _refuse_wrong(found, narrow, rounded, values)
        print_json(values)
    else:
        show_comparison(wanted, found, flops, checked)
        if coverage is not None:
            print("\n".join([coverage.line(), *reason_lines(coverage, command)]))
        _refuse_wrong(found, narrow, rounded)


def _refuse_wrong(found: Comparison, narrow: bool, rounded: bool, values: Mapping[str, object] | None = None) -> None:
    """Ends the command where an answer of ours cannot be right; how far off 16 or 8 bits are is for the user to judge.

    Args:
        narrow: some of our products are in 16 bits, but for those of the engine that is called f32.
        rounded: the model itself rounds to 8 bits: one number that falls the other way moves all that follow.
        values: all that was found, which the error then carries.
    """
    from autotune.engines.compare import ALLOWED_ERROR
    from autotune.errors import EngineError

    for result in found.results:
        exact = not rounded and (not narrow or result.name == "autotune f32")
        allowed = ALLOWED_ERROR if exact else sys.float_info.max
        if result.name.startswith("autotune") and result.max_error is not None and result.max_error > allowed:
            raise EngineError(
                f"{result.name}'s answer is off by {result.max_error:.1e} of the output's range; please report it",
                values=values,
            )


def _values(
    model: Path, target: Target, found: Comparison, flops: int, coverage: Coverage | None, command: str
) -> dict[str, Any]:
    from autotune.engines.environment import describe_environment

    return {
        "model": str(model),
        "threads": target.num_threads,
        "flops": flops,
        **found.to_dict(),
        "coverage": coverage.exact if coverage else None,
        "reasons": coverage.to_dict()["reasons"] if coverage else [],
        "to_tune": command if coverage and not coverage.complete else None,
        "environment": describe_environment(),
    }


def show_comparison(target: Target, found: Comparison, flops: int, right: str = "onnxruntime") -> None:
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
    errors = f"; errors are relative to {right}'s range" if checked else ""
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
