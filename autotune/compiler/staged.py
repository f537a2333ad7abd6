"""Models whose shapes depend on the run: several programs and host functions, specialised as values become known.

The model starts as one part (`graph.frontend.part`). What can be converted of a part becomes a program; it runs,
then the host functions that follow it, and what waited for their values is the next part. A part is converted for the
types of its inputs, and for the values of those few inputs that decide shapes: such specialisations are kept in a
bounded cache, so a model that sees the same shapes again compiles nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autotune.compiler.compile import CompiledModel
from autotune.compiler.loop_guard import LoopLimit
from autotune.compiler.native_rows import RowMemory
from autotune.compiler.outline import label, least_segments, possible_hosts
from autotune.compiler.shapes import shape_uses, zeros
from autotune.compiler.specialisation import NOBODY, Observers, Specialisation, Watch
from autotune.compiler.stages import Making, Stages, Workshop
from autotune.compiler.value_feeds import as_value
from autotune.graph import one_line, verify
from autotune.graph.frontend import OnnxModel, Stage, convert_whole, known_types, whole
from autotune.graph.host import HostValue
from autotune.metadata import ModelMetadata
from autotune.runtime.executor import Array, as_feed, dtype_name
from autotune.runtime.shape_use import ShapeUse
from autotune.runtime.trace import RunTrace
from autotune.tensor.declared import ModelInput, ModelOutput, check_feeds
from autotune.tensor.dtype import DType


def compile_or_stage(
    model: OnnxModel, making: Making, stage: Callable[[OnnxModel], StagedModel] | None = None
) -> CompiledModel | StagedModel:
    """One program where that is possible.

    Args:
        stage: makes ready what is no single program; None for `StagedModel` and the same making.

    Raises:
        UnsupportedError, ModelError: what no run could bring to work is refused at once.
    """
    with one_line():
        graph = convert_whole(model)
    if graph is None:
        return StagedModel(model, making) if stage is None else stage(model)
    del model  # weights are held once: not in the file's form, nor as they were before the passes
    verify(graph)
    graph = making.optimize(graph)
    return making.compile(graph)


class StagedModel:
    """A model that becomes programs while it runs. `run` may be called from several threads.

    Args:
        model: the parsed model.
        making: how its programs are made.

    Raises:
        UnsupportedError, ModelError: what no run could bring to work is refused at once.
    """

    def __init__(self, model: OnnxModel, making: Making) -> None:
        self._model = model
        self._dtypes = {i.name: DType(i.dtype).numpy for i in model.inputs if i.is_tensor}
        self._others = {i.name: i for i in model.inputs if not i.is_tensor}
        self._fed: list[tuple[str, np.dtype[np.generic], tuple[int, ...]]] | None = None  # of the last right feeds
        workshop = Workshop(making, LoopLimit.of(making.max_memory), RowMemory(making.max_memory))
        self._workshop = workshop
        self._stages = Stages(model, whole(model), tuple(model.outputs), workshop)
        whole_form = len(known_types(model.inputs)) == len(model.inputs)
        if whole_form or not making.looked_at:
            start = self._start
            self._stages.first = self._stages.built(start) if whole_form else None

    @functools.cached_property
    def _start(self) -> Stage:
        """What it becomes as far as no run decides it."""
        return self._stages.outline(known_types(self._model.inputs))

    @property
    def inputs(self) -> tuple[ModelInput, ...]:
        """Inputs in the model's order; open dimensions are symbols or None."""
        return self._model.inputs

    @property
    def metadata(self) -> ModelMetadata:
        """What the model says about itself."""
        return self._model.metadata

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(declared.name for declared in self._model.inputs)

    @property
    def outputs(self) -> tuple[ModelOutput, ...]:
        """Outputs in the model's order, as it declares them."""
        return tuple(self._model.outputs.values())

    @property
    def host_nodes(self) -> tuple[str, ...]:
        """The nodes that run on the host: as seen in the runs so far, before the first those that may."""
        seen = self._stages.seen
        hosts = set(seen.hosts)
        if not seen.runs:
            hosts.update(self._start.hosts, possible_hosts(self._model, self._start))
        return tuple(label(self._model, index) for index in sorted(hosts))

    @property
    def segments(self) -> int:
        """How many programs a run is made of: the most seen so far, before the first run the least possible."""
        seen = self._stages.seen
        return seen.segments if seen.runs else least_segments(self._start)

    @property
    def specialisations(self) -> int:
        """How many programs are kept now, beside the first."""
        return len(self._workshop.cache)

    def shapes(self, held: set[int] | None = None) -> list[ShapeUse]:
        """The programs that are kept, by the shapes of their inputs; the first one of all runs included; then the
        memory in which native code moves rows between them.

        Args:
            held: where the weights are that programs listed before these read; theirs are added.
        """
        held = set() if held is None else held
        first, kept = self._stages.first, self._workshop.cache.values()
        own = shape_uses([*([first] if first is not None else []), *kept], held)
        inner = [use for special in kept for call in special.opened for use in call.model.shapes(held)]
        return [*own, *inner, *self._workshop.rows.uses()]

    @property
    def weights(self) -> dict[int, int]:
        """Bytes of packed weights of the programs that are kept, by where they are."""
        return {place: size for special in self._workshop.cache.values() for place, size in special.weights.items()}

    def wait(self) -> None:
        """Until no program is being made in the background."""
        self._workshop.background.wait()

    def prepare(self, extents: Mapping[str, int]) -> CompiledModel | None:
        """Make what a run with inputs of these extents begins with: all of it where shapes decide everything.

        Args:
            extents: of the open dimensions, by symbol.

        Returns:
            the program, None where there is nothing to compute before something runs on the host.

        Raises:
            InputError: an open dimension is not among them. ModelError: they make the model impossible.
        """
        return self.beginning(extents).program

    def foresee(self, exact: Sequence[Mapping[str, int]], ranged: Sequence[Mapping[str, int]] = ()) -> None:
        """Programs are known for runs of these extents of the open dimensions: no other ones need be made for them.

        Args:
            exact: for which there are programs of their own; those for `ranged` serve others, too.
        """

    def beginning(self, extents: Mapping[str, int]) -> Specialisation:
        """What a run with inputs of these extents begins with, its program linked. Arguments and errors: `prepare`."""
        found = self._stages.whole(self.checked(zeros(self._model.inputs, extents)))
        if found.program is not None:
            found.program.executor  # noqa: B018  links it
        return found

    def run(
        self, feeds: Mapping[str, object], watch: Watch | None = None, trace: RunTrace | None = None
    ) -> list[Array]:
        """Outputs in the model's order, as new arrays; a sequence is a list of arrays, an empty optional None.

        Args:
            feeds: one array per input, of its dtype and of a shape that the model allows; a list of arrays for a
                sequence, an array or None for an optional.
            watch: told of each program and each host function before it runs.
            trace: told when each kernel and each host function ran.

        Raises:
            InputError: a feed is missing, unknown, or of another dtype or shape; a value is out of its range.
            ModelError: these shapes or values make the model impossible.
        """
        observers = NOBODY if watch is None and trace is None else Observers(watch, trace)
        fed = self.like_last(feeds)
        if fed is not None:
            return self._stages.run(dict(feeds), observers, fed)  # type: ignore[arg-type,return-value]
        return self._stages.run(self.checked(feeds), observers)  # type: ignore[return-value]

    def like_last(self, feeds: Mapping[str, object]) -> object | None:
        """What is known of the last feeds, where these are arrays of the same types: they are right, too."""
        fed = self._fed
        for name, dtype, shape in fed or ():
            value = feeds.get(name)
            if not isinstance(value, np.ndarray) or value.dtype is not dtype or value.shape != shape:
                return None
        return fed if fed and len(fed) == len(feeds) and not self._others else None

    def checked(self, feeds: Mapping[str, object]) -> dict[str, HostValue]:
        """The feeds as values; types that were right in the last run are right again.

        Raises:
            InputError: they are not what the model takes.
        """
        dtypes, others = self._dtypes, self._others
        values: dict[str, HostValue] = {
            name: a if isinstance(a, np.ndarray) and name in dtypes else self._value(name, a)
            for name, a in feeds.items()
        }
        forms = [(name, a.dtype, a.shape) for name, a in values.items() if isinstance(a, np.ndarray)]
        if forms != self._fed or others:
            arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
            given = {name: (dtype_name(a), a.shape) for name, a in arrays.items() if name not in others}
            for name, declared in others.items():
                if name not in values and declared.wraps[:1] == ("optional",):
                    values[name] = None
            check_feeds(self._model.inputs, given, [name for name in others if name in values])
            self._fed = forms
        return values

    def _value(self, name: str, given: object) -> HostValue:
        """What was given for an input; nothing for one that there is not."""
        if name in self._dtypes:
            return as_feed(name, given, self._dtypes[name])
        return as_value(self._others[name], given) if name in self._others else np.empty(0)
