"""`autotune bench`: our latency and throughput beside other engines', in the same minutes on the same threads."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.asked import Asked
from autotune.cli.asked_target import with_threads
from autotune.cli.bench_table import csv_lines, show_sweep, show_timing, values_of
from autotune.cli.loudness import note
from autotune.cli.options import (
    AgainstOption,
    JsonOption,
    RunnableArgument,
    TrustOption,
)
from autotune.cli.status import working
from autotune.cli.text import print_json

if TYPE_CHECKING:
    from autotune.api.bench import Timing


def bench(
    model: RunnableArgument,
    against: AgainstOption = "onnxruntime,openvino",
    streams: Annotated[
        int, typer.Option("--streams", min=1, help="Sessions at once, which share the threads; each has its own cores.")
    ] = 1,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often each engine has its turn.")] = 20,
    for_time: Annotated[
        str | None, typer.Option("--duration", metavar="TIME", help="How long to time, instead of rounds: 30s, 2m.")
    ] = None,
    warm_up: Annotated[
        str | None, typer.Option("--warm-up", metavar="TIME", help="How long each engine runs first [default: a call].")
    ] = None,
    sweep_threads: Annotated[
        str | None, typer.Option("--sweep-threads", metavar="N,...", help="Repeat with each number of threads.")
    ] = None,
    sweep_batch: Annotated[
        str | None,
        typer.Option("--sweep-batch", metavar="N,...", help="Repeat with each extent of the open first dimension."),
    ] = None,
    untuned: Annotated[bool, typer.Option("--untuned", help="Time our untuned program as well.")] = False,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Check answers against float64 arithmetic, which may take a minute."),
    ] = False,
    *,
    asked: Asked,
    trust: TrustOption = None,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV: a line for each engine in each setting.")] = False,
) -> None:
    """Time a model in turn with other engines, and check the answers."""
    if as_json and as_csv:
        raise typer.BadParameter("--json and --csv exclude each other: give one of them")
    if asked.threads is not None and sweep_threads is not None:
        raise typer.BadParameter("--threads and --sweep-threads exclude each other: give one of them")
    with working("starting"):
        from autotune.api.bench import Ask, bench_model, settings
        from autotune.api.feeds import shapes_with
        from autotune.engines.peers import peer_names
        from autotune.runtime.signature import Trust

        asked.note_compiled(model, threads=False)  # those are checked
        counts = [asked.threads] if asked.threads is not None else _numbers("--sweep-threads", sweep_threads)
        every = settings(model, asked.parsed_target(), counts, streams, _numbers("--sweep-batch", sweep_batch))
    given = asked.arrays()
    ask = Ask(
        model, asked.database, shapes_with(asked.shapes, given), given, peer_names(against), rounds,
        _seconds("--duration", for_time), _seconds("--warm-up", warm_up) or 0.0, untuned, exact, asked.precision,
        asked.max_error,
        None if not trust else Trust.load(trust),
    )  # fmt: skip

    def command(timing: Timing) -> str:
        threads = timing.setting.each.num_threads if counts or streams > 1 else None
        return asked.tune_command(model, with_threads(asked.target, threads))

    found = []
    for setting in every:
        with working(f"timing {model}"):
            found.append(bench_model(ask, setting, note))
        refuse_wrong(found[-1], values_of(model, found[-1], command(found[-1])) if as_json else None)
    sweep = sweep_threads is not None or sweep_batch is not None
    if as_json:
        values = [values_of(model, timing, command(timing)) for timing in found]
        print_json({"model": str(model), "settings": values} if sweep else values[0])
    elif as_csv:
        print("\n".join(csv_lines(model, found)))
    elif sweep:
        show_sweep(found)
    else:
        show_timing(found[0], command(found[0]))


def _numbers(option: str, text: str | None) -> list[int]:
    """[1, 2, 4] of "1,2,4"; nothing of None."""
    if text is None:
        return []
    numbers = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if 0 in numbers:
        raise typer.BadParameter(f"{option} {text!r} is no list of numbers from 1 on; write for example {option} 1,2,4")
    return numbers


def _seconds(option: str, text: str | None) -> float | None:
    from autotune.errors import ConfigError
    from autotune.search.budget import Budget

    if text is None:
        return None
    try:
        seconds = Budget.parse(text).seconds
    except ConfigError:
        seconds = None
    if seconds is None:
        raise typer.BadParameter(f"{option} {text!r} is no time; write for example {option} 10s")
    return seconds


def refuse_wrong(timing: Timing, values: Mapping[str, object] | None = None) -> None:
    """Ends the command where an answer of ours cannot be right; how far off 16 or 8 bits are is for the user to judge.

    Args:
        values: all that was found, which the error then carries.
    """
    from autotune.api.bench import F32
    from autotune.engines.compare import ALLOWED_ERROR
    from autotune.errors import EngineError

    for result in timing.comparison.results:
        exact = not timing.rounded and (not timing.narrow or result.name == F32)
        allowed = ALLOWED_ERROR if exact else sys.float_info.max
        if result.name.startswith("autotune") and result.max_error is not None and result.max_error > allowed:
            raise EngineError(
                f"{result.name}'s answer is off by {result.max_error:.1e} of the output's range; please report it",
                values=values,
            )
