"""Labels of classical machine learning (ai.onnx.ml): maps from and to strings, and classes with their scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autotune.errors import InputError, ModelError
from autotune.graph.host.node import HostNode, HostValue, described, learned_on_host
from autotune.graph.host.strings import string_array
from autotune.graph.ir import Array


@learned_on_host("LabelEncoder")
def label_encoder(node: HostNode) -> tuple[Array]:
    """A map of strings or numbers to strings or numbers, a default for others."""
    keys, values = (_column(node, name) for name in ("keys", "values"))
    if keys is None and values is None:  # the first version
        classes = list(node.attr_strings("classes_strings") or ())
        numbered = list(range(len(classes)))
        keys, values = (classes, numbered) if node.array(0).dtype == object else (numbered, classes)
    if keys is None or values is None or len(keys) != len(values):
        raise ModelError(f"{node.label}: {len(keys or ())} keys and {len(values or ())} values")
    default = _default(node, values)
    return (_mapped(node, node.array(0), dict(zip(keys, values)), default, values),)


@learned_on_host("CategoryMapper")
def category_mapper(node: HostNode) -> tuple[Array]:
    """Strings as numbers, or numbers as strings."""
    texts, numbers = list(node.attr_strings("cats_strings") or ()), list(node.attr_ints("cats_int64s") or ())
    if len(texts) != len(numbers):
        raise ModelError(f"{node.label}: {len(texts)} strings and {len(numbers)} integers")
    unknown_text, unknown = node.attr_string("default_string", "_Unused"), node.attr_int("default_int64", -1)
    if node.array(0).dtype == object:
        return (_mapped(node, node.array(0), dict(zip(texts, numbers)), unknown, [0]),)
    return (_mapped(node, node.array(0), dict(zip(numbers, texts)), unknown_text, [""]),)


@learned_on_host("OneHotEncoder")
def one_hot_encoder(node: HostNode) -> tuple[Array]:
    """A 1 where a string's category is, behind a new last axis."""
    x, categories = node.strings(0), list(node.attr_strings("cats_strings") or ())
    places = {text: place for place, text in enumerate(categories)}
    found = np.asarray([places.get(text, -1) for text in x.reshape(-1)], np.int64)
    if not node.attr_flag("zeros", default=True) and (found < 0).any():
        unknown = str(x.reshape(-1)[int(np.argmin(found))])[:40]
        raise InputError(f"{node.label}: {unknown!r} is none of the categories")
    hot = found[:, None] == np.arange(len(categories))
    return (hot.astype(np.float32).reshape(*x.shape, len(categories)),)


@learned_on_host("ZipMap")
def zip_map(node: HostNode) -> tuple[HostValue]:
    """For each row a dictionary: the class, its score."""
    scores = node.array(0)
    texts, numbers = node.attr_strings("classlabels_strings"), node.attr_ints("classlabels_int64s")
    classes: tuple[Any, ...] = texts or numbers or ()
    if scores.ndim > 2 or scores.shape[-1:] != (len(classes),):
        raise InputError(f"{node.label}: the input is {described(scores)}; it must have {len(classes)} columns")
    rows: list[Any] = [dict(zip(classes, row)) for row in scores.reshape(-1, len(classes)).tolist()]
    return (rows,)


def _column(node: HostNode, name: str) -> list[Any] | None:
    """Keys or values: an attribute of strings, integers or floats, or a tensor."""
    tensor = node.attr_tensor(f"{name}_tensor")
    if tensor is not None:
        return [_text(item) for item in tensor.reshape(-1).tolist()]
    texts, numbers = node.attr_strings(f"{name}_strings"), node.attr_ints(f"{name}_int64s")
    floats = node.attr_floats(f"{name}_floats")
    found = texts if texts is not None else numbers if numbers is not None else floats
    return None if found is None else list(found)


def _default(node: HostNode, values: list[Any]) -> Any:
    given = node.attr_tensor("default_tensor")
    if given is not None:
        return _text(given.reshape(-1).tolist()[0])
    if values and isinstance(values[0], str):
        return node.attr_string("default_string", "_Unused")
    if values and isinstance(values[0], float):
        return node.attr_float("default_float", -0.0)
    return node.attr_int("default_int64", -1)


def _mapped(node: HostNode, x: Array, table: Mapping[Any, Any], default: Any, values: list[Any]) -> Array:
    items = [_text(item) for item in x.reshape(-1).tolist()]
    found = [table.get(item, default) for item in items]
    if values and isinstance(values[0], str):
        return string_array(found, x.shape)
    tensor = node.attr_tensor("values_tensor")
    kind = tensor.dtype if tensor is not None else np.float32 if values and isinstance(values[0], float) else np.int64
    return np.asarray(found, kind).reshape(x.shape)


def _text(item: Any) -> Any:
    return item.decode("utf-8", "replace") if isinstance(item, bytes) else item
