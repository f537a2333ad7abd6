"""Conversions between f32 and half floats: every half float, and ties, NaN, infinities and subnormals of f32."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from autotune.codegen.jit import assembly
from autotune.codegen.kernel import build_kernel, generate
from autotune.ops import parse_workload
from autotune.runtime.function import KernelFunction
from autotune.search_spaces import default_config, make_schedule
from autotune.target import Target

HALF = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
TARGETS = (
    "native -num-cores=1",
    "x86 -mcpu=haswell -num-cores=1",
    pytest.param("x86 -mcpu=skylake-avx512 -num-cores=1", marks=pytest.mark.isa("avx512bw")),
)
COUNT = 1003
EDGES = (0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0x7F7FFFFF, 0x00000001,
         0x007FFFFF, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x33000000, 0x33000001, 0x38800000, 0x387FE000, 0x3F808000,
         0x3F818000, 0x3F808001, 0x7F7F8000, 0x7F7F7FFF, 0x3F801000, 0x3F803000)  # fmt: skip


@functools.lru_cache
def converted(source: str, to: str, count: int, target: str) -> Any:
    workload, wanted = parse_workload(f"cast data={count}:{source} to={to}"), Target.parse(target)
    schedule = make_schedule(workload, default_config(workload, wanted), wanted)
    return KernelFunction(schedule.compute.inputs, build_kernel(schedule, wanted), wanted)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", HALF)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), near=st.booleans())
def test_f32_to_half(dtype: str, target: str, seed: int, near: bool) -> None:
    """Rounded to nearest, ties to even; what is too large becomes infinite; NaN stays NaN."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2**32, COUNT, np.uint32)
    if near:  # halves between two neighbours, and one more or less
        bits = (bits & np.uint32(0xFFFF0000 if dtype == "bf16" else 0xFFFFE000)) + np.uint32(
            0x8000 if dtype == "bf16" else 0x1000
        )
        bits += rng.integers(-1, 2, COUNT).astype(np.uint32)
    bits[: len(EDGES)] = EDGES
    compare(run("f32", dtype, bits.view(np.float32), target), bits.view(np.float32), HALF[dtype])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", HALF)
def test_every_half_to_f32(dtype: str, target: str) -> None:
    values = np.arange(1 << 16, dtype=np.uint16).view(HALF[dtype])
    compare(run(dtype, "f32", values, target), values, np.dtype(np.float32))


@pytest.mark.parametrize(
    ("operator", "cpu", "instruction"),
    [
        ("matmul a=8,64 b=64,64", "znver4", True),
        ("relu data=512", "znver4", False),
        ("matmul a=8,64 b=64,64", "icelake-server", False),
    ],
)
def test_sums_are_rounded_by_the_instruction_for_it(operator: str, cpu: str, *, instruction: bool) -> None:
    """It takes subnormal numbers for zero, which only what is summed up may do."""
    target = Target.parse(f"x86 -mcpu={cpu} -num-cores=1")
    workload = parse_workload(f"{operator} + cast to=bf16")
    source = generate(make_schedule(workload, default_config(workload, target), target), target)
    text = assembly(source.ir, cpu=target.cpu, features=target.llvm_features)
    assert ("vcvtneps2bf16" in text) is instruction


def test_sums_become_the_nearest_bf16() -> None:
    """Every bf16, the ties between them and their neighbours, subnormal ones left out."""
    rng = np.random.default_rng(0)
    bits = rng.permutation(
        (np.arange(1 << 16, dtype=np.uint32) << 16) + np.tile([0, 0x7FFF, 0x8000, 0x8001], 1 << 14).astype(np.uint32)
    )
    values = bits.view(np.float32).reshape(-1, 16)
    values = np.where(np.abs(values) < np.finfo(np.float32).tiny, np.float32(0), values)
    target = Target.parse("native -num-cores=1")
    workload = parse_workload(f"reduce_sum data={len(values)},1,16 axes=1 keepdims=false + cast to=bf16")
    schedule = make_schedule(workload, default_config(workload, target), target)
    (found,) = KernelFunction(schedule.compute.inputs, build_kernel(schedule, target), target)(values[:, None])
    compare(np.asarray(found) + 0, values + 0, HALF["bf16"])


def test_constants_of_half_floats_are_those_of_what_is_computed() -> None:
    """x * (x / 6 + 1 / 2) beside its zero at -3, where a sixth in 16 bits is off by more than the result."""
    values = np.linspace(-3, -2.9, 14).astype(HALF["bf16"])
    workload, target = parse_workload(f"hard_swish data={len(values)}:bf16"), Target.parse("native -num-cores=1")
    schedule = make_schedule(workload, default_config(workload, target), target)
    (found,) = KernelFunction(schedule.compute.inputs, build_kernel(schedule, target), target)(values)
    wide = values.astype(np.float64)
    expected = wide * (wide + 3) / 6
    np.testing.assert_allclose(np.asarray(found).astype(np.float64), expected, rtol=2**-8, atol=1e-6)


def run(source: str, to: str, values: NDArray[Any], target: str) -> NDArray[Any]:
    (found,) = converted(source, to, len(values), target)(values)
    return np.asarray(found)


def compare(found: NDArray[Any], values: NDArray[Any], to: np.dtype[Any]) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(to)
    unsigned = np.dtype(f"u{to.itemsize}")
    nan = np.isnan(values.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float64)), nan)
    np.testing.assert_array_equal(found.view(unsigned)[~nan], expected.view(unsigned)[~nan])
