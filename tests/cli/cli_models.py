"""Small ONNX models for the command line's tests, and the command line itself."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner, Result

from autotune.cli.commands import COMMANDS
from autotune.cli.main import make_app


def invoke(*args: str | Path) -> Result:
    """Run `autotune ...` in this process."""
    return CliRunner().invoke(make_app(COMMANDS), [str(arg) for arg in args])


def conv_model(batch: int | str = 1, op: str = "Conv") -> onnx.ModelProto:
    """Two convolutions with bias and relu, 3 -> 16 -> 16 channels, 8×8 pixels; input `x`, output `y`."""
    rng = np.random.default_rng(0)

    def tensor(name: str, *shape: int) -> onnx.TensorProto:
        values = rng.standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(np.prod(shape[1:]) or 1))
        return numpy_helper.from_array(values, name)

    pads: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node(op, ["x", "w0", "b0"], ["a"], **pads),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "w1"], ["y"], **pads),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 16, 8, 8])],
        [tensor("w0", 16, 3, 3, 3), tensor("b0", 16), tensor("w1", 16, 16, 3, 3)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def chain_model(length: int) -> onnx.ModelProto:
    """Matrix products in a row, each of another size, with a softmax between; input `x`, output `y`."""
    sizes = [16 + 8 * n for n in range(length + 1)]
    nodes, weights = [], []
    for n, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        values = np.full((rows, columns), 1 / rows, np.float32)
        weights.append(numpy_helper.from_array(values, f"w{n}"))
        nodes.append(helper.make_node("MatMul", [f"s{n - 1}" if n else "x", f"w{n}"], [f"p{n}"], f"product{n}"))
        nodes.append(helper.make_node("Softmax", [f"p{n}"], [f"s{n}" if n < length - 1 else "y"], f"softmax{n}"))
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, sizes[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, sizes[-1]])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def save(model: onnx.ModelProto, path: Path) -> Path:
    onnx.save(model, str(path))
    return path
