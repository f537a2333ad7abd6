"""Features made ready: scaled, normalised, filled in, thresholded, put together, and numbers mapped to numbers."""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.learned.trees import ML
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.graph.ir import Array
from autotune.tensor import DType

NAMED = 8
"""Categories that a message lists."""


@contributed("Scaler", inputs=1, domains=ML)
def scaler(node: OnnxNode) -> str:
    """(x - offset) * scale in f32, one number for each or one for all."""
    x = node.converted(node.input(0), DType.f32)
    offset, scale = (_per_feature(node, name) for name in ("offset", "scale"))
    x = x if offset is None else node.emit("sub", x, offset)
    return x if scale is None else node.emit("mul", x, scale)


def _per_feature(node: OnnxNode, name: str) -> str | None:
    found = node.attr_floats(name)
    if found is None:
        return None
    if len(found) not in (1, node.shape()[-1] if node.rank() else 1):
        raise ModelError(f"{node.label}: {name} has {len(found)} numbers for {node.shape()[-1]} features")
    return node.new_constant(np.asarray(found, np.float32))


@contributed("Normalizer", inputs=1, domains=ML)
def normalizer(node: OnnxNode) -> str:
    """Each row by its largest, its sum of sizes, or its length; rows of zeros stay."""
    x, kind = node.converted(node.input(0), DType.f32), node.attr_string("norm", "MAX")
    axis = (node.rank() - 1,)
    if kind == "MAX":
        norm = node.emit("reduce_max", x, axes=axis, keepdims=True)
    elif kind == "L1":
        norm = node.emit("reduce_sum", node.emit("abs", x), axes=axis, keepdims=True)
    elif kind == "L2":
        norm = node.emit("sqrt", node.emit("reduce_sum", node.emit("mul", x, x), axes=axis, keepdims=True))
    else:
        raise ModelError(f"{node.label}: norm is '{kind}', not MAX, L1 or L2")
    nothing = node.emit("equal", norm, node.scalar(0.0, norm))
    return node.emit("div", x, node.emit("where", nothing, node.scalar(1.0, norm), norm))


@contributed("Imputer", inputs=1, domains=ML)
def imputer(node: OnnxNode) -> str:
    """One value, NaN if so said, replaced by a number for each feature or one for all."""
    floats, ints = node.attr_floats("imputed_value_floats"), node.attr_ints("imputed_value_int64s")
    missing_float, missing_int = node.attr_float("replaced_value_float", 0.0), node.attr_int("replaced_value_int64", 0)
    of_floats = DType(node.value().dtype).is_float
    values: Array | None = None
    if of_floats and floats is not None:
        values = np.asarray(floats, DType(node.value().dtype).numpy)
    if not of_floats and ints is not None:
        values = np.asarray(ints, DType(node.value().dtype).numpy)
    if values is None or len(values) not in (1, node.shape()[-1]):
        raise ModelError(f"{node.label}: imputed_value_* has no number for each of the features")
    x = node.input(0)
    if of_floats and np.isnan(missing_float):
        missing = node.emit("isnan", x)
    else:
        missing = node.emit("equal", x, node.scalar(missing_float if of_floats else missing_int, x))
    return node.emit("where", missing, node.new_constant(values), x)


@contributed("Binarizer", inputs=1, domains=ML)
def binarizer(node: OnnxNode) -> str:
    x = node.input(0)
    above = node.emit("greater", x, node.scalar(node.attr_float("threshold", 0.0), x))
    return node.converted(above, DType(node.value().dtype))


@contributed("FeatureVectorizer", inputs=1 << 16, domains=ML)
def feature_vectorizer(node: OnnxNode) -> str:
    """The features of all inputs beside each other, in f32."""
    widths = node.attr_ints("inputdimensions") or ()
    parts = []
    for position, name in enumerate(node.all_inputs()):
        rows = node.shape(position)[0] if node.rank(position) == 2 else 1
        x = node.converted(node.reshaped(name, (rows, node.value(position).size // max(rows, 1))), DType.f32)
        columns = node.builder.values[x].shape[1]
        wanted = widths[position] if position < len(widths) else columns
        if wanted > columns:
            raise ModelError(f"{node.label}: input {position} has {columns} features, inputdimensions says {wanted}")
        parts.append(node.sliced(x, (range(rows), range(wanted))))
    return parts[0] if len(parts) == 1 else node.emit("concat", *parts, axis=1)


@contributed("ArrayFeatureExtractor", inputs=2, domains=ML)
def array_feature_extractor(node: OnnxNode) -> str:
    """The features (the last axis) at the places that the second input names."""
    x, rank = node.input(0), node.rank()
    places = node.reshaped(node.input(1), (node.value(1).size,))
    features = node.shape()[-1]
    node.must_lie(places, (0,), (features,), "an index")
    found = node.emit("gather", x, node.converted(places, DType.i64), axis=rank - 1)
    return node.reshaped(found, (1, node.value(1).size)) if rank == 1 else found


@contributed("OneHotEncoder", inputs=1, domains=ML)
def one_hot_encoder(node: OnnxNode) -> str:
    """A 1 where a category is, behind a new last axis; with zeros=0 a run that meets another fails. Strings are for the
    host."""
    categories = node.attr_ints("cats_int64s")
    zeros = node.attr_flag("zeros", default=True)
    if categories is None:
        raise UnsupportedError(f"{node.label}: categories that are strings, of data that is no tensor of strings")
    x = node.reshaped(node.input(0), (*node.shape(), 1))
    keys = node.new_constant(np.asarray(categories, DType(node.value().dtype).numpy))
    hot = node.emit("equal", x, keys)
    if not zeros:
        known = node.emit("reduce_max", node.emit("cast", hot, to="i32"), axes=(node.rank(),), keepdims=False)
        some = ", ".join(map(str, categories[:NAMED])) + (", ..." if len(categories) > NAMED else "")
        node.refuse_outside(
            known, (1,), (2,), f"{node.label}: a value is none of the categories {some}, and zeros is 0"
        )
    return node.converted(hot, DType.f32)


@contributed("LabelEncoder", inputs=1, domains=ML)
def label_encoder(node: OnnxNode) -> str:
    """Numbers by a map to numbers, a default for others. Strings are for the host."""
    keys, values, default = numeric_map(node)
    x = node.input(0)
    # In order, the first of equal ones; NaN is equal to nothing.
    keys, firsts = np.unique(keys.astype(DType(node.value().dtype).numpy), return_index=True)
    firsts, keys = firsts[keys == keys], keys[keys == keys]
    if not len(keys):
        return node.expanded(node.new_constant(default), node.shape())
    place = _searched(node, x, keys)
    known = node.emit("equal", x, node.emit("gather", node.new_constant(keys), place, axis=0))
    found = node.emit("gather", node.new_constant(values[firsts]), place, axis=0)
    return node.emit("where", known, found, node.new_constant(default))


def _searched(node: OnnxNode, x: str, keys: Array) -> str:
    """Where the largest key that is no more than each element is, among keys in order; 0 if there is none (i32).

    Steps of halves of a power of two: behind the last key there are more of it.
    """
    rounds = (len(keys) - 1).bit_length()
    table = node.new_constant(np.concatenate([keys, np.repeat(keys[-1:], 2**rounds - len(keys))]))
    place = node.new_constant(np.zeros(node.shape(), np.int32))
    for half in reversed(range(rounds)):
        further = node.emit("add", place, node.new_constant(np.asarray(2**half, np.int32)))
        reached = node.emit("less_or_equal", node.emit("gather", table, further, axis=0), x)
        place = node.emit("where", reached, further, place)
    return node.emit("min", place, node.new_constant(np.asarray(len(keys) - 1, np.int32)))


def numeric_map(node: OnnxNode) -> tuple[Array, Array, Array]:
    """Keys, values, and the default of a LabelEncoder between numbers.

    Raises:
        UnsupportedError: it maps strings, and the data are none.
    """
    keys = _numbers(node, "keys")
    values = _numbers(node, "values")
    if keys is None or values is None:
        raise UnsupportedError(f"{node.label}: a map from or to strings, of data that is no tensor of strings")
    if len(keys) != len(values):
        raise ModelError(f"{node.label}: {len(keys)} keys and {len(values)} values")
    given = node.attr_tensor("default_tensor")
    floats, ints = node.attr_float("default_float", -0.0), node.attr_int("default_int64", -1)
    node.attr_string("default_string", "_Unused")
    default = given.reshape(()) if given is not None else np.asarray(floats if values.dtype.kind == "f" else ints)
    return keys, values, default.astype(values.dtype)


def _numbers(node: OnnxNode, name: str) -> Array | None:
    tensor = node.attr_tensor(f"{name}_tensor")
    if tensor is not None:
        return None if tensor.dtype == object else tensor.reshape(-1)
    ints, floats = node.attr_ints(f"{name}_int64s"), node.attr_floats(f"{name}_floats")
    if ints is not None:
        return np.asarray(ints, np.int64)
    return None if floats is None else np.asarray(floats, np.float32)
