"""The graphs of the programs that serve ranges of a model's shapes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from autotune.compiler.axes import Axes
from autotune.compiler.sizes import Sizes
from autotune.errors import ModelError
from autotune.graph import Graph, one_line, partition, verify
from autotune.graph.frontend import OnnxModel, convert_whole
from autotune.runtime.open_axes import Extents
from autotune.target import Target
from autotune.tensor.declared import bind_symbols
from autotune.tensor.shape_range import ShapeRange, extents_of_range, with_symbols


@dataclass(frozen=True)
class ShapePrograms:
    """
    Attributes:
        weights: how often each program runs, by its extents, those with the most elements first.
    """

    axes: Axes
    sizes: Sizes
    weights: dict[Extents, float]
    _optimize: Callable[[Graph], Graph]

    @classmethod
    def of(
        cls, model: OnnxModel, wanted: Sequence[ShapeRange], target: Target, optimize: Callable[[Graph], Graph]
    ) -> ShapePrograms:
        """Those for these shapes.

        Args:
            optimize: runs the graph passes.

        Raises:
            ModelError: the model cannot have these shapes, they are too many, or values decide what its programs are.
        """
        model = replace(model, inputs=with_symbols(model.inputs))
        ranges = [extents_of_range(model.inputs, one) for one in wanted]
        axes = Axes.of(model)
        found = cls(axes, Sizes(axes.open, target), {}, optimize)
        largest = {s: max(one[s][-1] for one in ranges) for s in axes.open.symbols}
        graph = found.graph(tuple(largest.values()))
        kernels = (group.workload for group in partition(graph) if not group.is_view)
        sizes = found.sizes.told(tuple(largest.values()), kernels)
        weights: dict[Extents, float] = defaultdict(float)
        for one, extents in zip(wanted, ranges):
            for bucket, share in sizes.programs(extents, axes.exact).items():
                weights[bucket] += one.weight * share
        order = sorted(weights, key=lambda bucket: (-math.prod(bucket), bucket))
        return replace(found, sizes=sizes, weights={bucket: weights[bucket] for bucket in order})

    def graph(self, extents: Extents) -> Graph:
        """The program of these extents, optimised.

        Raises:
            ModelError: values of the run decide what it is, or the extents make it impossible.
        """
        symbols, masked = self.axes.open.symbols, self.axes.masked
        with one_line():
            graph = convert_whole(replace(masked, inputs=bind_symbols(masked.inputs, dict(zip(symbols, extents)))))
        if graph is None:
            raise ModelError(
                "values of the run decide what the programs of this model are, and shapes do not: give one shape,"
                " or the inputs that decide as constants (--fix NAME=FILE.npy)"
            )
        verify(graph)
        return self._optimize(graph)

    def __iter__(self) -> Iterator[tuple[Extents, Graph]]:
        """Each program, made when it is asked for."""
        return ((extents, self.graph(extents)) for extents in self.weights)
