"""Random small ONNX models with the values they should give, operator by operator from onnx.reference.

A model is a handful of nodes: single operators of all families, and patterns as exporters write them, which the graph
passes recognise. Values are computed as the model grows, so every shape is known and nothing overflows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = NDArray[np.generic]


@dataclass
class Model:
    """A model under construction.

    Attributes:
        values: what each tensor holds; constants too.
        exact: tensors whose bits do not depend on the order of additions: where order, equality and rounding may
            decide something.
    """

    rng: random.Random
    opset: int
    values: dict[str, Array] = field(default_factory=dict)
    exact: set[str] = field(default_factory=set)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)

    def array(self, shape: Sequence[int], scale: float = 1.0) -> NDArray[np.float32]:
        drawn = np.random.default_rng(self.rng.getrandbits(32)).standard_normal(tuple(shape)) * scale
        return np.asarray(drawn, np.float32)

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
        fan = math.prod(shape[1:]) if len(shape) > 1 else 1
        return self.constant(self.array(shape, scale=1 / math.sqrt(max(fan, 1))))

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def add(self, op: str, *inputs: str, outputs: int = 1, keeps: bool = False, **attributes: Any) -> list[str]:
        """Append a node and compute it; `keeps`: it moves or selects values only."""
        names = [f"v{len(self.nodes)}_{n}" for n in range(outputs)]
        node = helper.make_node(op, inputs, names, **attributes)
        feeds = {name: self.values[name] for name in inputs if name}
        for name, value in zip(names, run_node(node, feeds, self.opset), strict=True):
            self.values[name] = value
            if keeps and all(name in self.exact for name in feeds):
                self.exact.add(names[0])
        self.nodes.append(node)
        return names

    def one(self, op: str, *inputs: str, keeps: bool = False, **attributes: Any) -> str:
        return self.add(op, *inputs, outputs=1, keeps=keeps, **attributes)[0]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.values[name].shape

    def pick(self, rank: int | None = None, *, exact: bool = False) -> str | None:
        """A float32 tensor computed so far, later ones rather; None when none fits."""
        found = [
            name for name, value in self.values.items()
            if name not in self.constants and value.dtype == np.float32 and (rank is None or value.ndim == rank)
            and (not exact or name in self.exact)
        ]  # fmt: skip
        return None if not found else found[-min(len(found), 1 + int(self.rng.expovariate(0.7)))]

    def proto(self) -> onnx.ModelProto:
        """The model; what no node reads is an output."""
        read = {name for node in self.nodes for name in node.input}
        written = [name for node in self.nodes for name in node.output]
        outputs = [name for name in written if name not in read]
        used = [name for name in self.constants if name in read]
        tensors = [numpy_helper.from_array(self.values[name], name) for name in used]
        graph = helper.make_graph(
            self.nodes, "random", [self._info(n) for n in self.inputs], [self._info(n) for n in outputs], tensors
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version = 9
        return model

    def _info(self, name: str) -> onnx.ValueInfoProto:
        value = self.values[name]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def run_node(node: onnx.NodeProto, feeds: dict[str, Array], opset: int) -> list[Array]:
    """The outputs of one node by onnx.reference."""
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output]
    graph = helper.make_graph([node], "node", infos, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    with np.errstate(all="ignore"):
        return [np.asarray(found) for found in ReferenceEvaluator(model).run(None, feeds)]
