"""Inputs that are maps, as rows of numbers or strings (ai.onnx.ml)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autotune.errors import InputError, ModelError
from autotune.graph.host.node import HostNode, MapColumns, described, learned_on_host
from autotune.graph.host.strings import string_array
from autotune.graph.ir import Array

MISSING: dict[type[Any], Any] = {np.float32: 0.0, np.int64: 0, str: "0.f"}
"""What CastMap puts where there is no key; the string is ONNX Runtime's."""


@learned_on_host("DictVectorizer")
def dict_vectorizer(node: HostNode) -> tuple[Array]:
    """The values of the words of a vocabulary, in its order: 0 for those that are no keys, none for other keys."""
    keys, values = _columns(node)
    texts, numbers = node.attr_strings("string_vocabulary"), node.attr_ints("int64_vocabulary")
    words = (texts or ()) if keys.dtype == object else (numbers or ())
    if not words:
        kind = "strings" if keys.dtype == object else "integers"
        raise ModelError(f"{node.label}: the keys of its map are {kind}, of which it has no vocabulary")
    table = dict(zip(keys.tolist(), values.tolist()))
    if values.dtype == object:
        return (string_array([table.get(word, "") for word in words], (1, len(words))),)
    return (np.asarray([[table.get(word, 0) for word in words]], values.dtype),)


@learned_on_host("CastMap")
def cast_map(node: HostNode) -> tuple[Array]:
    """The values in the order of their keys, or each at the place that its key is."""
    keys, values = _columns(node)
    if keys.dtype == object:
        raise ModelError(f"{node.label}: the keys of its map are strings; it takes integers")
    to, form = node.attr_string("cast_to", "TO_FLOAT"), node.attr_string("map_form", "DENSE")
    kinds: dict[str, type[Any]] = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": str}
    if to not in kinds or form not in ("DENSE", "SPARSE"):
        raise ModelError(f"{node.label}: cast_to='{to}' and map_form='{form}' are not among those there are")
    kind, most = kinds[to], node.attr_int("max_map", 1)
    table = dict(sorted(zip(keys.tolist(), values.tolist())))
    row: list[Any]
    if form == "SPARSE":
        if most < 1:
            raise ModelError(f"{node.label}: max_map={most} of a sparse map must be 1 or more")
        if next(iter(table), 0) < 0:
            raise InputError(f"{node.label}: the key {next(iter(table))} is no place in a row of {most}")
        row = [_cast(node, table[n], kind) if n in table else MISSING[kind] for n in range(most)]
    else:
        row = [_cast(node, value, kind) for value in table.values()]
    return (string_array(row, (1, len(row))) if kind is str else np.asarray([row], kind),)


def _columns(node: HostNode) -> tuple[Array, Array]:
    """Keys and values."""
    found = node.value(0)
    if not isinstance(found, MapColumns):
        raise ModelError(f"{node.label}: input 0 is {described(found)}; it must be a map")
    return found[0], found[1]


def _cast(node: HostNode, value: Any, kind: type[Any]) -> Any:
    if kind is str:
        return value if isinstance(value, str) else f"{value:f}"
    number: Callable[[Any], Any] = float if kind is np.float32 else int
    try:
        return number(value)
    except (ValueError, OverflowError):
        what = "number" if kind is np.float32 else "integer"
        raise InputError(f"{node.label}: the value {str(value)[:40]!r} is no {what}") from None
