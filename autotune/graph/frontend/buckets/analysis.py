"""Whether a model may run with an open dimension padded, and what that takes: each operator's rule, in order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper

from autotune.errors import AutotuneError
from autotune.graph.frontend.buckets.facts import ANYTHING, CannotPad, Extent, Fact, NeedsZeros
from autotune.graph.frontend.buckets.rules import RULES, At
from autotune.graph.frontend.model import OnnxModel
from autotune.graph.frontend.source import elem_type_of, tensor_array
from autotune.graph.ir import Array
from autotune.tensor.dtype import DType

SHAPE_ELEMENTS = 64
"""Elements of a list that may be a shape."""

_LINEAR = {"Add", "Sub", "Mul", "Div", "MatMul"}  # with a constant: zeros in the padding become bounded numbers
_MOVES = {"Transpose", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Dropout", "Cast"}


@dataclass(frozen=True)
class Mask:
    """What an operator must find in the padding of one of its inputs.

    Attributes:
        axes: along which the padding is replaced.
        fill: by what.
        dtype, rank: of the input.
    """

    axes: tuple[int, ...]
    fill: float
    dtype: str
    rank: int


@dataclass(frozen=True)
class Padding:
    """How a model runs with an open dimension padded.

    Attributes:
        symbol: the dimension.
        mixes: elements along it depend on each other or on their place; otherwise it may be cut into pieces, too.
        zeroed: values whose padding is made zero for all who read them.
        masks: inputs of nodes that get a mask of their own, by place in the model's table and position.
        outputs: axes of the dimension in each output.
    """

    symbol: str
    mixes: bool
    zeroed: Mapping[str, Mask]
    masks: Mapping[tuple[int, int], Mask]
    outputs: Mapping[str, tuple[int, ...]]


def padding_of(model: OnnxModel, symbol: str) -> Padding:
    """What it takes to pad an open dimension of the inputs.

    Raises:
        CannotPad: padding may change other elements; the message names the node.
    """
    return _Analysis(model, symbol).result()


class _Analysis:
    def __init__(self, model: OnnxModel, symbol: str) -> None:
        self.model, self.symbol = model, symbol
        self.arrays: dict[str, Array] = dict(model.initializers)
        for entry in model.nodes:
            if entry.proto.op_type == "Constant" and entry.writes:
                found = next((a.t for a in entry.proto.attribute if a.name == "value"), None)
                if found is not None:
                    self.arrays[entry.writes[0]] = tensor_array(found, model.folder, "a constant")
        self.types = _inferred(model)
        self._magnitudes: dict[str, float] = {}
        self.makers = {name: n for n, entry in enumerate(model.nodes) for name in entry.writes}

    def result(self) -> Padding:
        zeroed: dict[str, Mask] = {}
        while True:
            try:
                return self._pass(zeroed)
            except NeedsZeros as error:
                name = error.name
                if name in zeroed:
                    raise CannotPad(f"'{name}' may not be finite where it is padded") from None
                zeroed[name] = self._mask(name, self.facts[name], None, 0.0)

    def _pass(self, zeroed: Mapping[str, Mask]) -> Padding:
        facts: dict[str, Fact] = {}
        self.facts, self.zeroed = facts, zeroed
        for name, array in self.arrays.items():
            short = array.ndim <= 1 and array.size <= SHAPE_ELEMENTS and array.dtype.kind in "iu"
            elements = tuple(int(n) for n in array.reshape(-1)) if short else None
            facts[name] = Fact(array.shape, elements=elements)
        for declared in self.model.inputs:
            if not declared.is_tensor or declared.dims is None:
                raise CannotPad(f"input '{declared.name}' is of unknown rank, or no tensor")
            facts[declared.name] = Fact(declared.dims, bound=0.0)
        masks: dict[tuple[int, int], Mask] = {}
        mixes = False
        for index, entry in enumerate(self.model.nodes):
            if all(name in self.arrays for name in entry.writes):
                continue
            at = self._at(index)
            try:
                found = self._found(at, entry.reads)
            except (CannotPad, AutotuneError) as error:
                raise CannotPad(f"{at.node.label}: {error}") from None
            for name, fact in zip(entry.proto.output, found):
                if name:
                    fact = self._completed(name, fact)
                    mixes |= (fact.dims or ()).count(self.symbol) > 1
                    facts[name] = fact.with_zeros() if name in zeroed else fact
            for position, (axes, fill) in at.masks.items():
                masks[index, position] = self._mask(at.names[position], at.fact(position), axes, fill)
            mixes |= at.mixes
        outputs: dict[str, tuple[int, ...]] = {}
        for name in self.model.outputs:
            fact = facts[name]
            if fact.tells(self.symbol):
                raise CannotPad(f"output '{name}' is an extent of the open dimension")
            outputs[name] = tuple(n for n, extent in enumerate(fact.dims or ()) if extent == self.symbol)
        return Padding(self.symbol, mixes, dict(zeroed), masks, outputs)

    def _at(self, index: int) -> At:
        names = list(self.model.nodes[index].proto.input)
        return At(
            self.model.attributes(index),
            names,
            [self.facts.get(name) if name else None for name in names],
            [self.arrays.get(name) for name in names],
            self.symbol,
            self._source,
            self._largest,
        )

    def _largest(self, name: str) -> float:
        """The largest magnitude of a constant."""
        if name not in self._magnitudes:
            array = self.arrays[name]
            real = array.dtype.kind in "fiub" and array.size
            found = float(max(-float(array.min()), float(array.max()))) if real else ANYTHING
            self._magnitudes[name] = found if math.isfinite(found) else ANYTHING
        return self._magnitudes[name]

    def _found(self, at: At, reads: tuple[str, ...]) -> list[Fact]:
        """The facts of the results; an operator without a rule may not read the open dimension."""
        reading = [self.facts[name] for name in reads if name in self.facts]
        touched = any(fact.has(self.symbol) or fact.tells(self.symbol) for fact in reading)
        known = RULES.get(at.node.op) if at.node.proto.domain in ("", "ai.onnx") else None
        if known is not None:
            try:
                found = known(at)
                if len(found) < len(at.node.proto.output):
                    raise CannotPad("nobody knows what some of its results are")
                return found
            except (CannotPad, IndexError, ValueError) as error:  # the latter ones of attributes that do not fit
                if touched:
                    raise CannotPad(str(error)) from None
        elif touched:
            raise CannotPad("nobody knows what this operator does with an open dimension")
        return [Fact(self._static(name)) for name in at.node.proto.output]

    def _static(self, name: str) -> tuple[Extent, ...] | None:
        """The dimensions of a value in which the open dimension has no part."""
        found = self.types.get(name)
        if found is None or found[1] is None:
            return None
        return tuple(extent if isinstance(extent, int) else None for extent in found[1])

    def _completed(self, name: str, fact: Fact) -> Fact:
        """With static extents that the rule left to shape inference."""
        static = self._static(name)
        if fact.dims is None or static is None or len(static) != len(fact.dims):
            return fact
        return replace(fact, dims=tuple(b if a is None else a for a, b in zip(fact.dims, static)))

    def _mask(self, name: str, fact: Fact, axes: tuple[int, ...] | None, fill: float) -> Mask:
        dtype = self.types.get(name, (None, None))[0]
        if dtype is None or fact.dims is None or (math.isinf(fill) and not DType(dtype).is_float):
            raise CannotPad(f"'{name}' is no tensor of floats")
        chosen = tuple(n for n, extent in enumerate(fact.dims) if extent == self.symbol) if axes is None else axes
        return Mask(chosen, fill, dtype, len(fact.dims))

    def _source(self, name: str) -> str:
        """Upstream of a value, before the products with constant matrices that it comes from, where zeros bound it
        here: so those that read one value get one mask together."""
        at = best = name
        while at in self.makers and at not in self.zeroed:
            node = self.model.nodes[self.makers[at]].proto
            moving = [found for found in node.input if found and found not in self.arrays]
            plain = node.op_type in _MOVES and self.facts[node.input[0]].has(self.symbol)
            linear = node.op_type in _LINEAR and len(moving) == 1 and (
                node.op_type not in ("Div", "MatMul") or moving[0] == node.input[0]
            )  # fmt: skip
            above = node.input[0] if plain else moving[0] if linear else None
            if above is None or above not in self.facts or not self.facts[above].has(self.symbol):
                break
            at = above
            if node.op_type == "MatMul":
                best = at
        return name if best in self.zeroed else best


def _inferred(model: OnnxModel) -> dict[str, tuple[str | None, tuple[Extent, ...] | None]]:
    """dtype and dimensions of values, as far as ONNX's own inference knows them."""
    inputs, tensors = [], []
    for declared in model.inputs:
        if declared.is_tensor:
            inputs.append(helper.make_tensor_value_info(declared.name, elem_type_of(declared.dtype), declared.dims))
    for name, array in model.initializers.items():
        if array.dtype == object:
            continue
        if array.size <= SHAPE_ELEMENTS and array.dtype.kind in "iufb":
            tensors.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        else:
            kind = elem_type_of(DType.of(array.dtype).value)
            inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
    outputs = [helper.make_empty_tensor_value_info(name) for name in model.outputs]
    graph = helper.make_graph([entry.proto for entry in model.nodes], "model", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", max((entry.opset for entry in model.nodes), default=1))]
    domains = {entry.proto.domain for entry in model.nodes} - {"", "ai.onnx"}
    opsets += [helper.make_opsetid(domain, 1) for domain in domains]
    try:
        found = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets), data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError) as error:
        raise CannotPad(f"its shapes cannot be inferred: {' '.join(str(error).split())}") from error
    known: dict[str, tuple[str | None, tuple[Extent, ...] | None]] = {}
    for info in (*found.graph.value_info, *found.graph.input, *found.graph.output):
        tensor = info.type.tensor_type
        if not info.type.HasField("tensor_type"):
            continue
        dims = None
        if tensor.HasField("shape"):
            dims = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim)
        known[info.name] = (_dtype(tensor.elem_type), dims)
    return known


def _dtype(elem_type: int) -> str | None:
    try:
        return DType.of(helper.tensor_dtype_to_np_dtype(elem_type)).value
    except (KeyError, ValueError, TypeError):
        return None
