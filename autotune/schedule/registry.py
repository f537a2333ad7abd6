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
_signature = functools.cache(inspect.signature)


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
    try:
        bound = _signature(fn).bind(state, *args)
    except TypeError as error:
        raise ScheduleError(f"{name}{args}: {error}") from error
    for parameter, value in list(bound.arguments.items())[1:]:
        kind = str(_signature(fn).parameters[parameter].annotation)
        # Steps come from files too: a factor of 2.5 or "4" must not get any further.
        check(_KINDS[kind](value), f"{name}{args}: {parameter} must be {_NAMES[kind]}, got {value!r}")
    return fn(state, *args)


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
