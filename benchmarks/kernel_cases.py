"""The operators that benchmarks.kernels compares: each as a small ONNX model in which it runs as in a network.

A chain feeds each operator with the result of the one before; a fan gives several of them one input, where shapes
forbid a chain. Either way engines reorder their operands at the borders only, and each operator has its own weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
EFFICIENTNET_B0 = (
    # channels, size, kernel, stride of every depthwise convolution
    (32, 112, 3, 1), (96, 112, 3, 2), (144, 56, 3, 1), (144, 56, 5, 2), (240, 28, 5, 1), (240, 28, 3, 2),
    (480, 14, 3, 1), (480, 14, 5, 1), (672, 14, 5, 1), (672, 14, 5, 2), (1152, 7, 5, 1), (1152, 7, 3, 1),
)  # fmt: skip
MOBILENET_V2 = (
    (32, 112, 3, 1), (96, 112, 3, 2), (144, 56, 3, 1), (144, 56, 3, 2), (192, 28, 3, 1), (192, 28, 3, 2),
    (384, 14, 3, 1), (576, 14, 3, 1), (576, 14, 3, 2), (960, 7, 3, 1),
)  # fmt: skip
ROWS = (  # of BERT-base at 128 tokens and of ViT-base
    ("softmax", (12, 128, 128)), ("softmax", (12, 197, 197)), ("layer norm", (128, 768)), ("layer norm", (197, 768)),
    ("GELU", (128, 3072)), ("GELU", (197, 3072)),
)  # fmt: skip
STEPS = {"softmax": 8, "layer norm": 3, "GELU": 14}
"""Multiplications and multiply-adds per element: an exponential takes seven, GELU two polynomials of five."""


@dataclass(frozen=True, slots=True)
class Case:
    """One operator in a model.

    Attributes:
        group: the class of operators it belongs to.
        name: shapes, for people.
        build: makes the model.
        count: how many of the operator the model runs, one after another.
        flops: of one, two per multiply-add.
        nbytes: that one must move at least: operands read once, the result written once.
    """

    group: str
    name: str
    build: Callable[[], onnx.ModelProto]
    count: int
    flops: int
    nbytes: int


class Net:
    """A model under construction; weights are seeded and scaled so that values keep their size."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._nodes: list[onnx.NodeProto] = []
        self._tensors: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._count = 0

    def input(self, *shape: int) -> str:
        name = f"input{len(self._inputs)}"
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def weight(self, *shape: int, fan_in: int) -> str:
        return self.constant(self._rng.standard_normal(shape, dtype=np.float32) / np.float32(math.sqrt(fan_in)))

    def constant(self, array: NDArray[np.generic]) -> str:
        name = f"constant{len(self._tensors)}"
        self._tensors.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        return self.nodes(op, 1, *inputs, **attributes)[0]

    def nodes(self, op: str, outputs: int, *inputs: str, **attributes: object) -> list[str]:
        """A node with several outputs."""
        names = [f"value{self._count + n}" for n in range(outputs)]
        self._count += outputs
        self._nodes.append(helper.make_node(op, inputs, names, **attributes))  # type: ignore[arg-type]
        return names

    def model(self, *outputs: str) -> onnx.ModelProto:
        results = [helper.make_empty_tensor_value_info(name) for name in outputs]
        for result in results:
            result.type.tensor_type.elem_type = TensorProto.FLOAT
        graph = helper.make_graph(self._nodes, "case", self._inputs, results, self._tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 9
        return onnx.shape_inference.infer_shapes(model)


# Matrix products ---------------------------------------------------------------------------------------


def products(m: int, *widths: int, layers: int) -> onnx.ModelProto:
    """`layers` products of m rows, their widths going round; without the bias a chain would be one product."""
    net = Net()
    x = net.input(m, widths[0])
    for layer in range(layers):
        k, n = widths[layer % len(widths)], widths[(layer + 1) % len(widths)]
        x = net.node("Gemm", x, net.weight(k, n, fan_in=k), net.weight(n, fan_in=1))
    return net.model(x)


def _gemms() -> Iterator[Case]:
    for size in (512, 1024):
        yield _product("GEMM", f"{size}³", size, (size,), 4)
    yield _product("GEMM", "128×768×768", 128, (768,), 8)
    yield _product("GEMM", "128×768×3072 and back", 128, (768, 3072), 6)
    # Weights of 96 MB and more: they come from memory, as in a model of that size.
    yield _product("skinny GEMM", "1×1024×1024", 1, (1024,), 24)
    yield _product("skinny GEMM", "4×768×3072 and back", 4, (768, 3072), 12)
    yield _product("skinny GEMM", "1×4096×4096", 1, (4096,), 2)


def _product(group: str, name: str, m: int, widths: tuple[int, ...], layers: int) -> Case:
    k, n = widths[0], widths[-1]
    nbytes = 4 * (m * k + k * n + m * n)
    return Case(group, name, lambda: products(m, *widths, layers=layers), layers, 2 * m * k * n, nbytes)


# Convolutions ------------------------------------------------------------------------------------------


def convolutions(size: int, channels: Sequence[int], kernel: int, layers: int) -> onnx.ModelProto:
    """A chain of convolutions of stride 1 whose channels go round."""
    net = Net()
    x = net.input(1, channels[0], size, size)
    for layer in range(layers):
        c, k = channels[layer % len(channels)], channels[(layer + 1) % len(channels)]
        weight = net.weight(k, c, kernel, kernel, fan_in=c * kernel**2)
        x = net.node("Conv", x, weight, pads=[kernel // 2] * 4, kernel_shape=[kernel, kernel])
    return net.model(x)


def strided(size: int, c: int, k: int, kernel: int, stride: int, groups: int, count: int) -> onnx.ModelProto:
    """A fan of convolutions with one input, behind a cheap convolution for the layout, its result averaged away."""
    net = Net()
    x = net.input(1, c, size, size)
    if c > 3:  # an image has no layout of its own; the inside of a network has the engine's
        x = net.node("Conv", x, net.weight(c, 1, 1, 1, fan_in=1), group=c)
    results = []
    for _ in range(count):
        weight = net.weight(k, c // groups, kernel, kernel, fan_in=c // groups * kernel**2)
        y = net.node("Conv", x, weight, pads=[kernel // 2] * 4, strides=[stride, stride], group=groups)
        results.append(net.node("GlobalAveragePool", y))
    return net.model(net.node("Concat", *results, axis=1))


def depthwise(size: int, channels: int, kernel: int, layers: int) -> onnx.ModelProto:
    """A chain of depthwise convolutions of stride 1."""
    net = Net()
    x = net.input(1, channels, size, size)
    for _ in range(layers):
        weight = net.weight(channels, 1, kernel, kernel, fan_in=kernel**2)
        x = net.node("Conv", x, weight, pads=[kernel // 2] * 4, group=channels)
    return net.model(x)


def _convolutions() -> Iterator[Case]:
    for group, size, c in (
        ("Winograd, hot", 56, 64), ("Winograd, hot", 28, 128), ("Winograd, cold", 14, 256), ("Winograd, cold", 7, 512),
    ):  # fmt: skip
        layers = 4 if group.endswith("hot") else 8
        yield _chain(group, size, (c,), 3, layers)
    yield _chain("convolution", 56, (256, 64), 1, 8)
    yield _chain("convolution", 14, (1024, 256), 1, 8)
    yield _fan("convolution", 56, 128, 128, 3, 2, 1)
    yield _fan("convolution", 14, 512, 512, 3, 2, 1)
    yield _fan("convolution", 224, 3, 64, 7, 2, 1)
    for channels, size, kernel, stride in dict.fromkeys((*MOBILENET_V2, *EFFICIENTNET_B0)):
        if stride == 2:
            yield _fan("depthwise", size, channels, channels, kernel, 2, channels)
            continue
        cost = 2 * channels * size**2 * kernel**2
        yield Case(
            "depthwise", f"{channels}×{size}² {kernel}×{kernel}",
            lambda s=size, c=channels, k=kernel: depthwise(s, c, k, 8),  # type: ignore[misc]
            8, cost, 8 * channels * size**2,
        )  # fmt: skip


def _chain(group: str, size: int, channels: tuple[int, ...], kernel: int, layers: int) -> Case:
    c, k = channels[0], channels[-1]
    flops = 2 * size**2 * c * k * kernel**2
    nbytes = 4 * ((c + k) * size**2 + c * k * kernel**2)
    back = " and back" if len(channels) > 1 else ""
    name = f"{size}² {c}→{k} {kernel}×{kernel}{back}"
    return Case(group, name, lambda: convolutions(size, channels, kernel, layers), layers, flops, nbytes)


def _fan(group: str, size: int, c: int, k: int, kernel: int, stride: int, groups: int) -> Case:
    count, out = 6, size // stride
    flops = 2 * out**2 * k * (c // groups) * kernel**2
    nbytes = 4 * (c * size**2 + k * out**2 + k * c // groups * kernel**2)
    name = f"{size}² {c}→{k} {kernel}×{kernel} s{stride}" if groups == 1 else f"{c}×{size}² {kernel}×{kernel} s{stride}"
    return Case(group, name, lambda: strided(size, c, k, kernel, stride, groups, count), count, flops, nbytes)


# Rows: softmax, layer normalisation, GELU --------------------------------------------------------------


def rows(kind: str, shape: Sequence[int], layers: int) -> onnx.ModelProto:
    """A chain of an operator on rows."""
    net = Net()
    x = net.input(*shape)
    for _ in range(layers):
        if kind == "softmax":
            x = net.node("Softmax", x, axis=-1)
        elif kind == "layer norm":
            scale, shift = net.constant(np.ones(shape[-1], np.float32)), net.weight(shape[-1], fan_in=1)
            x = net.node("LayerNormalization", x, scale, shift, axis=-1)
        else:
            x = gelu(net, x)
    return net.model(x)


def gelu(net: Net, x: str) -> str:
    """GELU as exporters write it."""
    root, one, half = (net.constant(np.array(v, np.float32)) for v in (math.sqrt(2.0), 1.0, 0.5))
    inner = net.node("Add", net.node("Erf", net.node("Div", x, root)), one)
    return net.node("Mul", net.node("Mul", x, inner), half)


def _rows() -> Iterator[Case]:
    for kind, shape in ROWS:
        elements = math.prod(shape)
        name = f"{kind} {'×'.join(map(str, shape))}"
        yield Case(
            "rows", name, lambda k=kind, s=shape: rows(k, s, 6), 6,  # type: ignore[misc]
            2 * STEPS[kind] * elements, 8 * elements,
        )  # fmt: skip


# Attention and recurrent networks ----------------------------------------------------------------------


def attention(heads: int, length: int, width: int, layers: int) -> onnx.ModelProto:
    """Scores, scale, softmax, values, as exporters write them; each layer's result is the next one's query."""
    net = Net()
    shape = (1, heads, length, width)
    x, key, value = net.input(*shape), net.input(*shape), net.input(*shape)
    scale = net.constant(np.array(math.sqrt(width), np.float32))
    turned = net.node("Transpose", key, perm=[0, 1, 3, 2])
    for _ in range(layers):
        scores = net.node("Softmax", net.node("Div", net.node("MatMul", x, turned), scale), axis=-1)
        x = net.node("MatMul", scores, value)
    return net.model(x)


def recurrent(kind: str, length: int, width: int, layers: int, both: bool) -> onnx.ModelProto:
    """Layers of LSTM or GRU over a sequence of one batch."""
    net = Net()
    x, into, ways, gates = net.input(length, 1, width), width, 1 + both, {"LSTM": 4, "GRU": 3}[kind]
    shape = net.constant(np.array([length, 1, ways * width], np.int64))
    for _ in range(layers):
        w = net.weight(ways, gates * width, into, fan_in=into)
        r = net.weight(ways, gates * width, width, fan_in=width)
        b = net.weight(ways, 2 * gates * width, fan_in=width)
        direction = "bidirectional" if both else "forward"
        extra = {"linear_before_reset": 1} if kind == "GRU" else {}
        (y,) = net.nodes(kind, 1, x, w, r, b, hidden_size=width, direction=direction, **extra)
        x, into = net.node("Reshape", net.node("Transpose", y, perm=[0, 2, 1, 3]), shape), ways * width
    return net.model(x)


def _sequences() -> Iterator[Case]:
    for length in (128, 197, 512):
        flops = 4 * 12 * length**2 * 64
        build = lambda s=length: attention(12, s, 64, 4)  # noqa: E731
        yield Case("attention", f"12×{length}×64", build, 4, flops, 16 * 12 * length * 64)
    for kind, gates in (("LSTM", 4), ("GRU", 3)):
        for layers, both in ((1, False), (2, False), (1, True)):
            flops = 2 * 100 * (1 + both) * layers * gates * 512 * 1024
            build = lambda k=kind, n=layers, b=both: recurrent(k, 100, 512, n, b)  # type: ignore[misc] # noqa: E731
            name = f"{kind} 100×512" + " ×2 layers" * (layers > 1) + " both ways" * both
            yield Case("recurrent", name, build, 1, flops, 4 * (1 + both) * layers * gates * 512 * 1024)


def cases() -> list[Case]:
    """All of them, group after group."""
    return [*_gemms(), *_convolutions(), *_rows(), *_sequences()]
