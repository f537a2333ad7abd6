"""`autotune explain`: one kernel laid open."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.asked import Asked
from autotune.cli.options import (
    JsonOption,
    OpOption,
)
from autotune.cli.status import working
from autotune.cli.text import facts, print_json, print_prose, print_table, size, table
from autotune.report.text import duration, percent, work

if TYPE_CHECKING:
    from autotune.report.explain import Explanation
    from autotune.report.footprint import LoopFootprint
    from autotune.target import Target


class Part(str, Enum):
    """What can be shown beside the summary."""

    nest = "nest"
    steps = "steps"
    assembly = "assembly"


def explain(
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help="An ONNX model.", show_default=False)] = None,
    node: Annotated[
        str | None,
        typer.Argument(metavar="NODE", help="One of its ONNX nodes [default: the kernel with the most to do]."),
    ] = None,
    op: OpOption = None,
    show: Annotated[
        list[Part] | None,
        typer.Option("--show", metavar="PART", help="Also `nest` (all loops), `steps`, or `assembly`; repeat."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against", metavar="CONFIG", help="How the loops differ from a config's, a template's, or `default`'s."
        ),
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="JSON", help="Explain this schedule, not the one that is used.")
    ] = None,
    template: Annotated[
        str | None, typer.Option("--template", metavar="NAME", help="Explain what this template does untuned.")
    ] = None,
    *,
    asked: Asked,
    as_json: JsonOption = False,
) -> None:
    """Say why a kernel is as fast as it is: its loops beside the caches, its code, what the cost model makes of it."""
    with working("starting"):
        from autotune.api.explain import explain as find
        from autotune.search_spaces import Config, default_config, default_of

        wanted = asked.parsed_target()
    if (model is None) == (op is None):
        raise typer.BadParameter('give one thing: MODEL, or --op TEXT such as --op "matmul a=128,768 b=768,3072"')
    chosen = None if config is None else Config.from_json(config)
    what = str(op) if model is None else model
    with working(f"compiling {what}"):
        found = find(
            what, wanted, asked.database, node=node, config=chosen, template=template, shapes=asked.shapes,
            inputs=asked.arrays(), precision=asked.precision, max_error=asked.max_error,
        )  # fmt: skip
    other = None
    if against is not None:
        if against == "default":
            rival = default_config(found.workload, wanted)
        elif against.lstrip().startswith("{"):
            rival = Config.from_json(against)
        else:
            rival = default_of(against, found.workload, wanted)
        other = find(found.workload, wanted, asked.database, config=rival)
        if found.interface is not None:
            other = type(other).of(found.workload, wanted, other.choice, found.interface)
    if as_json:
        print_json({**found.to_dict(), "difference": None if other is None else found.difference(other)})
        return
    _summary(found, wanted)
    _loops(found, wanted)
    _code(found, wanted)
    _opinions(found)
    for part in dict.fromkeys(show or ()):
        print(f"\n{_TITLES[part]}")
        print("\n".join(_lines(found, part)))
    if other is not None:
        lines = found.difference(other)
        print(f"\nloops, from {against} to this" if lines else f"\nthe loops are those of {against}")
        print("\n".join(lines))


_TITLES = {
    Part.nest: "loop nest",
    Part.steps: "steps",
    Part.assembly: "assembly, the loop with the most arithmetic marked",
}


def _summary(e: Explanation, target: Target) -> None:
    from autotune.records import Tier

    least, choice = e.limit, e.choice
    why = choice.reason if choice.tier is Tier.MISS else f"{choice.tier.value}: {choice.reason}"
    bound = "arithmetic" if least.arithmetic >= least.memory else "moving its operands"
    rows = [
        ("kernel", e.workload.describe()),
        ("target", str(target)),
        ("work", f"{work(e.workload.flops)}, at least {duration(least.seconds)} by {bound}"),
        ("schedule", f"{choice.config.template or 'stored steps'}, {why}"),
    ]
    if e.choice.seconds is not None:
        share = f"{percent(least.seconds / e.choice.seconds)} of what the limit allows"
        rows.append(("measured", f"{duration(e.choice.seconds)}, {share}"))
    knobs = e.choice.config.without("template")
    rows.append(("knobs", ", ".join(f"{name}={knobs[name]}" for name in knobs) or "none"))
    print_table(facts(*rows))


def _loops(e: Explanation, target: Target) -> None:
    shown = table(
        "loop",
        "turns",
        "a turn touches",
        "fits",
        "most of it",
        right=("turns", "a turn touches"),
        long=("loop",),
        spare=("most of it",),
    )
    for loop in e.footprints:
        largest = sorted(loop.touched.items(), key=lambda item: -item[1])[:3]
        parts = ", ".join(f"{name} {size(count)}" for name, count in largest)
        mark = f"{loop.mark} " if loop.mark else ""
        shown.add_row(
            "  " * loop.depth + mark + loop.var, str(loop.extent), size(loop.bytes), _fits(loop, target), parts
        )
    print("\nloops and what they touch")
    print_table(shown)


def _fits(loop: LoopFootprint, target: Target) -> str:
    levels = (("L1", target.l1_bytes), ("L2", target.l2_bytes), ("L3", target.l3_bytes))
    return next((name for name, held in levels if loop.bytes <= held), "memory")


def _code(e: Explanation, target: Target) -> None:
    kernel, loop = e.kernel, e.hot_loop
    registers = f"{target.num_vector_registers} vector registers"
    spills = f"{kernel.spills} vector instructions that touch the stack" if kernel.spills else "none"
    rows = [
        ("code", f"{size(len(kernel.object_code))}, {kernel.fmas} vector multiply-adds, {registers}"),
        ("spills", spills),
    ]
    if loop is not None:
        stack = f", {loop.stack} on the stack" if loop.stack else ""
        counts = f"{loop.instructions} instructions, {loop.vector} on vectors, {loop.arithmetic} of them multiply-adds"
        rows.append(("densest loop", counts + stack))
    scratch = [
        f"{size(count)} {whose}"
        for count, whose in ((kernel.shared_scratch, "shared"), (kernel.thread_scratch, "for each thread")) if count
    ]  # fmt: skip
    rows.append(("scratch", ", ".join(scratch) or "none"))
    print()
    print_table(facts(*rows))


def _opinions(e: Explanation) -> None:
    opinions = e.opinions()
    if not opinions:
        return
    shown = table("number of the nest", "here", "usual", "worth", right=("here", "usual", "worth"))
    for one in opinions:
        shown.add_row(one.name, f"{one.value:.3g}", f"{one.usual:.3g}", f"{one.factor:.2f}×")
    print()
    print_prose("what the cost model expects of it; worth: of the value here, not a random schedule's")
    print_table(shown)


def _lines(e: Explanation, part: Part) -> list[str]:
    from autotune.report.assembly import marked

    if part is Part.nest:
        return e.nest.rstrip().splitlines()
    return e.steps if part is Part.steps else marked(e.assembly, e.hot_loop)
