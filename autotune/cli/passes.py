"""`autotune passes`: the graph passes, and what each does to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.options import DumpGraphOption, JsonOption, ShapeOption, SkipPassOption, parse_shapes
from autotune.cli.status import working
from autotune.cli.text import facts, print_json, print_table, table


def passes(
    model: Annotated[Path | None, typer.Argument(metavar="[MODEL]", help="An ONNX model.", show_default=False)] = None,
    shape: ShapeOption = None,
    skip_pass: SkipPassOption = None,
    dump_graph: DumpGraphOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the graph passes; with a model, what each of them changes in it."""
    with working("starting"):
        from autotune.graph import load_model
        from autotune.graph.optimizer import Optimizer
        from autotune.graph.passes import PASSES, describe

    if model is None:
        found = [describe(name) for name in PASSES]
        if as_json:
            print_json(
                [{"pass": d.name, "does": d.summary, "requires": d.requires, "ensures": d.ensures} for d in found]
            )
            return
        print_table(facts(*((d.name, d.summary) for d in found)))
        return
    changes: list[tuple[str, int]] = []
    optimizer = Optimizer(skip_pass or (), dump_graph, lambda name, after: changes.append((name, len(after.nodes))))
    with working(f"passes on {model}"):
        optimizer(load_model(model, parse_shapes(shape)))
    if as_json:
        print_json([{"pass": name, "nodes": nodes} for name, nodes in changes])
        return
    shown = table("pass", "nodes", right=("nodes",))
    for name, nodes in changes:
        shown.add_row(name, str(nodes))
    print_table(shown)
    if dump_graph is not None:
        print(f"graphs in {dump_graph}; draw one with: dot -Tsvg FILE.dot -o graph.svg")
