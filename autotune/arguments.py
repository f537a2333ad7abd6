"""Arguments of public calls are of the kinds that their signatures name, or are refused in one line before any work.

The annotations are read as text, so that the signature is the only list of them. Kinds that a table here does not know
are for who uses the argument to check: what is in a mapping, say, or what a model is.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np

from autotune.errors import InputError

SHOWN = 60
"""Characters of a wrong value that are shown, at most."""

Call = TypeVar("Call", bound=Callable[..., Any])


class Kind(NamedTuple):
    """What an annotation asks for: in words, and whether a value is such."""

    words: str
    fits: Callable[[Any], bool]


@overload
def checked(call: Call) -> Call: ...
@overload
def checked(*, hint: str) -> Callable[[Call], Call]: ...
def checked(call: Callable[..., Any] | None = None, *, hint: str = "") -> Any:
    """A function, or a class that is called, that refuses arguments of a wrong kind with an InputError.

    Args:
        hint: what to do instead, where that does not follow from the kinds.
    """
    if call is None:
        return functools.partial(checked, hint=hint)
    if isinstance(call, type):
        call.__init__ = _checking(call.__init__, call.__qualname__, hint)  # type: ignore[misc]  # of its instances
        return call
    return _checking(call, call.__qualname__.removesuffix(".__init__"), hint)


def _checking(call: Callable[..., Any], title: str, hint: str) -> Callable[..., Any]:
    names = list(inspect.signature(call).parameters)
    kinds = {name: found for name in names if (found := _kinds(str(call.__annotations__.get(name, ""))))}

    @functools.wraps(call)
    def checking(*args: Any, **kwargs: Any) -> Any:
        for name, value in (*zip(names, args), *kwargs.items()):
            if name in kinds and not any(kind.fits(value) for kind in kinds[name]):
                raise InputError(_refusal(title, name, kinds[name], value) + (f"; {hint}" if hint else ""))
        return call(*args, **kwargs)

    return checking


def _refusal(title: str, name: str, kinds: tuple[Kind, ...], value: object) -> str:
    shown = " ".join(repr(value).split())
    shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
    *others, last = dict.fromkeys(kind.words for kind in kinds)
    return f"{title}: {name} must be {', '.join(others)}{' or ' if others else ''}{last}, not {shown}"


def _kinds(annotation: str) -> tuple[Kind, ...]:
    """Those that an annotation names; none where one of them is not known here."""
    parts = [part.strip() for part in annotation.split(" | ")]
    if not set(parts).isdisjoint(_PATHS):  # and a text names one
        parts = [_PATHS[0] if part in ("str", *_PATHS) else part for part in parts]
    return tuple(_KINDS[part] for part in parts) if set(parts) <= _KINDS.keys() else ()


def _is_path(value: object) -> bool:
    try:
        name = os.fspath(value)  # type: ignore[call-overload]  # a TypeError says what it is
    except TypeError:
        return False
    return isinstance(name, str) and "\0" not in name


def _is_whole(value: object) -> bool:
    try:
        return not isinstance(value, (bool, np.bool_)) and operator.index(value) is not None  # type: ignore[arg-type]
    except TypeError:
        return False


def _are_names(value: object) -> bool:
    listed = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
    return listed and not isinstance(value, np.ndarray)


def _are_functions(value: object) -> bool:
    return isinstance(value, Iterable) and all(map(callable, value))


def _are_records(value: object) -> bool:
    """Of what can be looked at more than once also each."""
    listed = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
    return listed and (not isinstance(value, (list, tuple)) or all(map(_KINDS["TuningRecord"].fits, value)))


def _named(name: str, words: str) -> Kind:
    """Instances of a class of that name: who has one has imported it, and nobody else needs to."""
    return Kind(words, lambda value: any(base.__name__ == name for base in type(value).__mro__))


_PATHS = ("Path", "os.PathLike[str]")
_NAMES = Kind("a list of names", _are_names)
_KINDS = {
    "None": Kind("None", lambda value: value is None),
    "bool": Kind(
        "True or False", lambda value: isinstance(value, (bool, np.bool_)) or (_is_whole(value) and value in (0, 1))
    ),
    "int": Kind("a whole number", _is_whole),
    "float": Kind("a number", lambda value: isinstance(value, numbers.Real) and not isinstance(value, bool)),
    "str": Kind("a text", lambda value: isinstance(value, str)),
    "Path": Kind("a path", _is_path),
    "Collection[str]": _NAMES,
    "Sequence[str]": _NAMES,
    "Sequence[TuneCallback]": Kind("a list of functions", _are_functions),
    "Mapping[str, object]": Kind("a mapping of names to values", lambda value: isinstance(value, Mapping)),
    "BinaryIO": Kind("an open file", lambda value: hasattr(value, "write")),
    "Iterable[TuningRecord]": Kind("a list of TuningRecords", _are_records),
    "Config": _named("Config", "a Config"),
    "Connection": _named("Connection", "a connection to a file"),
    "TuningRecord": _named("TuningRecord", "a TuningRecord"),
}
"""By annotation."""
