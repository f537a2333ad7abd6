"""Optimizer: the graph passes as a user wants them, without some of them, and with the graph written out after each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from pathlib import Path

from autotune.graph.dump import GraphDump
from autotune.graph.ir import Graph
from autotune.graph.passes import check_names, optimize


class Optimizer:
    """Runs the passes on a graph; a call per program of the model.

    Args:
        skip: names of passes to leave out.
        dump: a folder for the graph before the passes and after each change, as text and Graphviz; the second and
            further programs of a model have folders in it, `program-2` and so on.
        on_change: told of a title and the graph at the same times.

    Raises:
        ModelError: `skip` names no pass.
        InputError: while running, the folder cannot be written.
    """

    def __init__(
        self,
        skip: Collection[str] = (),
        dump: str | Path | None = None,
        on_change: Callable[[str, Graph], None] | None = None,
    ) -> None:
        check_names(skip)
        self._skip = frozenset(skip)
        self._dump = None if dump is None else Path(dump)
        self._on_change = on_change
        self._numbers = itertools.count(1)

    def __call__(self, graph: Graph) -> Graph:
        """The graph in its normal form. Raises as `optimize`, and InputError as above."""
        told = [self._on_change] if self._on_change is not None else []
        if self._dump is not None:
            number = next(self._numbers)
            told.append(GraphDump(self._dump if number == 1 else self._dump / f"program-{number}"))

        def tell(title: str, now: Graph) -> None:
            for one in told:
                one(title, now)

        tell("imported", graph)
        return optimize(graph, self._skip, tell)
