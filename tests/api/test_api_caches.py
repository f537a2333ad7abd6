"""Caches that come in and go out: updated where they are when input and output are bound to one memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

import autotune
from autotune.api.ort_value import OrtValue
from autotune.runtime.program import Program

Array = NDArray[Any]
ROOM, HEADS, WIDTH = 512, 2, 32
CACHE = (1, HEADS, ROOM, WIDTH)


def decoder(reads_again: bool = False) -> onnx.ModelProto:
    """A token's attention to a cache with room to spare; it may read the old cache behind the new one."""
    nodes = [
        helper.make_node("TensorScatter", ["past_k", "k", "at"], ["present_k"], axis=2),
        helper.make_node("TensorScatter", ["past_v", "v", "at"], ["present_v"], axis=2),
        helper.make_node("Add", ["at", "one"], ["length"]),
        helper.make_node("Attention", ["q", "present_k", "present_v", "", "", "", "length"], ["mixed"], is_causal=1),
    ]
    if reads_again:
        nodes.append(helper.make_node("ReduceSum", ["past_k"], ["old"], keepdims=0))
        nodes.append(helper.make_node("Add", ["mixed", "old"], ["y"]))
    else:
        nodes.append(helper.make_node("Neg", ["mixed"], ["y"]))
    token = (1, HEADS, 1, WIDTH)
    inputs = [("q", token), ("k", token), ("v", token), ("past_k", CACHE), ("past_v", CACHE)]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs]
    infos.append(helper.make_tensor_value_info("at", TensorProto.INT64, (1,)))
    outputs = [("y", token), ("present_k", CACHE), ("present_v", CACHE)]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs]
    one = helper.make_tensor("one", TensorProto.INT64, (1,), [1])
    graph = helper.make_graph(nodes, "decoder", infos, results, [one])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


def tokens(count: int) -> list[dict[str, Array]]:
    rng = np.random.default_rng(0)
    names = ("q", "k", "v")
    return [{name: rng.standard_normal((1, HEADS, 1, WIDTH), np.float32) for name in names} for _ in range(count)]


def copied(session: autotune.InferenceSession, steps: list[dict[str, Array]]) -> tuple[list[Array], list[Array]]:
    """Results and caches where every step makes new ones."""
    caches, results = [np.zeros(CACHE, np.float32), np.zeros(CACHE, np.float32)], []
    for n, step in enumerate(steps):
        y, *caches = session.run(None, {**step, "past_k": caches[0], "past_v": caches[1], "at": np.asarray([n])})
        results.append(y)
    return results, caches


@pytest.mark.parametrize("reads_again", [False, True])
def test_one_memory_for_past_and_present(reads_again: bool) -> None:
    """The same numbers, whether the program can update the cache where it is, or has to copy it after all."""
    session = autotune.InferenceSession(decoder(reads_again), database=False, target="native -num-cores=1")
    updates = session.program.updates
    inputs, outputs = [i.name for i in session.get_inputs()], [o.name for o in session.get_outputs()]
    pairs = {(inputs[i], outputs[o]) for i, o in updates}
    assert ("past_v", "present_v") in pairs
    assert Program.from_json(session.program.to_json()).updates == updates
    steps = tokens(4)
    expected, caches = copied(session, steps)
    k, v = np.zeros(CACHE, np.float32), np.full(CACHE, np.nan, np.float32)
    v[:, :, : len(steps)] = 0
    binding = session.io_binding()
    binding.bind_output("y")
    for n, step in enumerate(steps):
        for name, array in {**step, "at": np.asarray([n]), "past_v": v}.items():
            binding.bind_cpu_input(name, array)
        binding.bind_ortvalue_input("past_k", OrtValue(k))
        binding.bind_ortvalue_output("present_k", OrtValue(k))
        binding.bind_ortvalue_output("present_v", OrtValue(v))
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), expected[n])
    np.testing.assert_array_equal(k, caches[0])
    np.testing.assert_array_equal(v[:, :, : len(steps)], caches[1][:, :, : len(steps)])


def test_an_output_over_another_input_is_copied() -> None:
    """Bound to memory that is still read, a result waits until it is not."""
    session = autotune.InferenceSession(decoder(), database=False, target="native -num-cores=1")
    (step,) = tokens(1)
    rng = np.random.default_rng(1)
    k, v = (rng.standard_normal(CACHE, np.float32) for _ in range(2))
    feeds = {**step, "past_k": k, "past_v": v, "at": np.asarray([7])}
    expected = session.run(None, feeds)
    session.run_into({"present_k": v, "present_v": k}, feeds)
    np.testing.assert_array_equal(v, expected[1])
    np.testing.assert_array_equal(k, expected[2])
