"""Schedule primitives by name."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any

from autotune.errors import ScheduleError
from autotune.schedule.state import State

Primitive = Callable[..., State]
_PRIMITIVES: dict[str, Primitive] = {}


def primitive(fn: Primitive) -> Primitive:
    """Register a function `(state, stage, ...) -> state` as a schedule step of its own name."""
    _PRIMITIVES[fn.__name__] = fn
    return fn


def check(condition: bool, message: str) -> None:
    """Refuse an illegal step."""
    if not condition:
        raise ScheduleError(message)


def apply(state: State, name: str, args: tuple[Any, ...]) -> State:
    """The state after one step.

    Raises:
        ScheduleError: when the step is unknown, has wrong arguments, or is illegal here.
    """
    fn = _PRIMITIVES.get(name)
    if fn is None:
        close = difflib.get_close_matches(name, _PRIMITIVES, 1)
        raise ScheduleError(
            f"unknown primitive {name!r}; " + (f"did you mean {close[0]}?" if close else f"known: {', '.join(names())}")
        )
    parameters, least = _parameters(fn)
    if not least <= len(args) <= len(parameters):
        try:
            inspect.signature(fn).bind(state, *args)
        except TypeError as error:
            raise ScheduleError(f"{name}{args}: {error}") from error
    for (parameter, kind), value in zip(parameters, args):
        # Steps come from files too: a factor of 2.5 or "4" must not get any further.
        if not _KINDS[kind](value):
            raise ScheduleError(f"{name}{args}: {parameter} must be {_NAMES[kind]}, got {value!r}")
    return fn(state, *args)


@functools.cache
def _parameters(fn: Primitive) -> tuple[tuple[tuple[str, str], ...], int]:
    """Name and kind of each argument of a primitive behind the state, and how many there must be at least."""
    behind = list(inspect.signature(fn).parameters.values())[1:]
    least = sum(one.default is inspect.Parameter.empty for one in behind)
    return tuple((one.name, str(one.annotation)) for one in behind), least


_NAMES = {
    "str": "a name",
    "bool": "true or false",
    "int": "an integer",
    "tuple[str, ...]": "a list of names",
    "Any": "anything",
}
_KINDS: dict[str, Callable[[Any], bool]] = {
    "str": lambda v: isinstance(v, str),
    "int": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "bool": lambda v: isinstance(v, bool),
    "tuple[str, ...]": lambda v: isinstance(v, tuple) and all(isinstance(x, str) for x in v),
    "Any": lambda v: True,
}


def names() -> list[str]:
    return sorted(_PRIMITIVES)


def documentation(name: str) -> str:
    """The docstring of a primitive: what it does, and its rewrite."""
    return inspect.getdoc(_PRIMITIVES[name]) or ""
