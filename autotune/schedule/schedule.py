"""Schedule: a ComputeDef and the steps that say how to compute it."""

from __future__ import annotations

import functools
import hashlib
import html
import json
from dataclasses import dataclass, field
from typing import Any

from autotune.errors import ScheduleError
from autotune.schedule import cache as _cache  # noqa: F401  registers its primitives, as the next two do
from autotune.schedule import loops as _loops  # noqa: F401
from autotune.schedule import place as _place  # noqa: F401
from autotune.schedule import skip as _skip  # noqa: F401
from autotune.schedule import tensorize as _tensorize  # noqa: F401
from autotune.schedule.registry import apply
from autotune.schedule.state import LOCAL, NEAR, State
from autotune.tensor.compute_def import ComputeDef
from autotune.tensor.layout import Layout

Step = tuple[Any, ...]
"""(primitive, argument, ...): JSON values only."""


@dataclass(frozen=True)
class Schedule:
    """An immutable value: each method returns a new schedule, or raises ScheduleError when the step is illegal.

    The steps are data: canonical JSON, replayable on the same ComputeDef without the template that made them.
    """

    compute: ComputeDef
    steps: tuple[Step, ...] = ()
    _state: State | None = field(default=None, repr=False, compare=False)

    @functools.cached_property
    def state(self) -> State:
        """What the steps decided."""
        if self._state is not None:
            return self._state
        state = State.of(self.compute)
        for name, *args in self.steps:
            state = apply(state, name, tuple(_thaw(a) for a in args))
        return state

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """How each operand lies in memory, inputs then outputs."""
        operands = [*self.compute.inputs, *(self.state.tensor(name) for name in self.compute.outputs)]
        chosen = dict(self.state.layouts)
        return tuple(chosen.get(t.name) or Layout.row_major(len(t.shape)) for t in operands)

    def then(self, name: str, *args: Any) -> Schedule:
        """This schedule with one more step."""
        step = (name, *(_freeze(a) for a in args))
        return Schedule(self.compute, (*self.steps, step), apply(self.state, name, tuple(_thaw(a) for a in step[1:])))

    def split(self, stage: str, loop: str, factor: int) -> Schedule:
        return self.then("split", stage, loop, factor)

    def reorder(self, stage: str, *loops: str) -> Schedule:
        return self.then("reorder", stage, loops)

    def fuse(self, stage: str, outer: str, inner: str) -> Schedule:
        return self.then("fuse", stage, outer, inner)

    def vectorize(self, stage: str, loop: str) -> Schedule:
        return self.then("vectorize", stage, loop)

    def unroll(self, stage: str, loop: str) -> Schedule:
        return self.then("unroll", stage, loop)

    def parallel(self, stage: str, loop: str) -> Schedule:
        return self.then("parallel", stage, loop)

    def partition(self, stage: str, loop: str) -> Schedule:
        return self.then("partition", stage, loop)

    def alternate(self, stage: str, loop: str) -> Schedule:
        return self.then("alternate", stage, loop)

    def pad(self, stage: str, axis: str) -> Schedule:
        return self.then("pad", stage, axis)

    def skip_padding(self, stage: str, tensor: str, dimension: int, tiles: bool = False) -> Schedule:
        return self.then("skip_padding", stage, tensor, dimension, *((True,) if tiles else ()))

    def skip_unread(self, stage: str) -> Schedule:
        return self.then("skip_unread", stage)

    def leave_rest(self, stage: str, dimension: int) -> Schedule:
        return self.then("leave_rest", stage, dimension)

    def tensorize(self, stage: str, loop: str, instruction: str) -> Schedule:
        return self.then("tensorize", stage, loop, instruction)

    def prefetch(self, stage: str, tensor: str, loop: str, distance: int, level: int = 1) -> Schedule:
        return self.then("prefetch", stage, tensor, loop, distance, level)

    def stream(self, stage: str, tensor: str, loop: str, level: int = 2, near: int = NEAR) -> Schedule:
        return self.then("stream", stage, tensor, loop, level, *((near,) if near != NEAR else ()))

    def inline(self, stage: str) -> Schedule:
        return self.then("inline", stage)

    def compute_at(self, stage: str, consumer: str, loop: str, scope: str = LOCAL) -> Schedule:
        return self.then("compute_at", stage, consumer, loop, scope)

    def precompute(self, stage: str) -> Schedule:
        return self.then("precompute", stage)

    def replicate(self, stage: str) -> Schedule:
        return self.then("replicate", stage)

    def layout(self, tensor: str, form: Layout) -> Schedule:
        return self.then("layout", tensor, form.to_json())

    def cache_write(self, tensor: str) -> Schedule:
        return self.then("cache_write", tensor)

    def cache_read(
        self, tensor: str, consumer: str, padded: bool = False, only: int = -1, stored: str = ""
    ) -> Schedule:
        rest = (padded, only, stored) if stored else (padded, only) if only >= 0 else (True,) if padded else ()
        return self.then("cache_read", tensor, consumer, *rest)

    def rfactor(self, stage: str, axis: str, factor: int, keep: str = "outer") -> Schedule:
        return self.then("rfactor", stage, axis, factor, keep)

    def steps_json(self) -> str:
        """The steps as canonical text."""
        return json.dumps([_thaw_json(s) for s in self.steps], sort_keys=True, separators=(",", ":"))

    def to_json(self) -> str:
        """ComputeDef and steps as canonical text."""
        return json.dumps({"compute": json.loads(self.compute.to_json()), "steps": json.loads(self.steps_json())},
                          sort_keys=True, separators=(",", ":"))  # fmt: skip

    @property
    def key(self) -> str:
        """16 hex digits that name this schedule."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    @staticmethod
    def replay(compute: ComputeDef, steps: str) -> Schedule:
        """The schedule of stored steps, each checked again.

        Raises:
            ScheduleError: when the text is no list of steps, or a step is illegal.
        """
        try:
            items = json.loads(steps)
            schedule = Schedule(compute)
            for name, *args in items:
                schedule = schedule.then(name, *args)
        except (ValueError, TypeError) as error:
            raise ScheduleError(f"not a list of schedule steps: {error}") from error
        return schedule

    @staticmethod
    def from_json(text: str) -> Schedule:
        """The inverse of `to_json`.

        Raises:
            ScheduleError: when the text is no schedule, or a step is illegal.
        """
        try:
            data = json.loads(text)
            compute, steps = ComputeDef.from_json(json.dumps(data["compute"])), json.dumps(data["steps"])
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise ScheduleError(f"not a schedule: {type(error).__name__} {error}") from error
        return Schedule.replay(compute, steps)

    def __repr__(self) -> str:
        outputs = ", ".join(str(stage) for stage in self.compute.outputs)
        return f"<Schedule of {outputs}: {len(self.steps)} steps>"

    def _repr_html_(self) -> str:
        style = "overflow: auto; max-height: 30em; font-family: monospace; white-space: pre"
        return f'<pre style="{style}">{html.escape(str(self))}</pre>'

    def __str__(self) -> str:
        return "\n".join(f"{name}({', '.join(map(_show, args))})" for name, *args in self.steps)


def _show(value: Any) -> str:
    return str(Layout.from_json(_thaw_json(value))) if isinstance(value, _FrozenDict) else str(value)


class _FrozenDict(tuple[tuple[str, Any], ...]):
    """A JSON object as a hashable value."""


def _freeze(value: Any) -> Any:
    if isinstance(value, dict):
        return _FrozenDict((k, _freeze(v)) for k, v in sorted(value.items()))
    return tuple(_freeze(v) for v in value) if isinstance(value, (list, tuple)) else value


def _thaw(value: Any) -> Any:
    return {k: _thaw(v) for k, v in value} if isinstance(value, _FrozenDict) else value


def _thaw_json(value: Any) -> Any:
    if isinstance(value, _FrozenDict):
        return {k: _thaw_json(v) for k, v in value}
    return [_thaw_json(v) for v in value] if isinstance(value, tuple) else value
