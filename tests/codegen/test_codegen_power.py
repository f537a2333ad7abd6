"""Powers: shortcuts for constant exponents agree with NumPy, special values included."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.codegen.kernel import build_kernel
from autotune.runtime.function import KernelFunction
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, compute, const, placeholder
from autotune.tensor.expr import Expr, binary

VALUES = np.array(
    [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 1e-40, 3e38, np.inf, -np.inf, np.nan, 0.3, 7.0, -7.0, 1e-3, 9.0], np.float32
)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0, -1.0, 0.75, -2.0, 0.0])
def test_constant_exponents(exponent: float) -> None:
    x = placeholder(VALUES.shape, name="x")
    target = Target.parse("native -num-cores=1")

    def power(i: Expr) -> Expr:
        return binary("pow", x[i], const(exponent))

    definition = ComputeDef.build([x], [compute(VALUES.shape, power, name="y")])
    kernel = build_kernel(Schedule(definition).vectorize("y", "i"), target)
    with np.errstate(all="ignore"), KernelFunction(definition.inputs, kernel, target) as fn:
        np.testing.assert_allclose(fn(VALUES)[0], np.power(VALUES, np.float32(exponent)), rtol=1e-6)


def test_variable_and_integer_exponents() -> None:
    x, y = placeholder((9,), name="x"), placeholder((9,), "i32", "y")
    z = placeholder((9,), "i32", "z")
    target = Target.parse("native -num-cores=1")
    a = compute((9,), lambda i: binary("pow", x[i], x[8 - i]), name="a")
    b = compute((9,), lambda i: binary("pow", y[i], z[i]), name="b")
    definition = ComputeDef.build([x, y, z], [a, b])
    values = np.linspace(0.2, 3, 9, dtype=np.float32)
    ints, powers = np.arange(-4, 5, dtype=np.int32), np.arange(9, dtype=np.int32)
    with KernelFunction(definition.inputs, build_kernel(Schedule(definition), target), target) as fn:
        got = fn(values, ints, powers)
    np.testing.assert_allclose(got[0], values ** values[::-1], rtol=1e-6)
    np.testing.assert_array_equal(got[1], ints**powers)
