"""Damaged models: whatever bytes change, loading either works or refuses in one line."""

from __future__ import annotations

import random as stdlib_random

import numpy as np
from onnx import helper

from autotune.errors import AutotuneError
from autotune.graph import load_model, optimize, partition
from tests.graph.graph_models import build, random

MUTATIONS = 1500


def small_network() -> bytes:
    """A bit of every operator family, small enough that most bytes are structure."""
    tensors = {
        "w": random(2, 3, 3, 3),
        **{name: random(2, low=0.5) for name in ("scale", "bias", "mean", "var")},
        "p": np.asarray([0, 0, 1, 1, 0, 0, 1, 1]),
        "dims": np.asarray([2, 1]),
        "target": np.asarray([1, -1]),
        "dense": random(4, 2),
        "starts": np.asarray([0]),
        "ends": np.asarray([3]),
    }
    nodes = [
        helper.make_node("Pad", ["x", "p"], ["padded"]),
        helper.make_node("Conv", ["padded", "w"], ["conv"], strides=[1, 1], name="conv"),
        helper.make_node("BatchNormalization", ["conv", "scale", "bias", "mean", "var"], ["norm"]),
        helper.make_node("Clip", ["norm"], ["clip"]),
        helper.make_node("MaxPool", ["clip"], ["pool"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("ReduceMean", ["pool"], ["mean_value"], axes=[2, 3]),
        helper.make_node("Reshape", ["mean_value", "target"], ["flat"]),
        helper.make_node("ConstantOfShape", ["dims"], ["zeros"]),
        helper.make_node("Gemm", ["flat", "dense"], ["logits"], transB=1),
        helper.make_node("Concat", ["logits", "flat"], ["both"], axis=1),
        helper.make_node("Slice", ["both", "starts", "ends"], ["sliced"]),
        helper.make_node("Transpose", ["sliced"], ["turned"], perm=[1, 0]),
        helper.make_node("Softmax", ["turned"], ["y"], axis=0),
    ]
    return bytes(build(nodes, {"x": random(1, 3, 4, 4)}, tensors).SerializeToString())


def mutated(data: bytes, rng: stdlib_random.Random) -> bytes:
    """One to three bytes changed, removed or doubled, or the end cut off."""
    content = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        position = rng.randrange(len(content))
        kind = rng.randrange(8)
        if kind < 5:
            content[position] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 5:
            del content[position : position + rng.randint(1, 4)]
        elif kind == 6:
            content[position:position] = content[position : position + rng.randint(1, 8)]
        else:
            del content[position + 1 :]
    return bytes(content)


def test_the_network_itself_loads() -> None:
    assert partition(optimize(load_model(small_network())))


def test_damage_is_refused_in_one_line() -> None:
    data, rng = small_network(), stdlib_random.Random(0)
    messages: list[str] = []
    for _ in range(MUTATIONS):
        try:
            partition(optimize(load_model(mutated(data, rng))))
        except AutotuneError as error:
            messages.append(str(error))
    assert [message for message in messages if "\n" in message] == []
    assert len(messages) > MUTATIONS // 4
