"""One token of a GPT-2-like decoder whose cache is updated in place: ours against ONNX Runtime, in turn.

python -m benchmarks.decode_in_place                   one thread, 16, 512 and 2000 of 2048 positions are full
python -m benchmarks.decode_in_place --room 512 --past 100

Both run GroupQueryAttention on memory that is input and output at once; "copied" is ours with outputs of their own.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper

from autotune.api.session import InferenceSession
from benchmarks.decode import GPT2
from benchmarks.transformers import gelu, layer_norm, linear
from benchmarks.zoo import Net, Weights

WIDTH, HEADS, LAYERS, VOCABULARY = GPT2.width, GPT2.heads, GPT2.layers, GPT2.vocabulary
HEAD = WIDTH // HEADS


def decoder(room: int) -> onnx.ModelProto:
    """GPT-2 small for one embedded token; `last` says how many others of the cache's `room` come before it."""
    net = Net("decoder", Weights(0))
    x = "input"
    for n in range(LAYERS):
        qkv = linear(net, layer_norm(net, x), WIDTH, 3 * WIDTH)
        mixed = net.node("GroupQueryAttention", qkv, "", "", f"past.{n}.key", f"past.{n}.value", "last", "total",
                         domain="com.microsoft", num_heads=HEADS, kv_num_heads=HEADS)  # fmt: skip
        x = net.node("Add", x, linear(net, mixed, WIDTH, WIDTH))
        y = linear(net, layer_norm(net, x), WIDTH, 4 * WIDTH)
        x = net.node("Add", x, linear(net, gelu(net, y), 4 * WIDTH, WIDTH))
    logits = net.node("MatMul", layer_norm(net, x), net.matrix(WIDTH, VOCABULARY))
    model = net.finish(logits, (1, 1, WIDTH), (1, 1, VOCABULARY))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    graph, shape = model.graph, (1, HEADS, room, HEAD)
    graph.input.append(helper.make_tensor_value_info("last", TensorProto.INT32, (1,)))
    graph.initializer.append(helper.make_tensor("total", TensorProto.INT32, (1,), [room]))
    for node in graph.node:
        if node.op_type == "GroupQueryAttention":
            past = node.input[3:5]
            present = [name.replace("past", "present") for name in past]
            node.output.extend(present)
            graph.input.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in past)
            graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in present)
    return model


def theirs(model: onnx.ModelProto, threads: int, feeds: dict[str, NDArray[np.generic]]) -> Callable[[], object]:
    """A step by ONNX Runtime, whose caches are input and output at once."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in feeds.items():
        value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_input(name, value)
        if name.startswith("past"):
            binding.bind_ortvalue_output(name.replace("past", "present"), value)
    binding.bind_output(model.graph.output[0].name)
    return lambda: session.run_with_iobinding(binding)


def in_turn(steps: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Milliseconds of each, the median of rounds in which all run."""
    times: list[list[float]] = [[] for _ in steps]
    for _ in range(rounds + 1):
        for step, found in zip(steps, times, strict=True):
            start = time.perf_counter()
            step()
            found.append(time.perf_counter() - start)
    return [statistics.median(found[1:]) * 1e3 for found in times]


def main() -> int:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--room", type=int, default=2048)
    arguments.add_argument("--past", type=int, nargs="+", default=[16, 512, 2000])
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--rounds", type=int, default=15)
    given = arguments.parse_args()
    model = decoder(given.room)
    session = InferenceSession(model, target=f"native -num-cores={given.threads}", database=False)
    rng = np.random.default_rng(0)
    for past in given.past:
        feeds: dict[str, NDArray[np.generic]] = {
            value.name: rng.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim], np.float32)
            for value in model.graph.input
        }
        feeds["last"] = np.asarray([past], np.int32)
        into = {name.replace("past", "present"): feeds[name] for name in feeds if name.startswith("past")}
        steps = (
            partial(session.run_into, into, feeds),
            partial(session.run, None, feeds),
            theirs(model, given.threads, feeds),
        )
        ours, copied, peer = in_turn(steps, given.rounds)
        print(f"past {past:5d} of {given.room}  in place {ours:7.2f} ms  copied {copied:7.2f} ms"
              f"  onnxruntime {peer:7.2f} ms  {peer / ours:.2f}x", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
