"""Weight-only quantised products: which become products of codes, that all are right, and what is left alone."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper

from autotune.api.session import InferenceSession
from autotune.graph import load_model, optimize
from tests.graph.graph_models import FEW, build, random

Array = NDArray[Any]
K, N = 96, 80
RANGES = {
    ml_dtypes.int4: (-8, 7), ml_dtypes.uint4: (0, 15), ml_dtypes.int2: (-2, 1), ml_dtypes.uint2: (0, 3),
    np.int8: (-128, 127), np.uint8: (0, 255),
}  # fmt: skip


def numbers(dtype: Any, *shape: int, seed: int = 0) -> Array:
    if dtype is ml_dtypes.float4_e2m1fn:
        return np.random.default_rng(seed).integers(0, 16, shape, np.uint8).view(dtype)
    low, high = RANGES[dtype]
    return np.random.default_rng(seed).integers(low, high, shape, endpoint=True).astype(np.float32).astype(dtype)


def weighted(
    dtype: Any, scale: tuple[int, ...], *, block: int = 0, axis: int = 0, zero: bool = True, turned: bool = False,
    rows: tuple[int, ...] = (2, 3), depth: int = K,
) -> tuple[Any, dict[str, Array], Array]:  # fmt: skip
    """(model, feeds, right answer) of x @ dequantize(w); `turned`: the weight is kept as (N, K)."""
    w = numbers(dtype, *((N, depth) if turned else (depth, N)))
    s = np.abs(random(*scale, seed=1)) + np.float32(0.1) if scale else np.asarray(0.25, np.float32)
    z = numbers(dtype, *scale, seed=2)
    attrs: dict[str, Any] = {"axis": axis} | ({"block_size": block} if block else {})
    x = {"x": random(*rows, depth)}
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", *(["z"] if zero else [])], ["r"], **attrs)]
    if turned:
        nodes.append(helper.make_node("Transpose", ["r"], ["t"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "t" if turned else "r"], ["y"]))
    tensors = {"w": w, "s": np.asarray(s)} | ({"z": np.asarray(z)} if zero else {})
    wide = [np.asarray(v, np.float64) for v in (s, z)]
    if block:
        wide = [np.repeat(v, block, axis)[tuple(map(slice, w.shape))] for v in wide]
    elif scale:
        wide = [v.reshape(tuple(-1 if d == axis else 1 for d in range(2))) for v in wide]
    real = (w.astype(np.float64) - (wide[1] if zero else 0)) * wide[0]
    return build(nodes, x, tensors, opset=25), x, x["x"].astype(np.float64) @ (real.T if turned else real)


def ops_of(model: Any) -> set[str]:
    return {node.op for node in optimize(load_model(model.SerializeToString())).nodes}


def check(model: Any, feeds: dict[str, Array], wanted: Array, coded: bool = True) -> None:
    assert ("matmul_coded" in ops_of(model)) == coded
    (found,) = InferenceSession(model.SerializeToString(), database=False).run(None, feeds)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("dtype", RANGES)
def test_every_type_in_blocks(dtype: Any, zero: bool, turned: bool) -> None:
    scale = (N, K // 32) if turned else (K // 32, N)
    check(*weighted(dtype, scale, block=32, axis=int(turned), zero=zero, turned=turned))


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, np.int8, np.uint8])
def test_a_scale_for_all_or_for_each_column(dtype: Any) -> None:
    check(*weighted(dtype, ()))
    check(*weighted(dtype, (N,), axis=1))
    check(*weighted(dtype, (N,), axis=0, turned=True))


def test_4_bit_floats() -> None:
    check(*weighted(ml_dtypes.float4_e2m1fn, (K // 16, N), block=16, zero=False))


@pytest.mark.parametrize("depth", [100, 97, 9])
def test_a_last_block_that_is_not_full(depth: int) -> None:
    check(*weighted(ml_dtypes.int4, (-(-depth // 32), N), block=32, depth=depth), coded=depth > 50)
    check(*weighted(np.int8, (-(-depth // 32), N), block=32, depth=depth), coded=depth > 50)


@pytest.mark.parametrize("rows", [(1,), (1, 1), (7,), (2, 20)])
def test_any_number_of_rows(rows: tuple[int, ...]) -> None:
    check(*weighted(ml_dtypes.uint4, (K // 32, N), block=32, rows=rows))


def test_what_is_computed_as_before() -> None:
    """A scale for each row of the weight, blocks within a word, and products of two quantised operands."""
    check(*weighted(ml_dtypes.int4, (K,), axis=0), coded=False)
    check(*weighted(ml_dtypes.int4, (K // 12, N), block=12), coded=False)
    check(*weighted(ml_dtypes.int4, (K, N // 16), block=16, axis=1), coded=False)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "a", "b"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "a", "b"], ["u"]),
        helper.make_node("DequantizeLinear", ["w", "s"], ["r"]),
        helper.make_node("MatMul", ["u", "r"], ["y"]),
    ]
    tensors: dict[str, Array] = {
        "a": np.asarray(0.02, np.float32), "b": np.asarray(128, np.uint8), "s": np.asarray(0.1, np.float32),
        "w": numbers(np.int8, K, N),
    }  # fmt: skip
    assert "matmul_coded" not in ops_of(build(nodes, {"x": random(4, K)}, tensors, opset=21))


def test_a_gemm_and_what_is_behind_it() -> None:
    w, s, c = numbers(ml_dtypes.int4, N, K), np.abs(random(N, K // 16, seed=1)), random(N, seed=2)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["r"], axis=1, block_size=16),
        helper.make_node("Gemm", ["x", "r", "c"], ["g"], transB=1),
        helper.make_node("Relu", ["g"], ["y"]),
    ]
    x = random(3, K)
    model = build(nodes, {"x": x}, {"w": w, "s": s, "c": c}, opset=21)
    wanted = np.maximum(x.astype(np.float64) @ (w.astype(np.float64) * np.repeat(s, 16, 1)).T + c, 0)
    check(model, {"x": x}, wanted)


@FEW
@given(st.data())
def test_matmul_nbits(data: st.DataObject) -> None:
    """Any shape, bits, block and kind of zero point, against NumPy."""
    bits, block = data.draw(st.sampled_from([2, 4, 8])), data.draw(st.sampled_from([16, 32, 64, 128, 256]))
    depth, columns, rows = (data.draw(st.integers(1, most)) for most in (300, 70, 5))
    zeros, bias = data.draw(st.sampled_from(["", "packed", "real"])), data.draw(st.booleans())
    rng, blocks = np.random.default_rng(depth), -(-depth // block)
    w = rng.integers(0, 1 << bits, (columns, blocks * block), np.uint8)
    tensors = {"b": packed(w, bits).reshape(columns, blocks, -1), "s": random(columns * blocks, seed=1, low=0.1)}
    points = np.full((columns, blocks), float(1 << (bits - 1)))
    if zeros == "real":
        tensors["z"] = random(columns * blocks, seed=2, low=0, high=15)
        points = tensors["z"].reshape(columns, blocks).astype(np.float64)
    if zeros == "packed":
        whole = rng.integers(0, 1 << bits, (columns, blocks), np.uint8)
        points = whole.astype(np.float64)
        tensors["z"] = packed(np.pad(whole, ((0, 0), (0, -blocks % (8 // bits)))), bits).reshape(-1)
    if bias:
        tensors["c"] = random(columns, seed=3)
    names = ["x", "b", "s", "z" if zeros else "", "", "c" if bias else ""]
    node = helper.make_node(
        "MatMulNBits", names, ["y"], domain="com.microsoft", K=depth, N=columns, bits=bits, block_size=block
    )
    x = random(rows, depth)
    model = build(node, {"x": x}, tensors, opset=21)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    spread = (np.repeat(v.reshape(columns, blocks), block, 1) for v in (points, tensors["s"].astype(np.float64)))
    zero, scale = spread
    wanted = x.astype(np.float64) @ ((w - zero) * scale)[:, :depth].T + (tensors["c"] if bias else 0)
    (found,) = InferenceSession(model.SerializeToString(), database=False).run(None, {"x": x})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * max(np.abs(wanted).max(), 1))


def packed(values: Array, bits: int) -> Array:
    """Rows of numbers in bytes, the first in the lowest bits."""
    fields = values.reshape(len(values), -1, 8 // bits) << np.arange(0, 8, bits, dtype=np.uint8)
    return np.asarray(np.bitwise_or.reduce(fields, axis=-1), np.uint8)
