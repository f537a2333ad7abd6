"""Functions of generated code: within 2 ulp over the whole range, and right where there is no number."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from autotune.codegen.kernel import build_kernel
from autotune.runtime.function import KernelFunction
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, compute, placeholder
from autotune.tensor.expr import binary, unary

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
COUNT = 1 << 16
TARGETS = ("native -num-cores=1", "x86 -mcpu=haswell -num-cores=1")
EXACT: dict[str, Callable[[F64], F64]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "sin": np.sin,
    "cos": np.cos,
    "sigmoid": lambda x: np.where(x < 0, np.exp(x), 1) / (1 + np.exp(-np.abs(x))),
    "log": np.log,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
}
SPECIAL = (
    *(0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38),
    *(88.72283, 88.72284, -87.33655, -103.97207, -103.97209, -104.5),  # where exp overflows, and where it vanishes
    *(0.55, 0.55000001, 0.9277344, 9.01, 4.0, 48000.0, 48001.0, 1e30),
)


@functools.cache
def function(op: str, target: str) -> KernelFunction:
    x = placeholder((COUNT,), name="x")
    y = compute((COUNT,), lambda i: unary(op, x[i]), name="y")
    lanes = Target.parse(target).lanes(4)
    schedule = Schedule(ComputeDef.build([x], [y])).split("y", "i", lanes).vectorize("y", "i.1")
    chosen = Target.parse(target)
    return KernelFunction([x], build_kernel(schedule, chosen), chosen)


def inputs() -> dict[str, F32]:
    rng = np.random.default_rng(7)
    signs = rng.choice([-1.0, 1.0], COUNT)
    return {
        "every exponent": rng.integers(0, 2**32, COUNT, dtype=np.uint64).astype(np.uint32).view(np.float32),
        "where it moves": np.linspace(-12, 12, COUNT).astype(np.float32),
        "where exp moves": np.linspace(-105, 90, COUNT).astype(np.float32),
        "near zero": (signs * 2.0 ** rng.uniform(-30, 1, COUNT)).astype(np.float32),
        "near one": (1 + rng.uniform(-0.3, 0.5, COUNT)).astype(np.float32),
        "special": np.resize(np.array(SPECIAL, np.float32), COUNT),
    }


def ulps(got: F32, exact: F64) -> F64:
    """Distance in units of the last place of the exact value; 0 where both are the same infinity or NaN."""
    rounded = exact.astype(np.float32)
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(np.abs(exact))
        unit = 2.0 ** (np.maximum(exponent - 1, -126) - 23.0)
        distance = np.abs(got.astype(np.float64) - exact) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    return np.where(same, np.where(np.isfinite(distance), np.minimum(distance, 0.5), 0.0), distance)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", EXACT)
def test_within_two_ulp_everywhere(op: str, target: str) -> None:
    for name, x in inputs().items():
        (got,) = function(op, target)(x)
        exact = EXACT[op](x.astype(np.float64))
        error = ulps(got, exact)
        worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
        assert error[worst] <= 2.0, f"{name}: {op}({x[worst]!r}) is {got[worst]!r}, exactly {exact[worst]!r}"


@pytest.mark.parametrize("op", ["tanh", "erf", "sin"])
def test_odd_functions_keep_the_sign_of_zero(op: str) -> None:
    x = np.resize(np.array([-0.0, 0.0], np.float32), COUNT)
    (got,) = function(op, TARGETS[0])(x)
    assert np.array_equal(np.signbit(got), np.signbit(x)) and not got.any()


@functools.cache
def power(target: str) -> KernelFunction:
    x, y = placeholder((COUNT,), name="x"), placeholder((COUNT,), name="y")
    z = compute((COUNT,), lambda i: binary("pow", x[i], y[i]), name="z")
    chosen = Target.parse(target)
    schedule = Schedule(ComputeDef.build([x, y], [z])).split("z", "i", chosen.lanes(4)).vectorize("z", "i.1")
    return KernelFunction([x, y], build_kernel(schedule, chosen), chosen)


def pairs() -> dict[str, tuple[F32, F32]]:
    rng = np.random.default_rng(3)
    any_number = [rng.integers(0, 2**32, COUNT, dtype=np.uint64).astype(np.uint32).view(np.float32) for _ in range(2)]
    positive = (2.0 ** rng.uniform(-149, 128, COUNT)).astype(np.float32)
    grid = np.array([0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 2.5, -2.5, math.inf, -math.inf, math.nan, 1e-45, 3e38,
                     -3e38, 16777216, 16777217, 33554434, 1e10, 1.0000001, 0.9999999], np.float32)  # fmt: skip
    left, right = (a.ravel() for a in np.meshgrid(grid, grid))
    return {
        "any": (any_number[0], any_number[1]),
        "finite": (positive, (rng.uniform(-130, 130, COUNT) / np.log2(positive)).astype(np.float32)),
        "near one": (
            (1 + rng.uniform(-1e-3, 1e-3, COUNT)).astype(np.float32),
            rng.uniform(-9e4, 9e4, COUNT).astype("f4"),
        ),
        "whole": (rng.uniform(-40, 40, COUNT).astype(np.float32), rng.integers(-30, 30, COUNT).astype(np.float32)),
        "special": (np.resize(left, COUNT), np.resize(right, COUNT)),
    }


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("target", TARGETS)
def test_powers_within_two_ulp_everywhere(target: str) -> None:
    for name, (x, y) in pairs().items():
        (got,) = power(target)(x, y)
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
        error = ulps(got, exact)
        worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
        case = f"{name}: {x[worst]!r} ** {y[worst]!r} is {got[worst]!r}, exactly {exact[worst]!r}"
        assert error[worst] <= 2.0, case
        assert np.array_equal(np.signbit(got)[~np.isnan(got)], np.signbit(exact)[~np.isnan(got)]), name


@pytest.mark.parametrize("target", TARGETS)
def test_gelu_within_three_units_of_its_argument(target: str) -> None:
    exact = np.vectorize(lambda x: x * math.erfc(-x * math.sqrt(0.5)) / 2, otypes=[np.float64])
    for name, x in inputs().items():
        x = x[np.isfinite(x)]
        (got,) = function("gelu", target)(np.resize(x, COUNT))
        error = np.abs(got[: x.size].astype(np.float64) - exact(x.astype(np.float64)))
        unit = np.maximum(np.abs(x.astype(np.float64)) * 2.0**-24, 2.0**-149)
        worst = int(np.argmax(error / unit))
        assert error[worst] <= 3 * unit[worst], f"{name}: gelu({x[worst]!r}) is {got[worst]!r}"
    far = np.resize(np.array([-6.0, -1e3, -3e38, 6.0, 1e3, 3e38, math.inf, math.nan], np.float32), COUNT)
    (got,) = function("gelu", target)(far)
    assert not got[:3].any()
    assert np.array_equal(got[3:8], far[3:8], equal_nan=True)
