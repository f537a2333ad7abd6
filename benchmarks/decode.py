"""One token of a GPT-2-like decoder with its cache: weights of 32, 8 and 4 bits, ours against ONNX Runtime, in turn.

python -m benchmarks.decode                        one thread, contexts of 16 and 512
python -m benchmarks.decode --bits 4 --past 2000   one of them

The weights are packed by ONNX Runtime's own quantizer (MatMulNBits in blocks of 32; it needs the package onnx_ir).
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from autotune.api.load import load
from autotune.engines.compare import compare
from autotune.engines.engine import Ours
from autotune.engines.peers import load_peer
from autotune.target import Target
from benchmarks.transformers import gelu, layer_norm, linear
from benchmarks.zoo import Net, Weights

WIDTH, HEADS, LAYERS, VOCABULARY = 768, 12, 12, 50257
HEAD = WIDTH // HEADS


def decoder(past: int) -> onnx.ModelProto:
    """GPT-2 small for one embedded token behind `past` others; the cache of each layer comes in and goes out longer."""
    net = Net("decoder", Weights(0))
    cache = (1, HEADS, past, HEAD)
    inputs: list[tuple[str, tuple[int, ...]]] = [("input", (1, 1, WIDTH))]
    outputs: list[tuple[str, tuple[int, ...]]] = []
    x = "input"
    for n in range(LAYERS):
        qkv = linear(net, layer_norm(net, x), WIDTH, 3 * WIDTH)
        q, k, v = (
            net.node("Transpose", net.node("Reshape", part, net.shape(1, 1, HEADS, HEAD)), perm=[0, 2, 1, 3])
            for part in (net.node("Slice", qkv, *map(net.shape, (i * WIDTH, (i + 1) * WIDTH, 2))) for i in range(3))
        )
        present = []
        for kind, new in (("key", k), ("value", v)):
            inputs.append((f"past.{n}.{kind}", cache))
            present.append(net.node("Concat", inputs[-1][0], new, axis=2))
            outputs.append((present[-1], (1, HEADS, past + 1, HEAD)))
        scores = net.node("MatMul", q, net.node("Transpose", present[0], perm=[0, 1, 3, 2]))
        weights = net.node("Softmax", net.node("Div", scores, net.scalar(HEAD**0.5)), axis=-1)
        mixed = net.node("Transpose", net.node("MatMul", weights, present[1]), perm=[0, 2, 1, 3])
        x = net.node("Add", x, linear(net, net.node("Reshape", mixed, net.shape(1, 1, WIDTH)), WIDTH, WIDTH))
        y = linear(net, layer_norm(net, x), WIDTH, 4 * WIDTH)
        x = net.node("Add", x, linear(net, gelu(net, y), 4 * WIDTH, WIDTH))
    logits = net.node("MatMul", layer_norm(net, x), net.matrix(WIDTH, VOCABULARY))
    model = net.finish(logits, (1, 1, WIDTH), (1, 1, VOCABULARY))
    graph = model.graph
    graph.input.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs[1:])
    graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs)
    return model


def quantized(model: onnx.ModelProto, bits: int) -> onnx.ModelProto:
    """The same with packed weights, 32 for as they are."""
    if bits == 32:
        return model
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    logging.disable(logging.INFO)  # a line for each node
    copy = onnx.ModelProto()
    copy.CopyFrom(model)  # which is packed in place
    quantizer = MatMulNBitsQuantizer(copy, bits=bits, block_size=32, is_symmetric=True)
    quantizer.process()
    packed: onnx.ModelProto = quantizer.model.model
    return packed


def main() -> int:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--bits", type=int, nargs="+", default=[32, 8, 4])
    arguments.add_argument("--past", type=int, nargs="+", default=[16, 512])
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--rounds", type=int, default=30)
    given = arguments.parse_args()
    target = Target.parse(f"native -num-cores={given.threads}")
    for past in given.past:
        model = decoder(past)
        rng = np.random.default_rng(0)
        feeds: dict[str, NDArray[np.float32]] = {
            value.name: rng.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim], np.float32)
            for value in model.graph.input
        }
        for bits in given.bits:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.onnx"
                onnx.save(quantized(model, bits), path)
                shapes = {name: array.shape for name, array in feeds.items()}
                engines = [Ours(load(path, target, False)), load_peer("onnxruntime", path, given.threads, shapes)]
                found = compare(engines, feeds, target, flops=0, rounds=given.rounds)
            ours, theirs = (result.seconds * 1e3 for result in found.results)
            error = found.results[0].max_error
            print(f"past {past:5d}  {bits:2d} bits  ours {ours:7.2f} ms  onnxruntime {theirs:7.2f} ms"
                  f"  {theirs / ours:.2f}x  error {error:.1e}", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
