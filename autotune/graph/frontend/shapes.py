"""Constants, and what is known about shapes while compiling: Shape and Size become constants."""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.node import MAX_BROADCAST_ELEMENTS, OnnxNode, converts
from autotune.graph.ir import Array
from autotune.tensor.extents import check_shape


@converts("Constant")
def constant(node: OnnxNode) -> str:
    return node.new_constant(_constant_array(node))


def _constant_array(node: OnnxNode) -> Array:
    if node.has("value"):
        array = node.attr_tensor("value")
    elif node.has("sparse_value"):
        array = node.attr_sparse("sparse_value")
    elif node.has("value_float"):
        array = np.asarray(node.attr_float("value_float", 0.0), np.float32)
    elif node.has("value_int"):
        array = np.asarray(node.attr_int("value_int", 0), np.int64)
    elif node.has("value_floats"):
        array = np.asarray(node.attr_floats("value_floats"), np.float32)
    elif node.has("value_ints"):
        array = np.asarray(node.attr_ints("value_ints"), np.int64)
    else:
        raise UnsupportedError(f"{node.label}: a constant that is no tensor of numbers")
    if array is None:
        raise ModelError(f"{node.label}: the constant has no value")
    return array


@converts("ConstantOfShape")
def constant_of_shape(node: OnnxNode) -> str:
    """A broadcast view: no memory, whatever the shape says."""
    shape = check_shape(node.constant_ints(0, "the shape"), "the result")
    value = node.attr_tensor("value")
    if value is not None and value.size != 1:
        raise ModelError(f"{node.label}: the value is one number, not a tensor of shape {value.shape}")
    scalar = np.zeros((), np.float32) if value is None else value.reshape(())
    return node.new_constant(np.broadcast_to(scalar, shape))


@converts("Shape")
def shape(node: OnnxNode) -> str:
    end = node.attr_int("end", node.rank())
    return node.new_constant(np.asarray(node.shape()[node.attr_int("start", 0) : end], np.int64))


@converts("Range")
def range_(node: OnnxNode) -> str:
    start, limit, delta = (node.constant_number(n, "a bound of the range") for n in range(3))
    count = (limit - start) / delta if delta else math.inf
    if not abs(count) <= MAX_BROADCAST_ELEMENTS:  # NaN too
        raise ModelError(f"{node.label}: impossible range from {start} to {limit} by {delta}")
    return node.new_constant(np.arange(start, limit, delta, dtype=node.constant(0, "the start").dtype))


@converts("Size")
def size(node: OnnxNode) -> str:
    return node.new_constant(np.asarray(math.prod(node.shape()), np.int64))
