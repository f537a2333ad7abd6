"""Graphs as text and as Graphviz drawings, one pair of files after each pass that changed something."""

from __future__ import annotations

from pathlib import Path

from autotune.errors import InputError
from autotune.graph.ir import Graph, constant_value, format_graph


class GraphDump:
    """Writes numbered files into a folder: `00-imported.txt`, `00-imported.dot`, `01-fold-constants.txt`, ...

    Call it with a title and a graph; `optimize(graph, on_change=dump)` does so after each change.

    Raises:
        InputError: the folder cannot be made or written to.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def __call__(self, title: str, graph: Graph) -> None:
        stem = f"{self._count:02}-{title}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / f"{stem}.txt").write_text(format_graph(graph) + "\n")
            (self._folder / f"{stem}.dot").write_text(to_dot(graph))
        except OSError as error:
            raise InputError(f"cannot write the graph to {self._folder}: {error.strerror}") from error
        self._count += 1


def to_dot(graph: Graph) -> str:
    """The graph in Graphviz' language; constants are shown where they are read."""
    lines = ["digraph {", '  node [shape=box, fontname="monospace"];']
    lines += [f"  {_quoted(value.name)} [label={_quoted(str(value))}, shape=ellipse];" for value in graph.inputs]
    for node in graph.nodes:
        attrs = "".join(f"\n{key}={value}" for key, value in node.attrs)
        held = [constant_value(name, graph.constants[name]) for name in node.inputs if name in graph.constants]
        weights = "".join(f"\n{value.dtype}{list(value.shape)}" for value in held)
        shape = f"{node.output.dtype}{list(node.output.shape)}"
        lines.append(f"  {_quoted(node.name)} [label={_quoted(f'{node.op} {shape}{attrs}{weights}')}];")
        for name in node.inputs:
            if name not in graph.constants:
                lines.append(f"  {_quoted(name)} -> {_quoted(node.name)};")
    for output in graph.outputs:
        result = f"output {output.name}"
        lines.append(f"  {_quoted(result)} [shape=ellipse];")
        lines.append(f"  {_quoted(output.value)} -> {_quoted(result)};")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
