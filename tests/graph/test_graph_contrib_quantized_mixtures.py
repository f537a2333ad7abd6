"""Mixtures of experts with matrices of a few bits against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import autotune
from autotune.errors import ModelError
from autotune.graph import evaluate_graph, load_model, optimize, partition
from tests.graph.contrib_models import model_of, refusal, theirs
from tests.graph.graph_models import Array, random

EXPERTS, WIDTH, HIDDEN = 4, 64, 32
ORDER = "x r q1 s1 b1 q2 s2 b2 q3 s3 b3 z1 z2 z3 m"


def packed(numbers: Array, bits: int) -> Array:
    """Rows of numbers in bytes, the first ones in the lowest bits."""
    single = np.unpackbits(numbers[..., None], axis=-1, count=bits, bitorder="little")
    return np.packbits(single.reshape(*numbers.shape[:-1], -1), axis=-1, bitorder="little")


def matrix(name: str, rows: int, depth: int, bits: int, block: int, zeros: bool) -> dict[str, Array]:
    rng = np.random.default_rng(int(name))
    blocks = depth // block if block else 1
    shape = (EXPERTS, rows, blocks) if block else (EXPERTS, rows)
    small = random(*shape, seed=int(name), low=0.01, high=0.06) * 4 / 2**bits
    found = {
        f"q{name}": packed(rng.integers(0, 1 << bits, (EXPERTS, rows, depth), np.uint8), bits),
        f"s{name}": small.astype(np.float32), f"b{name}": random(EXPERTS, rows, seed=9),
    }  # fmt: skip
    middle = 1 << (bits - 1)
    codes = rng.integers(middle - 1, middle + 2, shape).astype(np.uint8)
    return found | ({f"z{name}": packed(codes, bits)} if zeros else {})


def operands(bits: int, block: int, zeros: bool, rows: int = 2 * HIDDEN) -> tuple[dict[str, Array], dict[str, Array]]:
    feeds = {"x": random(5, WIDTH), "r": 2 * random(5, EXPERTS, seed=1)}
    return feeds, matrix("1", rows, WIDTH, bits, block, zeros) | matrix("2", WIDTH, HIDDEN, bits, block, zeros)


def compare(feeds: dict[str, Array], tensors: dict[str, Array], within: float, **attrs: Any) -> None:
    order = " ".join(name if name in feeds | tensors else "-" for name in ORDER.split())
    given: dict[str, Any] = {"activation_type": "swiglu", "swiglu_fusion": 1, "normalize_routing_weights": 1}
    model = model_of("QMoE", feeds, tensors, order=order, k=2, **(given | attrs))
    found = evaluate_graph(load_model(model.SerializeToString()), feeds)["y"]
    (expected,) = theirs(model, feeds)
    assert found.dtype == expected.dtype
    near = within * float(np.abs(expected).max())
    np.testing.assert_allclose(found.astype(np.float32), expected.astype(np.float32), rtol=1e-4, atol=near)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [0, 16, 32])
@pytest.mark.parametrize("zeros", [False, True])
def test_bits_and_blocks(bits: int, block: int, zeros: bool) -> None:
    """ONNX Runtime quantises what blocks of 8 bits are multiplied with."""
    feeds, tensors = operands(bits, block, zeros)
    attrs = {"block_size": block} if block else {}
    compare(feeds, tensors, 0.05 if bits == 8 and block else 1e-5, expert_weight_bits=bits, **attrs)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity"])
def test_activations(activation: str) -> None:
    feeds, tensors = operands(4, 32, False, rows=HIDDEN)
    compare(feeds, tensors, 1e-5, block_size=32, activation_type=activation, swiglu_fusion=0)


@pytest.mark.parametrize("normalize", [0, 1])
def test_weights_that_are_not_those_of_the_router(normalize: int) -> None:
    feeds, tensors = operands(4, 32, False)
    compare(feeds | {"m": np.abs(random(5, EXPERTS, seed=7))}, tensors, 1e-5, block_size=32,
            normalize_routing_weights=normalize, swiglu_limit=0.5)  # fmt: skip


def test_halves() -> None:
    feeds, tensors = operands(4, 32, False)
    half = {name: array.astype(np.float16) if array.dtype == np.float32 else array for name, array in tensors.items()}
    compare({name: array.astype(np.float16) for name, array in feeds.items()}, half, 0.01, block_size=32)


@pytest.mark.parametrize("widths", [(3, 3), (4, 8), (3, 4)])
def test_other_widths_are_those_of_their_numbers(widths: tuple[int, int]) -> None:
    """Of three bits, which straddle bytes, and of a width for each matrix: the numbers of three bits in four."""
    numbers = [np.random.default_rng(n).integers(0, 8, (EXPERTS, *shape), np.uint8)
               for n, shape in enumerate(((HIDDEN, WIDTH), (WIDTH, HIDDEN)))]  # fmt: skip
    feeds, tensors = operands(4, 32, False, rows=HIDDEN)
    order = " ".join(name if name in feeds | tensors else "-" for name in ORDER.split())

    def of(first: int, second: int) -> onnx.ModelProto:
        """As far from the middle, 4 of the numbers, as they are."""
        bits = {"fc1_expert_weight_bits": first, "fc2_expert_weight_bits": second}
        offsets = [np.uint8((1 << (width - 1)) - 4) for width in (first, second)]
        codes = {f"q{n + 1}": packed(numbers[n] + offsets[n], (first, second)[n]) for n in range(2)}
        more: dict[str, Any] = {
            "block_size": 32,
            "normalize_routing_weights": 1,
            **(bits if first != second else {"expert_weight_bits": first}),
        }
        return model_of("QMoE", feeds, tensors | codes, order=order, **more)

    found = evaluate_graph(load_model(of(*widths).SerializeToString()), feeds)["y"]
    np.testing.assert_allclose(found, theirs(of(4, 4), feeds)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 3, 24])
@pytest.mark.parametrize(("bits", "block", "zeros"), [(2, 32, False), (4, 32, True), (4, 0, False), (8, 16, True)])
def test_compiled_products_decode_the_matrices_of_the_chosen(tokens: int, bits: int, block: int, zeros: bool) -> None:
    """They stay codes, as many bytes as the model has, and are read where they are."""
    feeds = {"x": random(tokens, WIDTH), "r": 2 * random(tokens, EXPERTS, seed=1)}
    _, tensors = operands(bits, block, zeros)
    order = " ".join(name if name in feeds | tensors else "-" for name in ORDER.split())
    given: dict[str, Any] = {"activation_type": "swiglu", "swiglu_fusion": 1, "normalize_routing_weights": 1}
    given |= {"block_size": block} if block else {}
    model = model_of("QMoE", feeds, tensors, order=order, k=2, expert_weight_bits=bits, **given)
    graph = optimize(load_model(model.SerializeToString()))
    products = [g.workload for g in partition(graph) if any(n.op == "matmul_coded" for n in g.workload.nodes)]
    assert len(products) == 3 and all(w.nodes[0].op == w.nodes[1].op == "gather" for w in products)
    kept = sum(x.nbytes for x in graph.constants.values() if x.dtype in (np.uint32, np.uint8, np.int8) and x.ndim == 3)
    assert kept <= sum(
        x.nbytes * (8 // bits if name[0] == "z" else 1) for name, x in tensors.items() if name[0] in "qz"
    )
    session = autotune.InferenceSession(model, database=False, target="native -num-cores=1")
    (expected,) = theirs(model, feeds)
    near = (0.05 if bits == 8 else 1e-5) * float(np.abs(expected).max())
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-4, atol=near)


def test_blocks_within_a_word_of_codes_are_real_numbers() -> None:
    feeds, tensors = operands(2, 8, False, rows=HIDDEN)
    order = " ".join(name if name in feeds | tensors else "-" for name in ORDER.split())
    model = model_of("QMoE", feeds, tensors, order=order, k=2, expert_weight_bits=2, block_size=8)
    graph = load_model(model.SerializeToString())
    assert "matmul_coded" not in {node.op for node in graph.nodes}
    wide = {name: array[..., ::2] if name[0] == "s" else array for name, array in tensors.items()}
    same = {name: np.repeat(array, 2, 2) if name[0] == "s" else array for name, array in wide.items()}
    small, large = (
        model_of("QMoE", feeds, each, order=order, k=2, expert_weight_bits=2, block_size=size)
        for each, size in ((same, 8), (wide, 16))
    )
    found, expected = (evaluate_graph(load_model(m.SerializeToString()), feeds)["y"] for m in (small, large))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_refusals() -> None:
    feeds, tensors = operands(4, 32, False, rows=HIDDEN)
    given: dict[str, Any] = {"order": "x r q1 s1 b1 q2 s2 b2", "block_size": 32}
    assert "only quant_type='int'" in refusal("QMoE", feeds, tensors, quant_type="fp4", **given)
    assert "weights_prepacked=0 or -1" in refusal("QMoE", feeds, tensors, weights_prepacked=1, **given)
    said = refusal("QMoE", feeds, tensors, kind=ModelError, expert_weight_bits=5, **given)
    assert "a matrix of uint8(4, 32, 32) in numbers of 5 bits" in said
    said = refusal("QMoE", feeds, tensors, kind=ModelError, **(given | {"block_size": 16}))
    assert "scales (4, 32, 2) of a matrix (4, 32, 64) in blocks of block_size=16" in said
