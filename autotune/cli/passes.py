"""`autotune passes`: the graph passes, and what each does to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.options import JsonOption, ShapeOption, parse_shapes
from autotune.cli.text import print_json, print_table, table


def passes(
    model: Annotated[Path | None, typer.Argument(metavar="[MODEL]", help="An ONNX model.", show_default=False)] = None,
    shape: ShapeOption = None,
    skip: Annotated[list[str] | None, typer.Option("--skip", metavar="PASS", help="Leave a pass out; repeat.")] = None,
    dump_graph: Annotated[
        Path | None,
        typer.Option("--dump-graph", metavar="DIR", help="Write the graph after each change, as text and Graphviz."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the graph passes; with a model, what each of them changes in it."""
    from autotune.graph import Graph, load_model, optimize
    from autotune.graph.dump import GraphDump
    from autotune.graph.passes import PASSES, describe

    if model is None:
        found = [describe(name) for name in PASSES]
        if as_json:
            print_json(
                [{"pass": d.name, "does": d.summary, "requires": d.requires, "ensures": d.ensures} for d in found]
            )
            return
        shown = table("pass", "does", "ensures")
        for d in found:
            shown.add_row(d.name, d.summary, d.ensures)
        print_table(shown)
        return
    graph = load_model(model, parse_shapes(shape))
    dump = GraphDump(dump_graph) if dump_graph is not None else None
    if dump is not None:
        dump("imported", graph)
    changes: list[tuple[str, int]] = [("imported", len(graph.nodes))]

    def note(name: str, after: Graph) -> None:
        changes.append((name, len(after.nodes)))
        if dump is not None:
            dump(name, after)

    optimize(graph, skip or (), note)
    if as_json:
        print_json([{"pass": name, "nodes": nodes} for name, nodes in changes])
        return
    shown = table("pass", "nodes", right=("nodes",))
    for name, nodes in changes:
        shown.add_row(name, str(nodes))
    print_table(shown)
    if dump_graph is not None:
        print(f"graphs in {dump_graph}; draw one with: dot -Tsvg FILE.dot -o graph.svg")
