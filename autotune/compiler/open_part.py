"""Parts of a model that run on as many elements as data decides: programs for more of them serve fewer, too.

What a host function finds (boxes that are kept, elements that are not zero) is seldom as much twice. A part that has
met two different extents is from then on what a model with open dimensions is: padded, cut, or, where it cannot be
proved that this changes nothing, compiled for each.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.compiler.bucketed import BucketedModel
from autotune.compiler.open_form import Form, OpenForm
from autotune.compiler.specialisation import NOBODY, Bound, Observers
from autotune.compiler.stages import Making
from autotune.errors import AutotuneError
from autotune.graph.frontend import OnnxModel, Part, Stage
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.beginning import NoModel, Told, beginning_model
from autotune.graph.frontend.buckets import CannotPad, elements_of, padding_of
from autotune.graph.frontend.buckets.facts import Extent, Shifted
from autotune.graph.host import HostValue
from autotune.ops.workload import Workload
from autotune.runtime.executor import Array, dtype_name
from autotune.runtime.open_axes import OpenAxes
from autotune.target import Target


@dataclass(frozen=True, slots=True)
class Before:
    """What a program that was made for one form of a part tells.

    Attributes:
        workloads: of its kernels.
        seconds: that it took to make.
        takes: bytes of the memory that a run of it takes.
    """

    form: Form
    workloads: Sequence[Workload]
    seconds: float
    takes: int


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
        return Bound(self.results, self.fresh, takes=self.takes)

    def results(self, values: Mapping[str, HostValue], observers: Observers = NOBODY) -> Sequence[HostValue]:
        """Raises as `StagedModel.run`."""
        found = self.model.run({name: values[name] for name in self.reads}, observers.watch, observers.trace)
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


def open_call(
    model: OnnxModel,
    part: Part,
    stage: Stage,
    values: Mapping[str, HostValue],
    decisive: Sequence[str],
    form: OpenForm,
    before: Before,
    making: Making,
    target: Target,
    *,
    all_open: bool = False,
) -> OpenCall:
    """What runs the program of a stage for all runs that fit a form.

    Args:
        stage: what the part becomes for the values of one of these runs.
        values: those of the part's inputs. `decisive`: those that it is made for.
        before: of a run of another form that fits, too.
        all_open: there must not be a program for each extent of one of several.

    Raises:
        NoModel: there must be a program for each.
    """
    if stage.graph is None:
        raise NoModel("there is nothing to compute")
    results = tuple(output.name for output in stage.graph.outputs if not output.complaint)
    behind = _behind(model, part, form)
    following = [name for name in stage.constants if name in behind]  # whatever they were in the runs so far
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray) and value.dtype != object}
    inputs = {name: (dtype_name(a), form.dims.get(name, a.shape)) for name, a in arrays.items()}
    told = {
        name: Told(elements, dtype_name(arrays[name]), arrays[name].shape) for name, elements in form.elements.items()
    }
    known = {name: arrays[name].copy() for name in decisive if name in arrays and name not in told}
    extents = form.extents(values) or {}
    try:
        tells: list[Tells] = []
        if following:
            whole = beginning_model(model, part, (*results, *following), inputs, known, told)
            for name, elements in elements_of(whole, following).items():
                array = stage.constants[name]
                if elements is None or len(elements) != array.size or array.dtype.kind not in "iuf":
                    raise NoModel(f"nobody knows what '{name}' tells of the extents")
                tells.append(Tells(name, elements, array.dtype, array.shape))
                if not np.array_equal(array, tells[-1].of(extents)):
                    raise NoModel(f"'{name}' tells something else than the extents")
        opened = beginning_model(model, part, results, inputs, known, told)
        if all_open:
            _refuse_one(opened, model, part)
        bucketed = BucketedModel(opened, making, target)
    except (CannotPad, AutotuneError) as error:
        raise NoModel(str(error)) from error
    if not bucketed.axes.open.free:
        raise NoModel("; ".join(bucketed.axes.exact.values()) or "nothing of it is open")
    past = form.extents_of(before.form)
    bucketed.expect(past, before.workloads, before.seconds)
    last = opened.nodes[-1]
    return OpenCall(
        form, bucketed, bucketed.input_names, (*results, *(one.name for one in tells)), tuple(tells),
        before.takes / math.prod(past.values()), NodeAttributes(last.proto, last.opset, opened.folder).label,
    )  # fmt: skip


def _refuse_one(opened: OnnxModel, model: OnnxModel, part: Part) -> None:
    """Name a node of the part because of which a dimension cannot be padded.

    Raises:
        NoModel: there is one.
    """
    for symbol in OpenAxes(opened.inputs, ()).symbols:
        try:
            padding_of(opened, symbol)
        except CannotPad as error:
            if error.place is None:
                raise
            entry = opened.nodes[error.place]
            raise NoModel(str(error), next((n for n in part.nodes if model.nodes[n] is entry), None)) from error


def _behind(model: OnnxModel, part: Part, form: OpenForm) -> set[str]:
    """Names of values that may depend on what is open."""
    found = {*form.dims, *form.elements}
    for index in part.nodes:
        entry = model.nodes[index]
        if not found.isdisjoint(entry.reads):
            found.update(entry.writes)
    return found


def _number(element: Extent, extents: Mapping[str, int]) -> int:
    """What an element is in a run."""
    if isinstance(element, Shifted):
        return extents.get(element.symbol, 0) + element.by
    return extents.get(element, 0) if isinstance(element, str) else element or 0
