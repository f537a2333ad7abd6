"""Random ONNX models with open dimensions b and l, made of operators that keep, move, mix or lose them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.random import Generator
from onnx import TensorProto, helper, numpy_helper

WIDTH = 4
Dims = tuple[int | str, ...]


class OpenModel:
    """A model being written; `values` are names with their dimensions. Some are not possible: runs tell."""

    def __init__(self, rng: Generator) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.values: list[tuple[str, Dims]] = [("x", ("b", "l", WIDTH)), ("m", ("b", "l"))]

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, array: Any) -> str:
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def ints(self, *numbers: int) -> str:
        return self.constant(np.asarray(numbers, np.int64))

    def weight(self, *shape: int) -> str:
        return self.constant(self.rng.standard_normal(shape).astype(np.float32))

    def extent(self, name: str, axis: int) -> str:
        return self.node("Gather", self.node("Shape", name), self.constant(np.int64(axis)), axis=0)

    def step(self) -> None:
        """One more value."""
        rng = self.rng
        newest = len(self.values) - 1
        name, dims = self.values[newest if rng.random() < 0.6 else int(rng.integers(newest + 1))]
        axis = int(rng.integers(len(dims))) if dims else 0
        choice = str(rng.choice(KINDS))
        found, shape = name, dims
        if choice == "unary":
            op = str(rng.choice(["Exp", "Reciprocal", "Log", "Tanh", "Relu", "Neg", "Sqrt", "Abs", "Sigmoid"]))
            found = self.node(op, name)
        elif choice == "binary":
            other, more = self.values[int(rng.integers(len(self.values)))]
            if more != dims and more != dims[len(dims) - len(more) :]:
                return
            found = self.node(str(rng.choice(["Add", "Sub", "Mul", "Div", "Max"])), name, other)
        elif choice == "scale":
            found = self.node(str(rng.choice(["Add", "Mul", "Div"])), name, self.weight())
        elif choice == "weight" and dims[-1:] == (WIDTH,) and len(dims) > 1:
            found = self.node("Add", self.node("MatMul", name, self.weight(WIDTH, WIDTH)), self.weight(WIDTH))
        elif choice == "transpose" and dims:
            order = [int(n) for n in rng.permutation(len(dims))]
            found, shape = self.node("Transpose", name, perm=order), tuple(dims[n] for n in order)
        elif choice == "softmax" and dims:
            found = self.node(str(rng.choice(["Softmax", "LogSoftmax"])), name, axis=axis)
        elif choice == "reduce" and dims:
            op = str(rng.choice(["ReduceMax", "ReduceMin", "ReduceMean", "ReduceL2", "ReduceSum", "ReduceLogSumExp"]))
            keep = int(rng.integers(2))
            if op == "ReduceSum":
                found = self.node(op, name, self.ints(axis), keepdims=keep)
            else:
                found = self.node(op, name, axes=[axis], keepdims=keep)
            shape = (*dims[:axis], *([1] if keep else []), *dims[axis + 1 :])
        elif choice == "attention" and len(dims) > 1:
            order = [*range(len(dims) - 2), len(dims) - 1, len(dims) - 2]
            scores = self.node("MatMul", name, self.node("Transpose", name, perm=order))
            scores = self.node("Softmax", scores, axis=-1) if rng.random() < 0.8 else scores
            found = self.node("MatMul", scores, name)
        elif choice == "heads" and dims == ("b", "l", WIDTH):
            found, shape = self.node("Reshape", name, self.ints(0, 0, 2, -1)), ("b", "l", 2, WIDTH // 2)
        elif choice == "join" and dims == ("b", "l", 2, WIDTH // 2):
            found, shape = self.node("Reshape", name, self.ints(0, -1, WIDTH)), ("b", "l", WIDTH)
        elif choice == "target" and len(dims) == 3:
            parts = [self.node("Unsqueeze", self.extent(name, n), self.ints(0)) for n in range(2)]
            found = self.node("Reshape", name, self.node("Concat", *parts, self.ints(-1), axis=0))
        elif choice == "flat" and len(dims) > 1:
            found = self.node("Reshape", self.node("Flatten", name, axis=axis), self.node("Shape", name))
        elif choice == "first" and dims:
            found = self.node("Gather", name, self.constant(np.int64(rng.integers(2) - 1)), axis=axis)
            shape = (*dims[:axis], *dims[axis + 1 :])
        elif choice == "slice" and dims:
            last = self.ints(int(rng.choice([1, 2, 2**31 - 1])))
            found = self.node("Slice", name, self.ints(int(rng.integers(2))), last, self.ints(axis))
            shape = (*dims[:axis], "?", *dims[axis + 1 :])
        elif choice == "cumsum" and dims:
            found = self.node("CumSum", name, self.constant(np.int64(axis)), reverse=int(rng.random() < 0.3))
        elif choice == "norm" and dims[-1:] == (WIDTH,):
            found = self.node("LayerNormalization", name, self.weight(WIDTH), self.weight(WIDTH), axis=-1)
        elif choice == "concat" and dims:
            found = self.node("Concat", name, name, axis=axis)
            shape = (*dims[:axis], "?" if isinstance(dims[axis], str) else 2 * int(dims[axis]), *dims[axis + 1 :])
        elif choice == "places" and "l" in dims:
            at = dims.index("l")
            row = self.node("Range", self.constant(np.int64(0)), self.extent(name, at), self.constant(np.int64(1)))
            shaped = self.ints(*[-1 if n == at else 1 for n in range(len(dims))])
            found = self.node("Add", name, self.node("Reshape", self.node("Cast", row, to=TensorProto.FLOAT), shaped))
        elif choice == "table" and dims == ("b", "l", WIDTH):
            end = self.node("Unsqueeze", self.extent(name, 1), self.ints(0))
            rows = self.node("Slice", self.weight(32, WIDTH), self.ints(0), end, self.ints(0))
            found = self.node("Add", name, rows)
        elif choice == "average" and "l" in dims:
            length = self.node("Cast", self.extent(name, dims.index("l")), to=TensorProto.FLOAT)
            found = self.node("Div", name, length)
        elif choice == "expand" and len(dims) == 3:
            row = self.node("Unsqueeze", self.weight(WIDTH), self.ints(0, 1))
            found = self.node("Add", self.node("Expand", row, self.node("Shape", "x")), "x")
            shape = ("b", "l", WIDTH)
        else:
            return
        if found != name and "?" not in shape:
            self.values.append((found, shape))

    def finish(self) -> bytes:
        """The model; its outputs are its last two values."""
        outputs = list(dict.fromkeys(name for name, _ in self.values[-2:]))
        outputs = [self.node("Identity", name) for name in outputs]
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n, dims in
                  (("x", ("b", "l", WIDTH)), ("m", ("b", "l")))]  # fmt: skip
        graph = helper.make_graph(
            self.nodes, "open", inputs, [helper.make_empty_tensor_value_info(n) for n in outputs], self.tensors
        )
        data: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
        return data


KINDS = (
    "unary", "binary", "scale", "weight", "transpose", "softmax", "reduce", "attention", "heads", "join", "target",
    "flat", "first", "slice", "cumsum", "norm", "concat", "places", "table", "average", "expand",
)  # fmt: skip


def random_open_model(seed: int) -> bytes:
    model = OpenModel(np.random.default_rng(seed))
    for _ in range(int(model.rng.integers(2, 14))):
        model.step()
    return model.finish()
