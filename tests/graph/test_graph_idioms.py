"""What exporters write for common layers: how many kernels each becomes, and that it computes the same.

Spellings that one pass recognises are tested with it; these take several passes together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from autotune.graph import partition
from tests.graph.graph_models import Array, random
from tests.graph.test_graph_recognition import Writer, integers

IMAGE, TOKENS = (1, 16, 8, 8), (1, 6, 32)
HEADS, SIZE = 4, 8

Idiom = Callable[[Writer], str]
IMAGES: list[tuple[Idiom, list[str]]] = []
SEQUENCES: list[tuple[Idiom, list[str]]] = []


def image(*kernels: str) -> Callable[[Idiom], Idiom]:
    """Register a layer of an image `x` and the kernels that it becomes."""
    return _registered(IMAGES, kernels)


def tokens(*kernels: str) -> Callable[[Idiom], Idiom]:
    """Register a layer of a sequence `x` and the kernels that it becomes."""
    return _registered(SEQUENCES, kernels)


def _registered(cases: list[tuple[Idiom, list[str]]], kernels: Sequence[str]) -> Callable[[Idiom], Idiom]:
    def register(idiom: Idiom) -> Idiom:
        cases.append((idiom, list(kernels)))
        return idiom

    return register


def weight(*shape: int, seed: int = 1) -> Array:
    return random(*shape, seed=seed) / np.float32(4 * math.sqrt(shape[0]))


@image("conv_transpose2d+add+relu")
def transposed_convolution_and_batch_norm(w: Writer) -> str:
    """The reference of opset 9 mixes in the statistics of the batch unless the momentum is 1."""
    y = w("ConvTranspose", "x", weight(16, 8, 2, 2), strides=[2, 2])
    ones, zeros = np.ones(8, np.float32), np.zeros(8, np.float32)
    return w("Relu", w("BatchNormalization", y, random(8), random(8, seed=2), zeros, ones, momentum=1.0))


@image("conv2d+add+relu")
def convolution_between_transposes(w: Writer) -> str:
    """As tf2onnx writes NHWC models."""
    y = w("Transpose", w("Transpose", "x", perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2])
    y = w("Transpose", w("Conv", y, weight(8, 16, 3, 3), pads=[1] * 4), perm=[0, 2, 3, 1])
    return w("Transpose", w("Relu", w("Add", y, random(8))), perm=[0, 3, 1, 2])


@image("conv2d+add+relu")
def unfolded_batch_norm(w: Writer) -> str:
    y = w("Sub", w("Conv", "x", weight(8, 16, 1, 1)), random(1, 8, 1, 1, seed=2))
    return w("Relu", w("Add", w("Mul", y, random(1, 8, 1, 1, seed=3)), random(1, 8, 1, 1, seed=4)))


@image("conv2d")
def padding_of_keras(w: Writer) -> str:
    padded = w("Pad", "x", integers(0, 0, 0, 0, 0, 0, 1, 1))
    return w("Conv", padded, weight(8, 16, 3, 3), strides=[2, 2])


@image("transpose")
def pixel_shuffle(w: Writer) -> str:
    apart = w("Reshape", "x", integers(1, 4, 2, 2, 8, 8))
    return w("Reshape", w("Transpose", apart, perm=[0, 1, 4, 2, 5, 3]), integers(1, 4, 16, 16))


@image("expand")
def nearest_upsampling_by_expand(w: Writer) -> str:
    apart = w("Reshape", "x", integers(1, 16, 8, 1, 8, 1))
    return w("Reshape", w("Expand", apart, integers(1, 16, 8, 2, 8, 2)), integers(1, 16, 16, 16))


@image("reduce_mean")
def global_mean_axis_by_axis(w: Writer) -> str:
    rows = w("ReduceMean", "x", axes=[3], keepdims=0)
    return w("ReduceMean", rows, axes=[2], keepdims=0)


@image("reduce_mean", "matmul+add+relu", "matmul+add+sigmoid", "mul")
def squeeze_and_excite(w: Writer) -> str:
    y = w("ReduceMean", "x", axes=[2, 3], keepdims=0)
    y = w("Relu", w("Add", w("MatMul", y, weight(16, 4)), random(4)))
    y = w("Sigmoid", w("Add", w("MatMul", y, weight(4, 16)), random(16)))
    return w("Mul", "x", w("Reshape", y, integers(1, 16, 1, 1)))


@image("conv2d", "slice+slice+sigmoid+mul")
def gated_convolution(w: Writer) -> str:
    both = w("Conv", "x", weight(32, 16, 1, 1))
    a, b = w.several("Split", 2, both, axis=1)
    return w("Mul", a, w("Sigmoid", b))


@tokens("matmul", "slice+slice+swish+mul")
def gated_units(w: Writer) -> str:
    a, b = w.several("Split", 2, w("MatMul", "x", weight(32, 64)), axis=-1)
    return w("Mul", w("Mul", a, w("Sigmoid", a)), b)


@tokens("matmul+add+add")
def scaled_residual(w: Writer) -> str:
    y = w("Add", w("MatMul", "x", weight(32, 32)), random(32))
    return w("Add", "x", w("Mul", y, random(32, seed=2)))


@tokens("matmul+add")
def product_of_flattened_tokens(w: Writer) -> str:
    flat = w("Gemm", w("Reshape", "x", integers(-1, 32)), weight(32, 64), random(64))
    return w("Reshape", flat, integers(1, 6, 64))


def heads(w: Writer, seed: int, *, bias: bool = True) -> str:
    y = w("MatMul", "x", weight(32, 32, seed=seed))
    y = w("Add", y, random(32, seed=seed + 9)) if bias else y
    return w("Transpose", w("Reshape", y, integers(1, 6, HEADS, SIZE)), perm=[0, 2, 1, 3])


def attended(w: Writer, scores: str, v: str) -> str:
    mixed = w("Transpose", w("MatMul", w("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    return w("MatMul", w("Reshape", mixed, integers(1, 6, 32)), weight(32, 32, seed=8))


@tokens("matmul+add", "attention", "matmul")
def scaled_dot_product_of_torch(w: Writer) -> str:
    """The root of the scale on queries and on keys, a causal mask by `where`."""
    q, k, v = (heads(w, seed) for seed in (1, 2, 3))
    root = w("Sqrt", SIZE**-0.5)
    mask = w("Where", w.constant(np.tril(np.ones((6, 6), np.bool_))), 0.0, -math.inf)
    keys = w("Mul", w("Transpose", k, perm=[0, 1, 3, 2]), root)
    return attended(w, w("Add", w("MatMul", w("Mul", q, root), keys), mask), v)


@tokens("matmul", "attention", "matmul")
def causal_mask_computed_from_a_range(w: Writer) -> str:
    """As Hugging Face's models build it, all of constants."""
    q, k, v = (heads(w, seed, bias=False) for seed in (1, 2, 3))
    positions = w("Range", *(w.constant(np.asarray(n, np.int64)) for n in (0, 6, 1)))
    later = w("Cast", w("Greater", positions, w("Reshape", positions, integers(-1, 1))), to=1)
    mask = w("Expand", w("Unsqueeze", w("Mul", later, -3.4e38), integers(0, 1)), integers(1, 1, 6, 6))
    scores = w("Div", w("MatMul", q, w("Transpose", k, perm=[0, 1, 3, 2])), math.sqrt(SIZE))
    return attended(w, w("Add", scores, mask), v)


@tokens("matmul", "attention", "matmul")
def relative_positions_without_scale(w: Writer) -> str:
    """As in T5."""
    q, k, v = (heads(w, seed, bias=False) for seed in (1, 2, 3))
    scores = w("MatMul", q, w("Transpose", k, perm=[0, 1, 3, 2]))
    return attended(w, w("Add", scores, random(1, HEADS, 6, 6, seed=5)), v)


@tokens("matmul+add", "attention", "matmul")
def heads_in_the_first_axis(w: Writer) -> str:
    """torch.nn.MultiheadAttention: batches and heads together."""
    q, k, v = (
        w("Transpose", w("Reshape", w("Add", w("MatMul", "x", weight(32, 32, seed=n)), random(32, seed=n)),
                         integers(6, HEADS, SIZE)), perm=[1, 0, 2])
        for n in (1, 2, 3)
    )  # fmt: skip
    scores = w("MatMul", w("Mul", q, SIZE**-0.5), w("Transpose", k, perm=[0, 2, 1]))
    mixed = w("Transpose", w("MatMul", w("Softmax", scores, axis=-1), v), perm=[1, 0, 2])
    return w("MatMul", w("Reshape", mixed, integers(1, 6, 32)), weight(32, 32, seed=8))


CASES = [(*case, IMAGE) for case in IMAGES] + [(*case, TOKENS) for case in SEQUENCES]


@pytest.mark.parametrize(("idiom", "kernels", "shape"), CASES, ids=[case[0].__name__ for case in CASES])
def test_idiom(idiom: Idiom, kernels: list[str], shape: tuple[int, ...]) -> None:
    w = Writer()
    graph = w.optimized(idiom(w), x=random(*shape))
    found = ["+".join(node.op for node in g.workload.nodes) for g in partition(graph) if not g.is_view]
    assert found == kernels
