"""Operators that take so little time that NumPy answers before a program could be compiled: for values whose shapes
are seldom the same twice.

A function is made for a node once, and gives the results of what comes usually: numbers of 32 or 64 bits, small
integers, bools. What does not, None, is for the operator's conversion and its evaluation to give, or to refuse
(`autotune.graph.frontend.moved.evaluated`), which are the definition of these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx

from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.host.node import HostValue
from autotune.graph.ir import Array

Arrays = Sequence[Array]
Eager = Callable[[Sequence[HostValue]], "Sequence[HostValue] | None"]
"""Values of a node's inputs, None where one is left out, to its outputs; None where that is left to the definition."""
Compute = Callable[[Arrays], "Arrays | None"]
"""The same of tensors, of which all are given that must be."""
Make = Callable[[NodeAttributes], "Compute | None"]

MAKERS: dict[str, tuple[int, Make]] = {}
PLAIN = frozenset("?bhilqBHILQfd")
"""NumPy's characters of the types that come usually."""


def eagerly(*ops: str, inputs: int = 1) -> Callable[[Make], Make]:
    """Register what makes the function of operators of the default domain. `inputs`: so many must be given."""

    def register(make: Make) -> Make:
        MAKERS.update(dict.fromkeys(ops, (inputs, make)))
        return make

    return register


def is_eager(proto: onnx.NodeProto) -> bool:
    """Whether an operator of numbers may run at once, on any shapes."""
    return proto.op_type in MAKERS and proto.domain in ("", "ai.onnx")


def eager(node: NodeAttributes) -> Eager | None:
    """The function of a node; None where its attributes are left to the definition."""
    least, make = MAKERS[node.op]
    compute = make(node)
    return None if compute is None else partial(_usual, compute, least)


def _usual(compute: Compute, least: int, values: Sequence[HostValue]) -> Sequence[HostValue] | None:
    given: list[Any] = list(values)
    while given and given[-1] is None:
        given.pop()
    if len(given) < least:
        return None
    for value in given:
        if not isinstance(value, np.ndarray) or value.dtype.char not in PLAIN:
            return None
    try:
        found = compute(given)
    except (ValueError, IndexError, TypeError, OverflowError):  # the definition says what is wrong
        return None
    return None if found is None else [np.asarray(a, order="C") for a in found]


def quietly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Without NumPy's warnings of what floats become."""

    def call(*arrays: Any, **more: Any) -> Any:
        if arrays[0].dtype.kind != "f":
            return function(*arrays, **more)
        with np.errstate(all="ignore"):
            return function(*arrays, **more)

    return call


def ints_of(array: Array) -> list[int]:
    if array.dtype.kind not in "iu":
        raise TypeError("integers are needed")
    found: list[int] = array.reshape(-1).tolist()
    return found


def axes_of(node: NodeAttributes) -> Callable[[Arrays], list[int] | None]:
    """Of an attribute, or since a later opset of the second input."""
    own = list(node.attr_ints("axes") or ()) if node.has("axes") else None
    return lambda given: own if own is not None else ints_of(given[1]) if len(given) > 1 else None
