"""What is known of the dimensions of a model's values while its nodes are being written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from autotune.errors import AutotuneError
from autotune.graph.frontend.buckets.analysis import PASSING, Analysis, asked, constant_of, of_constant
from autotune.graph.frontend.buckets.at import rule_of
from autotune.graph.frontend.buckets.facts import CannotPad, Extent, Fact, NeedsZeros
from autotune.graph.frontend.buckets.types import inferred_types
from autotune.graph.frontend.entry import Entry
from autotune.graph.frontend.model import OnnxModel
from autotune.graph.ir import Array
from autotune.tensor.dtype import DType


class Dimensions:
    """Dimensions by their symbols, and some open ones as far as is known of padding them: whether padding may go
    through a node or not, its results have such dimensions.

    Args:
        model: as it was; `self.model` is what has been written.
        symbols: of those that are followed further.

    Raises:
        CannotPad: an input is no tensor of known rank, or ONNX's inference refuses the model.
    """

    def __init__(self, model: OnnxModel, symbols: Collection[str]) -> None:
        self.model = replace(model, initializers=dict(model.initializers), nodes=[], _expanded={})
        self._types = inferred_types(model)
        self._each = [Analysis(self.model, symbol, types=self._types) for symbol in (symbols or ("",))]
        for one in self._each:
            one.begin()

    def constant(self, name: str, array: Array) -> None:
        self.model.initializers[name] = array
        self._know(name, array)

    def append(self, entry: Entry) -> None:
        self.model.nodes.append(entry)
        array = constant_of(self.model, entry)
        if array is not None:
            self._know(entry.writes[0], array)
            return
        index = len(self.model.nodes) - 1
        for one in self._each:
            one.makers.update(dict.fromkeys(entry.writes, index))
            for name, fact in zip(entry.proto.output, _results(one, index)):
                if name:
                    one.facts[name] = one.completed(name, fact)

    def dims(self, name: str) -> tuple[Extent, ...] | None:
        """None where not even their number is known."""
        found = []
        for one in self._each:
            fact = one.facts.get(name, Fact(None))
            if fact.dims is not None:
                longer = {len(fact.dims) + place for place, _ in fact.behind}
                found.append([None if n in longer else extent for n, extent in enumerate(fact.dims)])
        if len({len(dims) for dims in found}) != 1:
            return None
        return tuple(next((n for n in extents if n is not None), None) for extents in zip(*found))

    def elements(self, name: str) -> tuple[Extent, ...] | None:
        """What a list of integers holds."""
        found = (one.facts[name].elements for one in self._each if name in one.facts)
        return min((e for e in found if e is not None), key=lambda e: e.count(None), default=None)

    def dtype(self, name: str) -> str | None:
        """Of a value of the model as it was; None where nobody knows."""
        array = self.array(name)
        return self._types.get(name, (None, None))[0] if array is None else DType.of(array.dtype).value

    def array(self, name: str) -> Array | None:
        """Of a constant."""
        return self._each[0].arrays.get(name)

    def _know(self, name: str, array: Array) -> None:
        for one in self._each:
            one.arrays[name], one.facts[name] = array, of_constant(array)


def _results(analysis: Analysis, index: int) -> list[Fact]:
    """Facts of the results of a node, whether its rule allows padding or not."""
    at = analysis.at(index)
    known = rule_of(at.node)
    unknown = [Fact(analysis.static(name)) for name in at.node.proto.output]
    if known is None or (at.node.op not in PASSING and any(fact is not None and fact.behind for fact in at.facts)):
        return unknown
    for one in (at, replace(at, symbol="", masks={}, told={})):
        try:
            return asked(known, one)
        except (CannotPad, NeedsZeros, AutotuneError):
            continue
    return unknown
