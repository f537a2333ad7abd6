"""Tensors of strings: arrays of Python strings."""

from __future__ import annotations

import re

import numpy as np

from autotune.errors import InputError, ModelError
from autotune.graph.frontend.source import dtype_of
from autotune.graph.host.node import HostNode, described, makes_strings, of_values, on_host
from autotune.graph.ir import Array


def string_array(items: list[str], shape: tuple[int, ...]) -> Array:
    found = np.empty(len(items), object)
    found[:] = items
    return found.reshape(shape)


@of_values("Equal")
def equal(node: HostNode) -> tuple[Array]:
    a, b = _broadcast(node)
    return (np.asarray(a == b, np.bool_),)


@on_host("StringConcat")
def concat(node: HostNode) -> tuple[Array]:
    a, b = _broadcast(node)
    return (string_array([x + y for x, y in zip(a.reshape(-1), b.reshape(-1))], a.shape),)


@on_host("StringSplit")
def split(node: HostNode) -> tuple[Array, Array]:
    """The parts of each string, filled up with empty ones to the longest, and how many there are."""
    x = node.strings(0)
    delimiter, most = node.attr_string("delimiter", "") or None, node.attr_int("maxsplit", -1)
    if delimiter is None:
        parts = [text.split(None, most) for text in x.reshape(-1)]
    else:
        parts = [text.split(delimiter, most) if text else [] for text in x.reshape(-1)]
    width = max(map(len, parts), default=0)
    filled = [text for found in parts for text in (*found, *[""] * (width - len(found)))]
    counts = np.asarray([len(found) for found in parts], np.int64).reshape(x.shape)
    return string_array(filled, (*x.shape, width)), counts


@on_host("RegexFullMatch")
def full_match(node: HostNode) -> tuple[Array]:
    x = node.strings(0)
    try:
        pattern = re.compile(node.attr_string("pattern", ""))
    except (re.error, OverflowError) as error:
        raise ModelError(f"{node.label}: the pattern is no regular expression: {error}") from error
    found = [pattern.fullmatch(text) is not None for text in x.reshape(-1)]
    return (np.asarray(found, np.bool_).reshape(x.shape),)


@on_host("StringNormalizer")
def normalize(node: HostNode) -> tuple[Array]:
    """Words without the stop words, in upper or lower case; one empty word where none is left."""
    x, stop = node.strings(0), node.attr_strings("stopwords") or ()
    action, exact = node.attr_string("case_change_action", "NONE"), node.attr_flag("is_case_sensitive")
    if x.ndim not in (1, 2) or (x.ndim == 2 and len(x) != 1):
        raise InputError(f"{node.label}: the input is {described(x)}; it must be a vector of words, or one row of them")
    if action not in ("NONE", "LOWER", "UPPER"):
        raise ModelError(f"{node.label}: case_change_action is '{action}', not NONE, LOWER or UPPER")
    dropped = set(stop) if exact else {word.lower() for word in stop}
    words = [word for word in x.reshape(-1) if (word if exact else word.lower()) not in dropped]
    words = [word.lower() if action == "LOWER" else word.upper() if action == "UPPER" else word for word in words]
    words = words or [""]
    return (string_array(words, (len(words),) if x.ndim == 1 else (1, len(words))),)


@of_values("Cast")
def cast(node: HostNode) -> tuple[Array]:
    """Numbers as C's %g with eight digits writes them, truth as 1 and 0; and back."""
    x = node.array(0)
    if makes_strings(node.proto):
        return (string_array([_written(item) for item in x.reshape(-1)], x.shape) if x.dtype != object else x,)
    to = dtype_of(node.attr_int("to", 0), node.label)
    try:
        items = [float(text) if to.is_float else int(float(text)) for text in node.strings(0).reshape(-1)]
        return (np.asarray(items, to.numpy).reshape(x.shape),)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{node.label}: a string is no {to}: {error}") from error


def _written(number: object) -> str:
    if isinstance(number, (bool, np.bool_, np.integer)):
        return str(int(number))
    value = float(number)  # type: ignore[arg-type]
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "INF" if value > 0 else "-INF"
    return f"{value:.8g}"


def _broadcast(node: HostNode) -> tuple[Array, Array]:
    a, b = node.strings(0), node.strings(1)
    try:
        first, second = np.broadcast_arrays(a, b)
    except ValueError as error:
        raise InputError(f"{node.label}: {described(a)} and {described(b)} do not broadcast") from error
    return first, second
