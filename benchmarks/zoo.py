"""Real architectures with seeded random weights: `python -m benchmarks.zoo resnet50 -o resnet50.onnx`.

Architectures come from the light models that the onnx package ships (their weights are constants), or are written
here with onnx.helper. Weights are varied and He-scaled, so that activations stay finite through every layer
and the outputs differ from class to class: a wrong kernel cannot hide behind zeros or saturation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks.convnets import (
    convnext_tiny,
    efficientnet_b0,
    efficientnet_lite0,
    mobilenetv3_large,
    resnext50,
    yolov5s,
)
from benchmarks.decoders import gpt2, llama
from benchmarks.deep import darknet53, fcn_resnet50, resnet101, resnet152, wide_resnet50
from benchmarks.inception import inception_v3, inception_v4
from benchmarks.segmentation import unet
from benchmarks.sequences import lstm
from benchmarks.transformers import bert_base, swin_tiny, vit_base

F32 = NDArray[np.float32]
CLASSES = 1000
SHAPERS = ("Unsqueeze", "Reshape")  # the role of a weight is that of whoever reads it behind these
LIGHT = {
    "alexnet": "bvlc_alexnet",
    "densenet121": "densenet121",
    "inception_v1": "inception_v1",
    "inception_v2": "inception_v2",
    "resnet50": "resnet50",
    "shufflenet": "shufflenet",
    "squeezenet": "squeezenet",
    "vgg19": "vgg19",
    "zfnet512": "zfnet512",
}


class Weights:
    """Seeded random weights by role."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def kernel(self, shape: tuple[int, ...], fan_in: int, gain: float = 2.0) -> F32:
        """He initialisation: variance gain / fan_in keeps the size of activations through a layer (and its relu)."""
        scale = np.float32((gain / fan_in) ** 0.5)
        return self._rng.standard_normal(shape, dtype=np.float32) * scale

    def dense(self, outs: int, ins: int) -> F32:
        """A dense layer; classifiers are scaled down, so that a softmax behind them does not saturate."""
        return self.kernel((outs, ins), ins, gain=0.05 if outs == CLASSES else 2.0)

    def codes(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """Bytes drawn evenly."""
        return self._rng.integers(0, 256, shape, dtype=np.uint8)

    def near(self, centre: float, spread: float, shape: tuple[int, ...]) -> F32:
        """Uniform in centre ± spread: biases, scales, means, variances."""
        return self._rng.uniform(centre - spread, centre + spread, shape).astype(np.float32)


def build(name: str, seed: int = 0) -> onnx.ModelProto:
    """The model of that name with random weights; its one input is an image (224×224, unet 256×256) or embedded tokens.

    Raises:
        KeyError: there is no such model; `names()` lists them.
    """
    weights = Weights(seed)
    return light(LIGHT[name], weights) if name in LIGHT else WRITTEN[name](Net(name, weights))


def names() -> list[str]:
    return sorted((*LIGHT, *WRITTEN))


# Light models ------------------------------------------------------------------------------------------


def light(file: str, weights: Weights) -> onnx.ModelProto:
    """A light model of the onnx package with its constant weights replaced."""
    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{file}.onnx"
    model = onnx.load(path)
    graph = model.graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    shapes = {name: array.shape for name, array in arrays.items() if array.dtype == np.float32}
    shapes |= {
        node.output[0]: tuple(arrays[node.input[0]].tolist())
        for node in graph.node
        if node.op_type == "ConstantOfShape"
    }
    layers = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    initialisers: dict[str, NDArray[np.generic]] = {}
    renamed = {node.output[0]: node.input[0] for node in layers if node.op_type in SHAPERS}
    for node in layers:
        for position, operand in enumerate(node.input):
            name = renamed.get(operand, operand)
            if name in initialisers:
                continue
            if name in shapes and node.op_type not in SHAPERS:
                initialisers[name] = _weight(node, position, shapes[name], weights)
            elif name in arrays and name not in shapes:
                initialisers[name] = arrays[name]  # the target of a Reshape
    inputs = [value for value in graph.input if value.name not in shapes and value.name not in arrays]
    tensors = [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in initialisers.items()]
    fresh = helper.make_graph(layers, graph.name, inputs, list(graph.output), tensors)
    return _finished(fresh, model.opset_import[0].version)


def _weight(node: onnx.NodeProto, position: int, shape: tuple[int, ...], weights: Weights) -> F32:
    """Values for operand `position` of `node`."""
    if node.op_type == "Conv" and position == 1:
        return weights.kernel(shape, int(np.prod(shape[1:])))
    if node.op_type == "Gemm" and position == 1:
        return weights.dense(*shape[-2:]).reshape(shape)
    if node.op_type == "BatchNormalization":
        # Scales below 1 keep the sums of residual networks in range.
        return weights.near(*((0.75, 0.25), (0.0, 0.2), (0.0, 0.2), (1.0, 0.5))[position - 1], shape)
    if node.op_type == "Mul":
        return weights.near(1.0, 0.25, shape)
    return weights.near(0.0, 0.2, shape)


# Models written here -----------------------------------------------------------------------------------


class Net:
    """A graph being written layer by layer; methods take and return value names."""

    def __init__(self, name: str, weights: Weights) -> None:
        self.name = name
        self._weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._tensors: list[onnx.TensorProto] = []

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"{op.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attrs))
        return name

    def nodes(self, op: str, count: int, *inputs: str, **attrs: Any) -> list[str]:
        """A node of `count` results."""
        names = [f"{op.lower()}_{len(self._nodes)}_{n}" for n in range(count)]
        self._nodes.append(helper.make_node(op, list(inputs), names, name=names[0], **attrs))
        return names

    def tensor(self, array: F32 | NDArray[np.int64] | NDArray[np.uint8] | NDArray[np.bool_]) -> str:
        name = f"weight_{len(self._tensors)}"
        self._tensors.append(numpy_helper.from_array(array, name))
        return name

    def scalar(self, value: float) -> str:
        return self.tensor(np.full((), value, np.float32))

    def index(self, value: int) -> str:
        return self.tensor(np.full((), value, np.int64))

    def shape(self, *extents: int) -> str:
        return self.tensor(np.asarray(extents, np.int64))

    def near(self, centre: float, spread: float, shape: tuple[int, ...]) -> str:
        return self.tensor(self._weights.near(centre, spread, shape))

    def codes(self, shape: tuple[int, ...]) -> str:
        """Bytes of quantised weights."""
        return self.tensor(self._weights.codes(shape))

    def matrix(self, ins: int, outs: int) -> str:
        """A weight that keeps the variance of what it multiplies."""
        return self.tensor(self._weights.kernel((ins, outs), ins, gain=1.0))

    def conv(
        self, x: str, ins: int, outs: int, kernel: int | tuple[int, int], stride: int = 1, groups: int = 1,
        bias: bool = False, padding: int | None = None, dilation: int = 1,
    ) -> str:  # fmt: skip
        """A convolution with "same" padding, or with the one given."""
        window = (kernel, kernel) if isinstance(kernel, int) else kernel
        fan_in = ins // groups * window[0] * window[1]
        weight = self.tensor(self._weights.kernel((outs, ins // groups, *window), fan_in))
        operands = [weight, self.tensor(self._weights.near(0.0, 0.2, (outs,)))] if bias else [weight]
        pads = [extent // 2 * dilation if padding is None else padding for extent in window] * 2
        return self.node("Conv", x, *operands, kernel_shape=window, strides=[stride] * 2, pads=pads, group=groups,
                         dilations=[dilation] * 2)  # fmt: skip

    def norm(self, x: str, channels: int, scale: float = 0.75) -> str:
        """Batch normalisation with random statistics."""
        statistics = ((scale, 0.25), (0.0, 0.2), (0.0, 0.2), (1.0, 0.5))
        operands = [self.tensor(self._weights.near(*pair, (channels,))) for pair in statistics]
        return self.node("BatchNormalization", x, *operands, epsilon=1e-5)

    def dense(self, x: str, ins: int, outs: int) -> str:
        weight = self.tensor(self._weights.dense(outs, ins))
        return self.node("Gemm", x, weight, self.tensor(self._weights.near(0.0, 0.2, (outs,))), transB=1)

    def classifier(self, x: str, channels: int) -> str:
        """Global average pool and a dense layer to 1000 classes."""
        return self.dense(self.node("Flatten", self.node("GlobalAveragePool", x)), channels, CLASSES)

    @property
    def last(self) -> str:
        """What the last node gives."""
        return str(self._nodes[-1].output[0])

    def finish(
        self, result: str, given: tuple[int, ...] = (1, 3, 224, 224), gives: tuple[int | str, ...] = (1, CLASSES)
    ) -> onnx.ModelProto:
        graph = helper.make_graph(
            self._nodes,
            self.name,
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, given)],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, gives)],
            self._tensors,
        )
        return _finished(graph, 14)


def resnet18(net: Net) -> onnx.ModelProto:
    """ResNet-18 as torchvision exports it, batch normalisations kept."""
    x = net.node("Relu", net.norm(net.conv("input", 3, 64, 7, stride=2), 64))
    x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    ins = 64
    for outs, first_stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for stride in (first_stride, 1):
            y = net.node("Relu", net.norm(net.conv(x, ins, outs, 3, stride), outs))
            y = net.norm(net.conv(y, outs, outs, 3), outs)
            if stride != 1 or ins != outs:
                x = net.norm(net.conv(x, ins, outs, 1, stride), outs)
            x = net.node("Relu", net.node("Add", y, x))
            ins = outs
    return net.finish(net.classifier(x, 512))


def mobilenetv2(net: Net) -> onnx.ModelProto:
    """MobileNetV2 1.0: expand, depthwise, project; ReLU6 as Clip with constant inputs."""
    low, high = net.tensor(np.zeros((), np.float32)), net.tensor(np.full((), 6.0, np.float32))

    def conv_norm_clip(x: str, ins: int, outs: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
        return net.node("Clip", net.norm(net.conv(x, ins, outs, kernel, stride, groups), outs, 1.0), low, high)

    x = conv_norm_clip("input", 3, 32, 3, 2)
    ins = 32
    settings = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expansion, outs, repeats, first_stride in settings:
        for repeat in range(repeats):
            stride, hidden = first_stride if repeat == 0 else 1, ins * expansion
            y = conv_norm_clip(x, ins, hidden, 1) if expansion != 1 else x
            y = conv_norm_clip(y, hidden, hidden, 3, stride, groups=hidden)
            y = net.norm(net.conv(y, hidden, outs, 1), outs)
            x = net.node("Add", x, y) if stride == 1 and ins == outs else y
            ins = outs
    x = conv_norm_clip(x, ins, 1280, 1)
    return net.finish(net.classifier(x, 1280))


def vgg16(net: Net) -> onnx.ModelProto:
    """VGG-16 without batch normalisation."""
    x, ins = "input", 3
    for outs, repeats in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(repeats):
            x = net.node("Relu", net.conv(x, ins, outs, 3, bias=True))
            ins = outs
        x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.node("Flatten", x)
    for features in (25088, 4096):
        x = net.node("Relu", net.dense(x, features, 4096))
    return net.finish(net.dense(x, 4096, CLASSES))


WRITTEN: dict[str, Callable[[Net], onnx.ModelProto]] = {
    "bert_base": bert_base,
    "convnext_tiny": convnext_tiny,
    "darknet53": darknet53,
    "efficientnet_b0": efficientnet_b0,
    "efficientnet_lite0": efficientnet_lite0,
    "fcn_resnet50": fcn_resnet50,
    "gpt2": gpt2,
    "inception_v3": inception_v3,
    "inception_v4": inception_v4,
    "llama": llama,
    "lstm": lstm,
    "mobilenetv2": mobilenetv2,
    "mobilenetv3_large": mobilenetv3_large,
    "resnet101": resnet101,
    "resnet152": resnet152,
    "resnet18": resnet18,
    "resnext50": resnext50,
    "swin_tiny": swin_tiny,
    "unet": unet,
    "vgg16": vgg16,
    "vit_base": vit_base,
    "wide_resnet50": wide_resnet50,
    "yolov5s": yolov5s,
}


def _finished(graph: onnx.GraphProto, opset: int) -> onnx.ModelProto:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], producer_name="benchmarks.zoo")
    model.ir_version = 8  # old enough for every peer that we compare with
    return model


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.zoo", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("name", choices=names())
    parser.add_argument("-o", "--output", type=Path, help="file to write (default: NAME.onnx)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights (default: 0)")
    options = parser.parse_args(arguments)
    path: Path = options.output or Path(f"{options.name}.onnx")
    try:
        onnx.save(build(options.name, options.seed), path)
    except OSError as error:
        print(f"cannot write '{path}': {error.strerror or error}", file=sys.stderr)
        return 1
    print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
