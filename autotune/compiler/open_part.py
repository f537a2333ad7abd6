"""Parts of a model that run on as many elements as data decides: programs for more of them serve fewer, too.

What a host function finds (boxes that are kept, elements that are not zero) is seldom as much twice. A part that has
met two different extents is from then on a model with open dimensions, one for all results that share one; `decided`
says what becomes of it where padding it cannot be proved to change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from autotune.compiler.bound_open import BoundOpen
from autotune.compiler.bucketed import BucketedModel
from autotune.compiler.open_form import OpenForm
from autotune.compiler.specialisation import NOBODY, Bound, Observers
from autotune.compiler.stages import Making
from autotune.compiler.value_forms import digest, is_tensor
from autotune.errors import AutotuneError
from autotune.graph import partition
from autotune.graph.frontend import OnnxModel, Part, Stage, convert_whole
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.beginning import NoModel, Told, beginning_model
from autotune.graph.frontend.buckets import CannotPad, elements_of, padding_of
from autotune.graph.frontend.buckets.facts import Extent, number_of, terms_of
from autotune.graph.frontend.entry import Entry
from autotune.graph.host import HostValue
from autotune.runtime.executor import Array, dtype_name
from autotune.runtime.open_axes import OpenAxes
from autotune.target import Target
from autotune.tensor.declared import bind_symbols

MOST_SYMBOLS = 2
"""Open dimensions of one program: the extents of more hardly come together twice."""


@dataclass(frozen=True, slots=True)
class Tells:
    """A list of integers, some of which are extents that data decides."""

    name: str
    elements: tuple[Extent, ...]
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]

    def of(self, extents: Mapping[str, int]) -> Array:
        """What it holds in a run."""
        return np.asarray([_number(one, extents) for one in self.elements], self.dtype).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class OpenCall:
    """What programs compute of a stage, for any extents that data decides: a `Call`.

    Attributes:
        reads: inputs of the model.
        writes: its outputs, and then what extents tell.
        each: bytes of the memory that a run takes, by the product of all extents.
    """

    form: OpenForm
    model: BucketedModel
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    tells: tuple[Tells, ...]
    each: float
    label: str

    @property
    def fresh(self) -> bool:
        return True

    def takes(self, values: Mapping[str, HostValue]) -> int:
        return int(self.each * math.prod((self.form.extents(values) or {}).values()))

    def step(self, values: Mapping[str, HostValue], observers: Observers) -> OpenRun:
        return OpenRun(self, values, observers)

    def bind(self, known: Mapping[str, HostValue], fixed: Collection[str]) -> Bound:
        """The call on a way."""
        alone = BoundOpen(self.model, self.reads, [name for name in self.reads if name in self.form.dims])

        def results(values: Mapping[str, HostValue]) -> Sequence[HostValue]:
            found = alone.results(values)  # type: ignore[arg-type]  # what a model with open dimensions reads are tensors
            return self.results(values) if found is None else self._told(found, values)

        return Bound(results, self.fresh, takes=self.takes, open=None if self.tells else alone)

    def results(self, values: Mapping[str, HostValue], observers: Observers = NOBODY) -> Sequence[HostValue]:
        """Raises as `StagedModel.run`."""
        feeds = {name: values[name] for name in self.reads}
        return self._told(self.model.run(feeds, observers.watch, observers.trace), values)

    def _told(self, found: Sequence[HostValue], values: Mapping[str, HostValue]) -> Sequence[HostValue]:
        """What programs gave, and what extents tell."""
        if not self.tells:
            return found
        extents = self.form.extents(values) or {}
        return [*found, *(one.of(extents) for one in self.tells)]


@dataclass(frozen=True, slots=True)
class OpenRun:
    """The call on the values of a run."""

    call: OpenCall
    values: Mapping[str, HostValue]
    observers: Observers

    @property
    def label(self) -> str:
        return self.call.label

    def run(self) -> Sequence[HostValue]:
        return self.call.results(self.values, self.observers)


@dataclass(frozen=True)
class Opening:
    """A part, and values of one of the runs that it is to be opened for.

    Attributes:
        values: of the part's inputs. `decisive`: names of those that it is made for.
        form: that the values fit.
        seconds: that it took to make a program for one other run. `takes`: bytes of the memory of a run of that, and
            `others`, its extents.
        kept: models of an earlier form, by what they compute; those of this form afterwards.
    """

    model: OnnxModel
    part: Part
    values: Mapping[str, HostValue]
    decisive: Sequence[str]
    form: OpenForm
    seconds: float
    takes: int
    others: Mapping[str, int]
    kept: dict[Hashable, BucketedModel]

    def calls(self, stage: Stage, making: Making, target: Target) -> tuple[OpenCall, ...]:
        """What runs the program of a stage for all runs that fit the form: a call for all results that have an open
        dimension in common.

        Args:
            stage: what the part becomes for the values.

        Raises:
            NoModel: there must be a program for each; it may name nodes without which it might be possible.
        """
        if stage.graph is None:
            raise NoModel("there is nothing to compute")
        results = [output.name for output in stage.graph.outputs if not output.complaint]
        try:
            tells = self._tells(stage, results)
            groups = list(self._groups(results))
            made: dict[Hashable, BucketedModel] = {}
            calls = [self._call(names, making, target, len(groups), made) for names in groups]
        except (CannotPad, AutotuneError) as error:
            raise NoModel(str(error)) from error
        self.kept.clear()
        self.kept.update(made)
        calls[0] = replace(calls[0], tells=tells, writes=(*calls[0].writes, *(one.name for one in tells)))
        return tuple(calls)

    @cached_property
    def _arrays(self) -> Mapping[str, Array]:
        return {name: value for name, value in self.values.items() if is_tensor(value)}

    @cached_property
    def _extents(self) -> Mapping[str, int]:
        return self.form.extents(self.values) or {}

    @cached_property
    def _symbols(self) -> Mapping[str, frozenset[str]]:
        """The open dimensions on whose extents a value may depend, by name; those on none left out."""
        found: dict[str, frozenset[str]] = {}
        for name, places in (*self.form.dims.items(), *self.form.elements.items()):
            found[name] = frozenset(place for place in places if isinstance(place, str))
        for index in self.part.nodes:
            entry = self.model.nodes[index]
            read = frozenset().union(*(found[name] for name in entry.reads if name in found))
            if read:
                found.update(dict.fromkeys(entry.writes, read))
        return found

    def _model(self, results: Sequence[str]) -> OnnxModel:
        """What leads to these."""
        arrays, form = self._arrays, self.form
        inputs = {name: (dtype_name(a), form.dims.get(name, a.shape)) for name, a in arrays.items()}
        told = {n: Told(elements, dtype_name(arrays[n]), arrays[n].shape) for n, elements in form.elements.items()}
        known = {name: arrays[name].copy() for name in self.decisive if name in arrays and name not in told}
        return beginning_model(self.model, self.part, results, inputs, known, told)

    def _tells(self, stage: Stage, results: Sequence[str]) -> tuple[Tells, ...]:
        """The constants of a stage that depend on extents, whatever they were in the runs so far."""
        names = [name for name in stage.constants if name in self._symbols]
        if not names:
            return ()
        found: list[Tells] = []
        for name, elements in elements_of(self._model((*results, *names)), names).items():
            array = stage.constants[name]
            if elements is None or len(elements) != array.size or array.dtype.kind not in "iuf":
                raise NoModel(f"nobody knows what '{name}' tells of the extents")
            found.append(Tells(name, elements, array.dtype, array.shape))
            if not np.array_equal(array, found[-1].of(self._extents)):
                raise NoModel(f"'{name}' tells something else than the extents")
        return tuple(found)

    def _groups(self, results: Sequence[str]) -> Iterator[list[str]]:
        """The results, those together that have an open dimension in common.

        Raises:
            NoModel: one has so many that their extents hardly come together twice.
        """
        groups: list[tuple[frozenset[str], list[str]]] = []
        for name in results:
            symbols, names = self._symbols.get(name, frozenset[str]()), [name]
            alike = [group for group in groups if group[0] & symbols or not group[0] | symbols]
            for group in alike:
                symbols, names = symbols | group[0], [*group[1], *names]
                groups.remove(group)
            groups.append((symbols, names))
        for symbols, names in groups:
            if len(symbols) > MOST_SYMBOLS:
                joins = (n for n in self.part.nodes if self._joins(self.model.nodes[n]))
                raise NoModel(f"{len(symbols)} dimensions lead to '{names[0]}'", frozenset(list(joins)[:1]))
            yield names

    def _joins(self, entry: Entry) -> bool:
        return any(len(self._symbols.get(name, ())) > MOST_SYMBOLS for name in entry.writes)

    def _call(
        self,
        results: Sequence[str],
        making: Making,
        target: Target,
        groups: int,
        made: dict[Hashable, BucketedModel],
    ) -> OpenCall:
        opened = self._model(results)
        key = self._key(opened)
        bucketed = self.kept.get(key)  # another run may be at it, too
        if bucketed is None:
            bucketed = self.kept[key] = self._bucketed(opened, making, target, groups)
        made[key] = bucketed
        last = opened.nodes[-1]
        return OpenCall(
            self.form, bucketed, bucketed.input_names, tuple(results), (),
            self.takes / max(math.prod(self.others.values()), 1) / groups,
            NodeAttributes(last.proto, last.opset, opened.folder).label,
        )  # fmt: skip

    def _key(self, opened: OnnxModel) -> Hashable:
        """What tells a model from others of the part: symbols may have other names."""
        places: dict[str, int] = {}
        inputs = tuple(
            (
                i.name,
                i.dtype,
                *(-1 - places.setdefault(d, len(places)) if isinstance(d, str) else d for d in i.dims or ()),
            )
            for i in opened.inputs
        )
        told = tuple(
            (n, *(places.get(d, -1) if isinstance(d, str) else d for d in e)) for n, e in self.form.elements.items()
        )
        known = tuple((name, digest(self.values[name])) for name in self.decisive if name not in self.form.elements)
        return tuple(opened.outputs), inputs, told, known

    def _bucketed(self, opened: OnnxModel, making: Making, target: Target, groups: int) -> BucketedModel:
        bucketed = BucketedModel(opened, making, target)
        axes = bucketed.axes
        if axes.exact:
            raise NoModel("; ".join(axes.exact.values()), self._refusing(opened))
        extents = {symbol: max(self._extents[symbol], 1) for symbol in axes.open.symbols}  # of nothing nothing is told
        graph = convert_whole(replace(opened, inputs=bind_symbols(opened.inputs, extents)))
        if graph is None:
            raise NoModel("what it becomes depends on its values")
        workloads = [group.workload for group in partition(making.optimize(graph)) if not group.is_view]
        bucketed.expect(extents, workloads, self.seconds / groups)
        return bucketed

    def _refusing(self, opened: OnnxModel) -> frozenset[int]:
        """The nodes of the part that are why dimensions cannot be padded, the first of each."""
        entries: list[Entry] = []
        for symbol in OpenAxes(opened.inputs, ()).symbols:
            try:
                padding_of(opened, symbol)
            except CannotPad as error:
                if error.place is not None:
                    entries.append(opened.nodes[error.place])
        return frozenset(n for n in self.part.nodes if any(self.model.nodes[n] is entry for entry in entries))


def _number(element: Extent, extents: Mapping[str, int]) -> int:
    """What an element is in a run."""
    return sum(extents.get(symbol, 0) * factor for symbol, factor in terms_of(element).items()) + number_of(element)
