"""A Loop that native code takes: what the body carries and collects by the names of its values, and the outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.compiler.fixed_loop import BodyForm, Growing
from autotune.compiler.host import value_bytes
from autotune.compiler.loop_guard import LoopGuard
from autotune.compiler.native_steps import Taken, room_for, with_room
from autotune.compiler.padded_body import VALID, PaddedBody
from autotune.compiler.value_forms import is_tensor
from autotune.errors import InputError, ModelError
from autotune.graph.frontend.appended import Appended, without
from autotune.graph.frontend.cuts import WINDOW
from autotune.graph.host import HostValue
from autotune.runtime.executor import Array

if TYPE_CHECKING:
    from autotune.compiler.loops import LoopRun
    from autotune.compiler.stages import Stages

Padded = tuple["Stages", dict[str, Any], dict[str, HostValue]]
"""What runs a body, what is to be said of it in its form, and what it has beside its inputs."""

LEAST_WINDOW = 16
"""Elements: a slice of fewer is looked up as if it had so many."""

MOST_WINDOW = 1024
"""Elements: one slice of more would make all steps look up so many, which takes longer than going on one by one."""


def native_loop(run: LoopRun, steps: int, exact: bool) -> tuple[Taken, list[HostValue]] | None:
    """A Loop whose steps native code takes, or the first of them: what it came to, and the values of its outputs."""
    body, carried = run.call.body, list(run.inputs[2:])
    tails = {tail.place: tail for tail in body.tails}
    lists = {tail.place for tail in body.tails if tail.axis is None}
    names, given = run.names, run.results
    others = range(1 + len(carried), len(given))
    wanted = [(given[n], False) for n in others if run.wants(n)]
    for place, tail in tails.items():
        start = _tail(carried[place], tail)
        if start is None and (tail.axis is not None or not isinstance(carried[place], list)):
            return None
        carried[place] = start
    longer = {one.place: one for one in body.grown}
    results = without(given, (*body.tails, *body.grown), 2)
    form = BodyForm(
        names[0], names[1],
        tuple((names[2 + n], results[1 + n]) for n in range(len(carried)) if n not in longer and n not in lists),
        (), (*((tail.item, False) for tail in body.tails), *wanted), results[0],
    )  # fmt: skip
    stages, more = body.of_tails or body.stages, dict[str, HostValue]()
    if body.padded is not None:
        found = _windows(run, body.padded, stages, carried) if body.padded.cuts else _room(run, body.padded, carried)
        if found is not None:
            stages, form, more = found[0], replace(form, **found[1]), found[2]
        elif body.grown:
            return None
    inputs = [np.asarray(0, np.int64), np.asarray(True), *carried]
    taken = run.natively(stages, form, inputs, steps, exact, more)
    if taken is None:
        return None
    ends, parts, whole = iter(taken.carried), iter(taken.collected), iter(taken.grown)
    run.guard.hold(taken.steps, held([*taken.carried, *taken.collected, *taken.grown]))
    grown = {tail.place: _grown(run.inputs[2 + tail.place], tail, next(parts), run.guard) for tail in body.tails}
    values: list[HostValue] = []
    for place in range(len(carried)):
        end = None if place in lists else next(whole if place in longer else ends)
        values.append(grown[place] if place in tails else end)
    values += [next(parts) if run.wants(n) else None for n in others]
    return taken, values


def _room(run: LoopRun, padded: PaddedBody, carried: list[HostValue]) -> Padded | None:
    """What runs the body with room behind what grows, for which there is room among the carried values then, and the
    length if it wants to be told; None where there must be a program for each length."""
    growing = []
    for one in run.call.body.grown:
        value, axis = carried[one.place], one.axis or 0
        if not is_tensor(value) or not -value.ndim <= axis < value.ndim or not value.shape[axis]:
            return None
        axis %= value.ndim
        growing.append(Growing(run.names[2 + one.place], one.item, axis, value.shape[axis]))
        carried[one.place] = with_room(value, axis, room_for(value.shape[axis] + 1))
    lengths = {one.length for one in growing}
    if len(lengths) != 1:
        return None
    given = {**run.outer, **dict(zip(run.names, [np.asarray(0, np.int64), np.asarray(True), *carried]))}
    axes = {one.name: one.axis for one in growing}
    stages = padded.stages(given, axes)
    if stages is None:
        return None
    told = any(declared.name == VALID for declared in stages.model.inputs)
    more: dict[str, HostValue] = {VALID: np.asarray(lengths.pop(), np.int64)} if told else {}
    if not _runs(padded, stages, given, axes, more):
        return None
    return stages, {"grown": tuple(growing), "length": VALID if told else ""}, more


def _windows(run: LoopRun, padded: PaddedBody, exact: Stages, carried: Sequence[HostValue]) -> Padded | None:
    """What runs the body with a window for its slices; None where there must be a program for each extent, or where
    their extents are known."""
    given = {**run.outer, **dict(zip(run.names, [np.asarray(0, np.int64), np.asarray(True), *carried]))}
    if exact.whole(given).rest is None:
        return None
    stages = padded.stages(given, {})
    if stages is None:
        return None
    extents = [extent for value in given.values() if isinstance(value, np.ndarray) for extent in value.shape]
    more: dict[str, HostValue] = {WINDOW: np.zeros(LEAST_WINDOW, np.int64)}
    if not _runs(padded, stages, given, {}, more):
        return None
    return stages, {"window": (WINDOW, min(max(extents, default=0), MOST_WINDOW))}, more


def _runs(
    padded: PaddedBody,
    stages: Stages,
    given: Mapping[str, HostValue],
    axes: Mapping[str, int],
    more: Mapping[str, HostValue],
) -> bool:
    """Whether there is a program: what is known while compiling may be impossible in the padding."""
    try:
        stages.whole({**given, **more})
    except (InputError, ModelError):
        padded.give_up(given, axes)
        return False
    return True


def _tail(value: HostValue, tail: Appended) -> Array | None:
    """The last element, which is all that the body reads; None where there is none."""
    if not isinstance(value, np.ndarray) or tail.axis is None or not -value.ndim <= tail.axis < value.ndim:
        return None
    moved = np.moveaxis(value, tail.axis, 0)[-1:]
    return np.moveaxis(moved, 0, tail.axis) if len(moved) else None


def _grown(value: HostValue, tail: Appended, parts: Array, guard: LoopGuard) -> HostValue:
    """A carried value with all that was appended."""
    if tail.axis is None or not isinstance(value, np.ndarray):
        if value and value[0].dtype != parts.dtype:
            raise ModelError(f"'{tail.item}' is {parts.dtype}, what it is appended to {value[0].dtype}")
        return [*(value or ()), *(parts[step, ...] for step in range(len(parts)))]
    guard.take(value.nbytes + parts.nbytes)
    axis = tail.axis % value.ndim
    shape = list(value.shape)
    shape[axis] = len(parts)
    return np.concatenate([value, np.moveaxis(parts, 0, axis).reshape(shape)], axis)


def again(parts: Sequence[list[Array]], stacks: Sequence[HostValue]) -> int:
    """Put what native code has collected where steps that are taken one by one put theirs; how many bytes that is."""
    nbytes = 0
    for found, stack in zip(parts, stacks):
        if isinstance(stack, np.ndarray):
            found += [stack[step, ...] for step in range(len(stack))]
            nbytes += stack.nbytes
    return nbytes


def held(carried: Sequence[HostValue], collected: int = 0) -> int:
    """Bytes that a loop holds: what it collects it joins in the end, which takes as much again."""
    return 2 * collected + sum(map(value_bytes, carried))
