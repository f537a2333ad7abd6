"""A Loop that native code takes: what the body carries and collects by the names of its values, and the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from autotune.compiler.fixed_loop import BodyForm
from autotune.compiler.host import value_bytes
from autotune.compiler.loop_guard import LoopGuard
from autotune.compiler.native_steps import Taken
from autotune.errors import ModelError
from autotune.graph.frontend.appended import Appended, without
from autotune.graph.host import HostValue
from autotune.runtime.executor import Array

if TYPE_CHECKING:
    from autotune.compiler.loops import LoopRun


def native_loop(run: LoopRun, steps: int, exact: bool) -> tuple[Taken, list[HostValue]] | None:
    """A Loop whose steps native code takes, or the first of them: what it came to, and the values of its outputs."""
    body, carried = run.call.body, list(run.inputs[2:])
    tails = {tail.place: tail for tail in body.tails}
    for place, tail in tails.items():
        start = _tail(carried[place], tail)
        if start is None and (tail.axis is not None or not isinstance(carried[place], list)):
            return None
        carried[place] = start
    results = without(run.results, body.tails, 2)
    pairs = zip(run.names[2:], results[1:])
    kept = tuple(pair for place, pair in enumerate(pairs) if place not in tails or tails[place].axis is not None)
    others = range(1 + len(carried), len(results))
    wanted = [(results[n], False) for n in others if run.wants(n)]
    form = BodyForm(
        run.names[0], run.names[1], kept, (), (*((tail.item, False) for tail in body.tails), *wanted), results[0]
    )
    inputs = [np.asarray(0, np.int64), np.asarray(True), *carried]
    taken = run.natively(body.of_tails or body.stages, form, inputs, steps, exact)
    if taken is None:
        return None
    ends, parts = iter(taken.carried), iter(taken.collected)
    run.guard.hold(taken.steps, held([*taken.carried, *taken.collected]))
    grown = {tail.place: _grown(run.inputs[2 + tail.place], tail, next(parts), run.guard) for tail in body.tails}
    values: list[HostValue] = []
    for place in range(len(carried)):
        end = None if place in tails and tails[place].axis is None else next(ends)
        values.append(grown[place] if place in tails else end)
    values += [next(parts) if run.wants(n) else None for n in others]
    return taken, values


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
