"""What a converter sees of one ONNX node, and the registry of converters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, Union

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.builder import GraphBuilder, make_attrs
from autotune.graph.evaluate import evaluate_node
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.infer import infer
from autotune.graph.ir import Array, Node, Value
from autotune.ops.workload import AttrValue
from autotune.plugins import load_plugins, registered
from autotune.tensor import DType


class OutsideError(ModelError):
    """Indices that are known are outside of what they are for."""


class RunTimeValueError(UnsupportedError):
    """A converter needs a value that is known at run time only."""


Converted = Union[str, Sequence[str]]
Converter = Callable[["OnnxNode"], Converted]
AnyConverter = TypeVar("AnyConverter", bound=Converter)
MAX_BROADCAST_ELEMENTS = 2**28
EAGER_ELEMENTS = 2**12  # shape arithmetic works on a handful; larger constants are left to the folding pass
LATER = frozenset({"dequantize"})  # the passes want to see what a product's operands are made of
MICROSOFT = "com.microsoft"
_CONVERTERS: dict[tuple[str, str], Converter] = {}
_MOST_INPUTS: dict[tuple[str, str], int] = {}  # of operators that onnx has no schema of


def converts(*op_types: str) -> Callable[[AnyConverter], AnyConverter]:
    """Register a converter for operators of the default ONNX domain. It emits nodes and returns the results."""

    def register(function: AnyConverter) -> AnyConverter:
        for op_type in op_types:
            _register("", op_type, function)
        return function

    return register


def contributed(
    op_type: str, inputs: int, domains: Sequence[str] = (MICROSOFT,)
) -> Callable[[AnyConverter], AnyConverter]:
    """Register a converter for an operator of another domain: ONNX Runtime's own, or the user's.

    onnx has no schema of them: `inputs` is how many the converter knows, and attributes that it does not look at are
    refused.
    """

    def register(function: AnyConverter) -> AnyConverter:
        for domain in domains:
            _register(domain, op_type, function)
            _MOST_INPUTS[domain, op_type] = inputs
        return function

    return register


def _register(domain: str, op_type: str, function: Converter) -> None:
    if (domain, op_type) in _CONVERTERS:
        known = _CONVERTERS[domain, op_type].__qualname__
        raise ValueError(f"{op_type} has a converter already: {known}")
    registered(function)
    _CONVERTERS[domain, op_type] = function


def converter_for(domain: str, op_type: str) -> Converter | None:
    return _CONVERTERS.get(_key(domain, op_type))


def most_inputs(domain: str, op_type: str) -> int | None:
    """How many inputs the converter of an operator without a schema knows; None for any other operator."""
    return _MOST_INPUTS.get(_key(domain, op_type))


def _key(domain: str, op_type: str) -> tuple[str, str]:
    """Of the registries, once plugins have had their turn."""
    key = ("" if domain == "ai.onnx" else domain, op_type)
    if key not in _CONVERTERS:
        load_plugins()
    return key


@dataclass(frozen=True)
class OnnxNode(NodeAttributes):
    """One ONNX node during conversion. `inputs` are names of graph values, None where an input is omitted."""

    inputs: tuple[str | None, ...]
    builder: GraphBuilder
    observe: Callable[[str], Array | None] = lambda name: None  # the value that a graph input has in this run

    # Operands --------------------------------------------------------------------------------------

    def given(self, position: int) -> bool:
        """Whether the optional input at `position` is there."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def input(self, position: int) -> str:
        name = self.inputs[position] if position < len(self.inputs) else None
        if name is None:
            raise ModelError(f"{self.label}: input {position} is missing")
        return name

    def all_inputs(self) -> tuple[str, ...]:
        return tuple(self.input(position) for position in range(len(self.inputs)))

    def value(self, position: int = 0) -> Value:
        """Type of an input."""
        return self.builder.values[self.input(position)]

    def shape(self, position: int = 0) -> tuple[int, ...]:
        return self.value(position).shape

    def rank(self, position: int = 0) -> int:
        return len(self.shape(position))

    def is_constant(self, position: int) -> bool:
        return self.input(position) in self.builder.constants

    def constant(self, position: int, what: str) -> Array:
        """The array of an input that must be known while compiling (a shape, axes, ...).

        Raises:
            RunTimeValueError: it is not known yet; the node is put off until it is.
        """
        name = self.input(position)
        array = self.builder.constants.get(name)
        if array is None:
            array = self.observe(name)
        if array is None:
            raise RunTimeValueError(f"{self.label}: {what} ('{name}') is computed at run time")
        return array

    def constant_ints(self, position: int, what: str) -> tuple[int, ...]:
        array = self.constant(position, what)
        if array.dtype.kind not in "iu":
            raise ModelError(f"{self.label}: {what} must be integers, not {array.dtype}")
        return tuple(int(item) for item in array.reshape(-1))

    def constant_number(self, position: int, what: str) -> int | float:
        """The one number that an input must be while compiling: a length, a limit, ..."""
        array = self.constant(position, what)
        if array.size != 1:
            raise ModelError(f"{self.label}: {what} is one number, not a tensor of shape {array.shape}")
        number: int | float = array.reshape(()).item()
        return number

    def constant_int(self, position: int, what: str) -> int:
        found = self.constant_ints(position, what)
        if len(found) != 1:
            raise ModelError(f"{self.label}: {what} is one number, not {len(found)}")
        return found[0]

    def ints_or_input(self, name: str, position: int) -> tuple[int, ...] | None:
        """Integers that old opsets give as an attribute and new ones as a constant input."""
        if self.has(name):
            return self.attr_ints(name)
        return self.constant_ints(position, name) if self.given(position) else None

    def axis(self, axis: int, rank: int) -> int:
        """An axis as a non-negative number, checked."""
        if not -rank <= axis < rank:
            raise ModelError(f"{self.label}: axis {axis} is outside a tensor of rank {rank}")
        return axis % rank if rank else 0

    # Results ---------------------------------------------------------------------------------------

    @property
    def hint(self) -> str:
        """Names new values after the first ONNX output."""
        return next((name for name in self.proto.output if name), self.op)

    def wanted(self, position: int) -> bool:
        """Whether the ONNX node gives its output at `position` a name."""
        return position < len(self.proto.output) and bool(self.proto.output[position])

    def emit(self, op: str, *inputs: str, **attrs: AttrValue) -> str:
        """Append a graph node. Small constants are computed at once: shapes and axes must be known while loading."""
        dtype, shape = infer(op, [self.builder.values[name] for name in inputs], attrs)
        arrays = [self.builder.constants[name] for name in inputs if name in self.builder.constants]
        small = math.prod(shape) + sum(a.size for a in arrays) <= EAGER_ELEMENTS
        if len(arrays) == len(inputs) and small and op not in LATER:
            types = [self.builder.values[name] for name in inputs]
            node = Node(op, inputs, Value(self.hint, dtype, shape), make_attrs(**attrs))
            return self.new_constant(evaluate_node(node, types, arrays))
        return self.builder.emit(op, inputs, self.hint, self.proto.name or self.hint, **attrs)

    def emit_results(self, count: int, op: str, *inputs: str, **attrs: AttrValue) -> tuple[str, ...]:
        """The results of an operator with `count` of them: a graph node for each that the ONNX node gives a name.

        The nodes differ in their attribute `result` only. A result without a name has no value: "".
        """
        return tuple(self.emit(op, *inputs, result=n, **attrs) if self.wanted(n) else "" for n in range(count))

    def new_constant(self, array: Array) -> str:
        """Add a constant. Raises UnsupportedError for a few numbers blown up to gigabytes by broadcasting."""
        if array.size > MAX_BROADCAST_ELEMENTS and 0 in array.strides:
            raise UnsupportedError(f"{self.label}: a constant of shape {array.shape} made of repeated numbers")
        return self.builder.constant(array, self.hint)

    def must_lie(self, indices: str, low: Sequence[int], high: Sequence[int], what: str) -> None:
        """Refuse indices outside of low..high-1, at once where they are constant, else in every run that has some.

        Args:
            indices: a value of integers.
            low, high: one bound for all of them, or one for each column of the last dimension.
            what: says what they are, for the message.

        Raises:
            ModelError: the indices are constant, and some are outside.
        """
        bounds = [f"{a}..{b - 1}" for a, b in zip(low, high, strict=True)]
        complaint = f"{self.label}: {what} is outside of {' × '.join(bounds)}; give others"
        self.refuse_outside(indices, low, high, complaint, named=True)

    def refuse_outside(
        self, indices: str, low: Sequence[int], high: Sequence[int], complaint: str, named: bool = False
    ) -> None:
        """`must_lie` with a message of the caller's; `named`: one of those that are outside is told where it is
        known."""
        if 0 in self.builder.values[indices].shape:
            return
        array = self.builder.constants.get(indices)
        if array is None:
            found = self.emit("any_outside", indices, low=tuple(low), high=tuple(high))
            self.builder.check(found, complaint)
            return
        outside = (array < np.asarray(low)) | (array >= np.asarray(high))
        if outside.any():
            one = np.broadcast_to(array, outside.shape)[outside][0]
            raise OutsideError(f"{complaint} ({one} is one)" if named else complaint)

    def scalar(self, number: float, like: str) -> str:
        """A scalar constant of the dtype of value `like`."""
        return self.constant_like(number, like, ())

    def constant_like(self, number: float, like: str, shape: Sequence[int]) -> str:
        """A constant of the dtype of `like`, every element `number`, as a view of one element."""
        dtype = DType(self.builder.values[like].dtype).numpy
        return self.new_constant(np.broadcast_to(np.asarray(number, dtype=dtype), tuple(shape)))

    def converted(self, name: str, dtype: DType) -> str:
        """`name` in another dtype; no node is made when it has that one already."""
        return name if self.builder.values[name].dtype == dtype.value else self.emit("cast", name, to=dtype.value)

    def reshaped(self, name: str, shape: Sequence[int]) -> str:
        """`name` in another shape; constants are viewed, no node is made when nothing changes."""
        shape = tuple(shape)
        if self.builder.values[name].shape == shape:
            return name
        if name in self.builder.constants and int(np.prod(shape)) == self.builder.constants[name].size:
            return self.new_constant(self.builder.constants[name].reshape(shape))
        return self.emit("reshape", name, shape=shape)

    def transposed(self, name: str, perm: Sequence[int]) -> str:
        """`name` with its dimensions in another order; constants are viewed, no node is made when nothing changes."""
        perm = tuple(perm)
        if perm == tuple(range(len(perm))) and len(perm) == len(self.builder.values[name].shape):
            return name
        if name in self.builder.constants and sorted(perm) == list(range(self.builder.constants[name].ndim)):
            return self.new_constant(self.builder.constants[name].transpose(perm))
        return self.emit("transpose", name, perm=perm)

    def sliced(self, name: str, ranges: Sequence[range]) -> str:
        """The part of `name` that the ranges select, one per dimension; a view when it is constant."""
        if name in self.builder.constants:
            window = tuple(
                slice(r.start, r.stop if r.stop >= 0 else None, r.step) if r else slice(0, 0) for r in ranges
            )
            return self.new_constant(self.builder.constants[name][window])
        if all(r == range(extent) for r, extent in zip(ranges, self.builder.values[name].shape, strict=True)):
            return name
        begin, size, step = (tuple(map(f, ranges)) for f in (lambda r: r.start, len, lambda r: r.step))
        return self.emit("slice", name, begin=begin, size=size, step=step)

    def expanded(self, name: str, shape: tuple[int, ...]) -> str:
        """`name` broadcast to a shape; a view when it is constant."""
        if self.builder.values[name].shape == shape:
            return name
        if name in self.builder.constants:
            return self.new_constant(np.broadcast_to(self.builder.constants[name], shape))
        return self.emit("expand", name, shape=shape)
