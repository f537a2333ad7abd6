"""Storage types: every bit pattern as ml_dtypes reads it, every rounding as it makes it, evaluated and as kernels."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.codegen.kernel import build_kernel
from autotune.errors import WorkloadError
from autotune.measure.bench import Bench, TaskData
from autotune.measure.failure import Failure
from autotune.measure.reference import reference_of
from autotune.measure.verify import verify
from autotune.ops import parse_workload
from autotune.runtime.threads import ThreadPool
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, DType, compute, placeholder
from autotune.tensor.evaluate import evaluate
from autotune.tensor.formats import decoded, encoded
from autotune.tensor.storage import INTEGER_BITS, MINIFLOATS, integer_range, width

STORAGE = [d for d in DType if d.is_storage]
F32 = NDArray[np.float32]


def patterns(dtype: DType) -> NDArray[np.uint8]:
    """Every element, once."""
    return np.arange(1 << width(dtype), dtype=np.uint8)


def numbers(dtype: DType) -> F32:
    """Every number of a type, what lies around it and between two, and what is none of its numbers."""
    if dtype is DType.f8e8m0:
        known = np.ldexp(np.ones(254), np.arange(-126, 128)).astype(np.float32)
    else:
        held = patterns(dtype).view(dtype.numpy).astype(np.float32)
        known = np.unique(held[np.isfinite(held)])
    between = (known[1:] + known[:-1]) / 2
    exact = np.concatenate([known, between, known[:-1] * np.float32(1.3)])
    near = np.concatenate([np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(-np.inf))])
    drawn = np.random.default_rng(0).standard_normal(1000) * min(float(np.abs(known).max()), 1e37)
    rare = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 1e-40, 1e30, -1e30, 3.4e38]
    found = np.concatenate([exact, near, drawn, np.array(rare)]).astype(np.float32)
    return np.abs(found) if dtype is DType.f8e8m0 else found


def made(x: F32, dtype: DType, saturate: bool = True, rounding: str = "up") -> NDArray[np.uint8]:
    t = placeholder(x.shape, "f32", "x")
    y = compute(x.shape, lambda i: encoded(t[i], dtype, saturate, rounding), "y")
    return evaluate(ComputeDef.build([t], [y]), {"x": x})["y"].view(np.uint8)


def as_ml_dtypes(x: F32, dtype: DType, saturate: bool) -> NDArray[np.uint8]:
    with np.errstate(all="ignore"):
        if saturate and dtype in MINIFLOATS:
            largest = np.float32(np.uint8(MINIFLOATS[dtype].largest).reshape(1).view(dtype.numpy).astype(np.float32)[0])
            x = np.clip(x, -largest, largest)
        return x.astype(dtype.numpy).view(np.uint8)


@pytest.mark.parametrize("dtype", STORAGE)
def test_every_pattern_is_read(dtype: DType) -> None:
    bits = patterns(dtype)
    t = placeholder(bits.shape, dtype, "x")
    y = compute(bits.shape, lambda i: decoded(t[i], DType.f32), "y")
    found = evaluate(ComputeDef.build([t], [y]), {"x": bits.view(dtype.numpy)})["y"]
    np.testing.assert_array_equal(found, bits.view(dtype.numpy).astype(np.float32))


def test_bits_above_a_number_do_not_count() -> None:
    bits = np.arange(256, dtype=np.uint8)
    for dtype in INTEGER_BITS:
        t = placeholder(bits.shape, dtype, "x")
        y = compute(bits.shape, lambda i, t=t: decoded(t[i], DType.i32), "y")
        found = evaluate(ComputeDef.build([t], [y]), {"x": bits.view(dtype.numpy)})["y"]
        np.testing.assert_array_equal(found, bits.view(dtype.numpy).astype(np.int32))


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("dtype", MINIFLOATS)
def test_every_rounding(dtype: DType, saturate: bool) -> None:
    x = numbers(dtype)
    found, wanted = made(x, dtype, saturate), as_ml_dtypes(x, dtype, saturate)
    off = found != wanted
    assert not off.any(), [(float(a), int(b), int(c)) for a, b, c in zip(x[off], found[off], wanted[off])][:5]


@pytest.mark.parametrize("rounding", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [True, False])
def test_powers_of_two(rounding: str, saturate: bool) -> None:
    numpy_helper = pytest.importorskip("onnx.numpy_helper")
    if not hasattr(numpy_helper, "to_float8e8m0"):
        pytest.skip("onnx has no reference of f8e8m0")
    x = numbers(DType.f8e8m0)
    wanted = numpy_helper.to_float8e8m0(x, saturate, rounding).view(np.uint8)
    np.testing.assert_array_equal(made(x, DType.f8e8m0, saturate, rounding), wanted)


@pytest.mark.parametrize("dtype", INTEGER_BITS)
def test_integers_keep_their_low_bits(dtype: DType) -> None:
    low, high = integer_range(dtype)
    x = np.arange(low, high + 1).astype(np.float32)
    assert made(x, dtype).view(dtype.numpy).astype(np.float32).tolist() == x.tolist()
    given = np.arange(-300, 300)
    t = placeholder(given.shape, "i64", "x")
    y = compute(given.shape, lambda i: encoded(t[i], dtype), "y")
    found = evaluate(ComputeDef.build([t], [y]), {"x": given})["y"]
    np.testing.assert_array_equal(found.astype(np.int64), given.astype(dtype.numpy).astype(np.int64))


@pytest.mark.parametrize("target", ["native", "x86 -mcpu=haswell"])
@pytest.mark.parametrize("dtype", STORAGE)
def test_as_kernels(dtype: DType, target: str) -> None:
    """Both ways, in vectors."""
    bits = np.resize(patterns(dtype), 256).view(dtype.numpy)
    real = np.resize(numbers(dtype), 4096)
    if dtype in INTEGER_BITS:
        real = np.clip(np.nan_to_num(real), *integer_range(dtype)).astype(np.float32)
    a, b = placeholder(bits.shape, dtype, "in0"), placeholder(real.shape, "f32", "in1")
    outputs = [
        compute(bits.shape, lambda i: decoded(a[i], DType.f32), "out0"),
        compute(real.shape, lambda i: encoded(b[i], dtype), "out1"),
        compute(real.shape, lambda i: encoded(b[i], dtype, False, "nearest"), "out2"),
    ]
    s = Schedule(ComputeDef.build([a, b], outputs))
    for t in outputs:
        s = s.split(t.name, "i", 16).vectorize(t.name, "i.1")
    data = TaskData(reference_of(s.compute, (bits, real)))
    with Bench(build_kernel(s, Target.parse(target)), data, 1) as bench:
        found = verify(bench, [ThreadPool(1)])
    assert not isinstance(found, Failure), found


def test_nothing_is_computed_in_a_storage_type() -> None:
    for text, message in [
        ("add a=4:f8e5m2 b=4:f8e5m2", "computes nothing in f8e5m2"),
        ("cast data=4 to=i4", "by encode"),
        ("encode data=4 to=f32", "no storage type"),
        ("bit_cast data=4:u8 to=i4", "8 bits"),
    ]:
        with pytest.raises(WorkloadError, match=message):
            parse_workload(text)
