"""Random small ONNX models with the values they should give, operator by operator from onnx.reference.

A model is a handful of nodes: single operators of all families, and patterns as exporters write them, which the graph
passes recognise. Values are computed as the model grows, so every shape is known and nothing overflows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.property.random_graph_forms import EVALUATED, Unfit, at_opset

Array = NDArray[np.generic]
Step = Callable[["Model"], None]
STEPS: list[tuple[float, Step]] = []


def step(weight: float) -> Callable[[Step], Step]:
    """Register a way for a model to grow; it may do nothing, or raise Unfit, when no tensor suits it."""

    def register(function: Step) -> Step:
        STEPS.append((weight, function))
        return function

    return register


@dataclass
class Model:
    """A model under construction.

    Attributes:
        dtype: of its floats.
        values: what each tensor holds; constants too.
        exact: tensors whose bits do not depend on the order of additions: where order, equality and rounding may
            decide something.
        shown: tensors that are outputs though nodes read them.
        open: the model does not say how long the first axis of its inputs is.
        loose: shapes follow from values of the run, so outputs do not declare any.
    """

    rng: random.Random
    opset: int
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float32))
    values: dict[str, Array] = field(default_factory=dict)
    exact: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    open: bool = False
    loose: bool = False

    def array(self, shape: Sequence[int], scale: float = 1.0) -> Array:
        drawn = np.random.default_rng(self.rng.getrandbits(32)).standard_normal(tuple(shape)) * scale
        return np.asarray(drawn, self.dtype)

    def input(self, array: Array) -> str:
        name = f"in{len(self.inputs)}"
        self.inputs.append(name)
        self.values[name] = array
        self.exact.add(name)
        return name

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(name)
        self.values[name] = np.asarray(array)
        self.exact.add(name)
        return name

    def weight(self, *shape: int) -> str:
        if 0 in shape:
            raise Unfit("an empty weight")
        fan = math.prod(shape[1:]) if len(shape) > 1 else 1
        return self.constant(self.array(shape, scale=1 / math.sqrt(max(fan, 1))))

    def number(self, value: float) -> str:
        return self.constant(np.array(value, self.dtype))

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    @property
    def float_code(self) -> int:
        """ONNX's number of the model's float dtype."""
        return helper.np_dtype_to_tensor_dtype(self.dtype)

    def has(self, op: str) -> bool:
        """The model's opset has the operator."""
        return bool(onnx.defs.has(op, self.opset, ""))

    def add(self, op: str, *inputs: str, outputs: int = 1, keeps: bool = False, **attributes: Any) -> list[str]:
        """Append a node and compute it; it is written as in opset 18 or later, and turned into the model's own.

        Args:
            keeps: it moves or selects values only.

        Raises:
            Unfit: there is no such node in the model's opset, for these types, or onnx.reference cannot compute it.
        """
        names = [f"v{len(self.nodes)}_{n}" for n in range(outputs)]
        node = helper.make_node(op, inputs, names, **attributes)
        feeds = {name: self.values[name] for name in inputs if name}
        found = run_node(node, feeds, max(self.opset, EVALUATED))
        own = at_opset(node, self.values, self.opset)
        check_node(own, {name: self.values[name] for name in own.input if name}, self.opset)
        self.nodes.append(own)
        for name, value in zip(names, found, strict=True):
            self.values[name] = value
            if keeps and all(name in self.exact for name in feeds):
                self.exact.add(name)
        return names

    def one(self, op: str, *inputs: str, keeps: bool = False, **attributes: Any) -> str:
        return self.add(op, *inputs, outputs=1, keeps=keeps, **attributes)[0]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.values[name].shape

    def pick(self, rank: int | None = None, *, exact: bool = False, dtype: Any = None) -> str | None:
        """A tensor computed so far, of the model's floats or of `dtype`, later ones rather; None when none fits."""
        wanted = self.dtype if dtype is None else np.dtype(dtype)
        found = [
            name for name, value in self.values.items()
            if name not in self.constants and value.dtype == wanted and (rank is None or value.ndim == rank)
            and (not exact or name in self.exact)
        ]  # fmt: skip
        return None if not found else found[-min(len(found), 1 + int(self.rng.expovariate(0.7)))]

    def need(self, rank: int | None = None, *, exact: bool = False, dtype: Any = None) -> str:
        """`pick`, or Unfit."""
        found = self.pick(rank, exact=exact, dtype=dtype)
        if found is None:
            raise Unfit("no tensor suits")
        return found

    def proto(self) -> onnx.ModelProto:
        """The model; what no node reads is an output."""
        read = {name for node in self.nodes for name in node.input}
        written = [name for node in self.nodes for name in node.output]
        outputs = [name for name in written if name not in read or name in self.shown]
        inner = {n for node in self.nodes for a in node.attribute for g in a.g.node for n in g.input}
        used = [name for name in self.constants if name in read | inner]
        tensors = [numpy_helper.from_array(self.values[name], name) for name in used]
        graph = helper.make_graph(
            self.nodes, "random", [info(n, self.values[n], axis="n" if self.open else None) for n in self.inputs],
            [info(n, self.values[n], known=not (self.open or self.loose)) for n in outputs], tensors,
        )  # fmt: skip
        return model_of(graph, self.opset)


def info(name: str, value: Array, *, known: bool = True, axis: str | None = None) -> onnx.ValueInfoProto:
    """Type and shape of a tensor: only the rank where that is not known, `axis` instead of the first size."""
    shape: list[int | str | None] = [n if known else None for n in value.shape]
    if axis is not None and len(shape) > 1:
        shape[0] = f"{axis}{shape[0]}"  # of one name only what is equally long
    code = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, code, shape)


def model_of(graph: onnx.GraphProto, opset: int) -> onnx.ModelProto:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 9 if opset < 23 else 13
    return model


def _alone(node: onnx.NodeProto, feeds: dict[str, Array], opset: int) -> onnx.ModelProto:
    """A model of one node."""
    outputs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output]
    return model_of(helper.make_graph([node], "node", [info(n, v) for n, v in feeds.items()], outputs), opset)


def run_node(node: onnx.NodeProto, feeds: dict[str, Array], opset: int) -> list[Array]:
    """The outputs of one node by onnx.reference.

    Raises:
        Unfit: the reference fails.
    """
    with np.errstate(all="ignore"):
        try:
            return [np.asarray(found) for found in ReferenceEvaluator(_alone(node, feeds, opset)).run(None, feeds)]
        except Exception as error:  # whatever the reference cannot do is no case
            raise Unfit(f"{node.op_type}: {error}") from error


def check_node(node: onnx.NodeProto, feeds: dict[str, Array], opset: int) -> None:
    """
    Raises:
        Unfit: the opset has no such node.
    """
    model = _alone(node, feeds, opset)
    try:  # outputs have no type of their own here, so inference, not the checker, must say what is wrong
        onnx.checker.check_node(node, _context(opset, model.ir_version))
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise Unfit(f"{node.op_type}: {error}") from error


def _context(opset: int, ir_version: int) -> Any:
    context = onnx.checker.C.CheckerContext()
    context.ir_version = ir_version
    context.opset_imports = {"": opset}
    return context
