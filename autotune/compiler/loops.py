"""Loop, Scan and SequenceMap whose steps the run decides: their body is run step by step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from autotune.compiler.fixed_loop import BodyForm, FixedLoop
from autotune.compiler.loop_guard import LoopGuard
from autotune.compiler.native_loop import again, held, native_loop
from autotune.compiler.native_steps import Taken
from autotune.compiler.padded_body import PaddedBody
from autotune.compiler.specialisation import NOBODY, Bound, Observers, ProgramStep, Step
from autotune.compiler.stages import Stages, Workshop
from autotune.errors import InputError, ModelError
from autotune.graph.frontend import OnnxModel
from autotune.graph.frontend.appended import Appended, appended, without
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.body import body_model
from autotune.graph.frontend.cuts import cuts_of
from autotune.graph.frontend.inputs import declared_type
from autotune.graph.frontend.part import Body
from autotune.graph.frontend.unroll import ScanForm, body_of, check_loop
from autotune.graph.host import HostValue, described
from autotune.runtime.executor import Array
from autotune.tensor.dtype import DType

SETTLED = 1  # steps after which nothing new has to be compiled where growing values are only moved
NOTHING: Mapping[str, HostValue] = {}
LONGEST = 2**62  # trip counts beyond are how exporters write that there is none


@dataclass(frozen=True, slots=True)
class LoopBody:
    """What runs the body of a loop.

    Attributes:
        graph: the body as the model has it.
        stages: give its outputs.
        tails: carried values that are only appended to.
        of_tails: give what is appended instead of the whole; None where there are no tails.
        grown: carried values that are appended to, and read as a whole.
        padded: gives what is appended to both, and looks up slices in a window; None where there is neither.
    """

    graph: onnx.GraphProto
    stages: Stages
    tails: tuple[Appended, ...]
    of_tails: Stages | None
    grown: tuple[Appended, ...]
    padded: PaddedBody | None

    @staticmethod
    def of(
        model: OnnxModel, body: Body, stages: Callable[[Body, tuple[str, ...]], Stages], workshop: Workshop
    ) -> LoopBody:
        node = model.attributes(body.index)
        graph = body_of(node)
        if node.op == "Loop":
            check_loop(node, graph)
        elif node.op == "Scan":
            ScanForm.of(node)
        elif len(graph.input) != len(node.proto.input) or len(graph.output) < len(node.proto.output):
            raise ModelError(f"{node.label}: its inputs and outputs do not fit the body")
        results = tuple(info.name for info in graph.output)
        found = appended(graph, 2, model.initializers) if node.op == "Loop" else ()
        tails, grown = tuple(one for one in found if not one.read), tuple(one for one in found if one.read)
        of_tails = stages(body, without(results, tails, 2)) if tails else None
        padded = None
        if node.op == "Loop":
            items = without(results, found, 2)
            inner, part = body_model(model, body, items)
            cuts = () if grown else cuts_of(inner)
            padded = PaddedBody(inner, part, items, workshop, cuts) if grown or cuts else None
        return LoopBody(graph, stages(body, results), tails, of_tails, grown, padded)


@dataclass(frozen=True, slots=True)
class LoopCall:
    """A loop of a specialisation.

    Attributes:
        reads: names of its inputs; None where one is left out.
        constants: those of its inputs that are initializers.
        writes: names of its outputs.
        needs: what the body needs of the values around it.
    """

    node: NodeAttributes
    reads: tuple[str | None, ...]
    constants: Mapping[str, Array]
    writes: tuple[str, ...]
    needs: Body
    body: LoopBody
    workshop: Workshop

    @staticmethod
    def of(model: OnnxModel, needs: Body, body: LoopBody, workshop: Workshop) -> LoopCall:
        node = model.attributes(needs.index)
        reads = tuple(name or None for name in node.proto.input)
        constants = {name: model.initializers[name] for name in reads if name and name in model.initializers}
        return LoopCall(node, reads, constants, tuple(node.proto.output), needs, body, workshop)

    @property
    def fresh(self) -> bool:
        return True

    def takes(self, values: Mapping[str, HostValue]) -> int:
        return 0  # its guard sees to that

    def step(self, values: Mapping[str, HostValue], observers: Observers) -> LoopRun:
        inputs = tuple(
            None if name is None else values[name] if name in values else self.constants[name] for name in self.reads
        )
        outer = {name: values[name] for name in self.needs.reads}
        return LoopRun(self, inputs, outer, _once(observers), LoopGuard(self.node.label, self.workshop.limit))

    def bind(self, known: Mapping[str, HostValue], fixed: Collection[str]) -> Bound:
        """The call on a way."""
        return Bound(self.results, self.fresh)

    def results(self, values: Mapping[str, HostValue]) -> Sequence[HostValue]:
        return self.step(values, NOBODY).run()


@dataclass(frozen=True, slots=True)
class LoopRun:
    """A loop on the values of a run.

    Attributes:
        inputs: values of its inputs.
        outer: what its body reads beside them.
        guard: sees to its memory, and tells of its time.
    """

    call: LoopCall
    inputs: tuple[HostValue, ...]
    outer: Mapping[str, HostValue]
    observers: Observers
    guard: LoopGuard

    @property
    def label(self) -> str:
        return self.call.node.label

    def run(self) -> Sequence[HostValue]:
        """
        Raises:
            InputError: it does not end, or its values do not fit together.
            MemoryLimitError: it needs more memory than one loop may have.
            KeyboardInterrupt: somebody has had enough; it says where.
        """
        try:
            return _KINDS[self.call.node.op](self)
        except KeyboardInterrupt as error:
            inner = "".join(f"; {found}" for found in error.args)
            raise KeyboardInterrupt(f"{self.label}: interrupted in step {self.guard.step}{inner}") from error

    # What the kinds of loops have in common ------------------------------------------------------------

    def one_step(self, inputs: Sequence[HostValue]) -> list[HostValue]:
        """The results of the body."""
        values = dict(self.outer)
        values.update(zip((info.name for info in self.call.body.graph.input), inputs))
        return self.call.body.stages.run(values, self.observers, guard=self.guard)

    def tensor(self, position: int) -> Array:
        found = self.inputs[position]
        if not isinstance(found, np.ndarray):
            raise ModelError(f"{self.label}: input {position} is {described(found)}; it must be a tensor")
        return found

    def must_stay(self, old: Sequence[HostValue], new: Sequence[HostValue], step: int, first: int) -> None:
        """Refuse carried values that change their kind."""
        for n, (before, after) in enumerate(zip(old, new)):
            if _kind(before) != _kind(after) and before is not None and after is not None:
                name = self.call.body.graph.input[first + n].name
                raise InputError(
                    f"{self.label}: the carried value '{name}' is {described(after)} after step {step}, and was"
                    f" {described(before)}; it may change its shape only"
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The body's inputs."""
        return tuple(info.name for info in self.call.body.graph.input)

    @property
    def results(self) -> tuple[str, ...]:
        """What the body gives."""
        return tuple(info.name for info in self.call.body.graph.output)

    def wants(self, result: int) -> bool:
        """Whether somebody reads what comes of a result of the body."""
        place = result - (self.call.node.op == "Loop")
        return place < len(self.call.writes) and bool(self.call.writes[place])

    def natively(
        self,
        stages: Stages,
        form: BodyForm,
        inputs: Sequence[HostValue],
        steps: int,
        exact: bool,
        more: Mapping[str, HostValue] = NOTHING,
    ) -> Taken | None:
        """The steps by native code, or those of them that it can take; None where the body is not made for that.

        Args:
            inputs: of the body in the first step; of sliced ones all parts; None for those that it does not read.
            more: that it has beside them, by name.
        """
        given = {**self.outer, **dict(zip(self.names, inputs)), **more}
        sliced = {name for name, _ in form.sliced}
        first = {n: v[0, ...] if n in sliced and isinstance(v, np.ndarray) else v for n, v in given.items()}
        special = stages.whole(first)
        found = FixedLoop.of(form, special, stages, {n: v for n, v in given.items() if v is not None})
        taken = None if found is None else found.run(steps, exact, self.guard, self.observers.watch)
        return None if taken is None or (taken.left and not taken.steps) else taken

    def moved(self, array: Array | None, result: int, axis: int) -> Array | None:
        """A scan output whose parts lie along another axis than the first."""
        if array is None or axis in (0, -array.ndim):
            return array
        if not -array.ndim <= axis < array.ndim:
            raise ModelError(f"{self.label}: axis {axis} is outside the scan output '{self.results[result]}'")
        return np.ascontiguousarray(np.moveaxis(array, 0, axis))

    def stacked(self, parts: Sequence[Array], output: int, axis: int = 0) -> Array:
        """A scan output: what each step gave, along a new axis."""
        name = self.call.body.graph.output[output].name
        if not parts:
            return self._nothing(output, axis)
        for step, part in enumerate(parts):
            if part.shape != parts[0].shape or part.dtype != parts[0].dtype:
                raise InputError(
                    f"{self.label}: the scan output '{name}' is {described(part)} in step {step}, and was"
                    f" {described(parts[0])} before; it must be the same in every step"
                )
        if not -parts[0].ndim - 1 <= axis <= parts[0].ndim:
            raise ModelError(f"{self.label}: axis {axis} is outside the scan output '{name}'")
        return np.stack(parts, axis)

    def _nothing(self, output: int, axis: int) -> Array:
        """The scan output of a loop without steps: as declared, where an open dimension counts as 0."""
        dtype, dims = declared_type(self.call.body.graph.output[output])
        if dtype is None:
            raise InputError(
                f"{self.label}: no step was taken, and the model does not declare what"
                f" '{self.call.body.graph.output[output].name}' is"
            )
        shape = [dim if isinstance(dim, int) else 0 for dim in dims or ()]
        shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, 0)
        return np.empty(shape, DType(dtype).numpy)


def _loop(run: LoopRun) -> Sequence[HostValue]:
    """ONNX's Loop: a number of steps, a condition, carried values, then outputs that collect one element per step."""
    trips = _trip_count(run)
    goes = _condition(run, run.inputs[1]) if run.inputs[1] is not None else True
    carried = list(run.inputs[2:])
    first = 1 + len(carried)  # of the outputs that collect
    names, limit = run.names, run.call.workshop.making.max_loop_steps
    steps = limit if trips is None else min(trips, limit)
    run.guard.most = limit if trips is None or trips > limit else None
    parts: list[list[Array]] = [[] for _ in run.results[first:]]
    step = collected = 0
    if not goes or steps <= 0:
        carried = [value.copy() if isinstance(value, np.ndarray) else value for value in carried]
    elif (done := native_loop(run, steps, trips is not None and trips <= limit)) is not None:
        taken, values = done
        if taken.goes and taken.steps == limit != trips:
            raise _endless(run, limit)
        if not taken.left:
            return values
        step, carried, stacks = taken.steps, values[: len(carried)], values[len(carried) :]
        collected = again(parts, stacks)
    growth = _Growth(run.call.body.stages)
    condition: HostValue = np.asarray(True)
    run.guard.hold(step, held(carried, collected))
    while goes and (trips is None or step < trips):
        if step >= limit:
            raise _endless(run, limit)
        run.guard.look(step)
        condition, *found_now = run.one_step([np.asarray(step, np.int64), condition, *carried])
        goes = _condition(run, condition)
        run.must_stay(carried, found_now, step, 2)
        growth.look(dict(zip(names[2:], zip(carried, found_now))), step)
        collected += _collect(run, parts, found_now[len(carried) :], first)
        carried = found_now[: len(carried)]
        step += 1
        run.guard.hold(step, held(carried, collected))
    return [*carried, *(run.stacked(found_parts, first + n) for n, found_parts in enumerate(parts))]


def _scan(run: LoopRun) -> Sequence[HostValue]:
    """ONNX's Scan: carried values, sequences to go through, outputs that collect."""
    form, limit = ScanForm.of(run.call.node), run.call.workshop.making.max_loop_steps
    states = form.states
    carried = list(run.inputs[:states])
    scanned = []
    for n, axis in enumerate(form.axes):
        array = run.tensor(states + n)
        if not -array.ndim <= axis < array.ndim:
            raise ModelError(f"{run.label}: axis {axis} is outside a sequence of shape {array.shape}")
        scanned.append(np.moveaxis(array, axis, 0))
    lengths = {len(array) for array in scanned}
    if len(lengths) != 1:
        raise InputError(f"{run.label}: the sequences have different lengths {sorted(lengths)}")
    (steps,) = lengths
    if steps > limit:
        raise InputError(f"{run.label}: {steps} steps; raise max_loop_steps if that is meant")
    names, results = run.names, run.results
    parts: list[list[Array]] = [[] for _ in form.out_axes]
    first = collected = 0
    if steps:
        body = BodyForm(
            None, None, tuple(zip(names[:states], results)), tuple(zip(names[states:], map(bool, form.backwards))),
            _wanted(run, states, tuple(map(bool, form.out_backwards))), None,
        )  # fmt: skip
        taken = run.natively(run.call.body.stages, body, [*carried, *scanned], steps, True)
        if taken is not None:
            found = iter(taken.collected)
            stacks = [next(found) if run.wants(states + n) else None for n in range(len(parts))]
            if not taken.left:
                return [
                    *taken.carried,
                    *(run.moved(a, states + n, x) for n, (a, x) in enumerate(zip(stacks, form.out_axes))),
                ]
            carried, first = list(taken.carried), taken.steps
            collected = again(parts, [a if a is None or not t else a[::-1] for a, t in zip(stacks, form.out_backwards)])
    run.guard.hold(first, held(carried, collected))
    for step in range(first, steps):
        items = (array[-1 - step if turned else step, ...] for array, turned in zip(scanned, form.backwards))
        found_now = run.one_step([*carried, *items])
        run.must_stay(carried, found_now, step, 0)
        collected += _collect(run, parts, found_now[states:], states)
        carried = found_now[:states]
        run.guard.hold(step + 1, held(carried, collected))
    stacks = [
        run.stacked(found_parts[::-1] if turned else found_parts, states + n, axis)
        for n, (found_parts, axis, turned) in enumerate(zip(parts, form.out_axes, form.out_backwards))
    ]
    return [*carried, *stacks]


def _wanted(run: LoopRun, first: int, turned: Sequence[bool]) -> tuple[tuple[str, bool], ...]:
    """The results from `first` on that somebody reads when they are collected."""
    return tuple((run.results[first + n], t) for n, t in enumerate(turned) if run.wants(first + n))


def _endless(run: LoopRun, steps: int) -> InputError:
    return InputError(f"{run.label}: still going on after {steps} steps; raise max_loop_steps if that is meant")


class _Growth:
    """Finds carried values that have another shape in every step, and whether it helps to move them on the host."""

    def __init__(self, stages: Stages) -> None:
        self._stages, self._since, self._made = stages, -1, 0

    def look(self, carried: Mapping[str, tuple[HostValue, HostValue]], step: int) -> None:
        """
        Args:
            carried: before and after the step, by the body's inputs.
        """
        if not self._stages.may_grow:
            return
        grown = [name for name, (a, b) in carried.items() if _shape(a) != _shape(b)]
        if self._since < 0 and grown:
            self._stages.grow(grown)
            self._since = step
        elif self._since >= 0 and step > self._since + SETTLED and self._stages.made > self._made:
            self._stages.grow_no_more()
        self._made = self._stages.made


def _shape(value: HostValue) -> tuple[int, ...] | None:
    return value.shape if isinstance(value, np.ndarray) else None


def _map(run: LoopRun) -> Sequence[HostValue]:
    """ONNX's SequenceMap: the body on each element of sequences."""
    first = run.inputs[0]
    if not isinstance(first, list):
        raise ModelError(f"{run.label}: input 0 is {described(first)}; it must be a sequence")
    lengths = {len(items) for items in run.inputs if isinstance(items, list)}
    if len(lengths) != 1:
        raise InputError(f"{run.label}: the sequences have different lengths {sorted(lengths)}")
    found: list[list[Array]] = [[] for _ in run.call.body.graph.output]
    collected = 0
    for step in range(len(first)):
        results = run.one_step([items[step] if isinstance(items, list) else items for items in run.inputs])
        collected += _collect(run, found, results, 0)
        run.guard.hold(step + 1, collected)
    return found


_KINDS: Mapping[str, Callable[[LoopRun], Sequence[HostValue]]] = {"Loop": _loop, "Scan": _scan, "SequenceMap": _map}


def _collect(run: LoopRun, parts: Sequence[list[Array]], results: Sequence[HostValue], first: int) -> int:
    """Put what a step gave to what those before it gave; how many bytes that is."""
    nbytes = 0
    for n, (found, result) in enumerate(zip(parts, results)):
        if not isinstance(result, np.ndarray):
            name = run.call.body.graph.output[first + n].name
            raise InputError(f"{run.label}: '{name}' is {described(result)} and must be a tensor to be collected")
        found.append(result)
        nbytes += result.nbytes
    return nbytes


def _trip_count(run: LoopRun) -> int | None:
    if run.inputs[0] is None:
        return None
    given = run.tensor(0)
    if given.size != 1 or given.dtype.kind not in "iu":
        raise ModelError(f"{run.label}: the number of steps is one integer, not {described(given)}")
    trips = int(given.reshape(()))
    return None if trips > LONGEST else trips


def _condition(run: LoopRun, value: HostValue) -> bool:
    if not isinstance(value, np.ndarray) or value.dtype != bool or value.size != 1:
        raise ModelError(f"{run.label}: the condition is {described(value)}, not one bool")
    return bool(value.reshape(()))


def _kind(value: HostValue) -> object:
    return value.dtype if isinstance(value, np.ndarray) else type(value)


def _once(observers: Observers) -> Observers:
    """Tells of each program once: steps of a loop are many, and much the same."""
    watch = observers.watch
    if watch is None:
        return observers
    told: set[int] = set()

    def tell(step: Step) -> None:
        if isinstance(step, ProgramStep) and id(step.program) not in told:
            told.add(id(step.program))
            watch(step)

    return replace(observers, watch=tell)
