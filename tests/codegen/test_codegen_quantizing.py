"""Numbers that become bytes: rounded half to even before the zero point, saturated, NaN to 0, in few instructions."""

from __future__ import annotations

import re

import numpy as np
import pytest

from autotune.codegen.jit import assembly
from autotune.codegen.kernel import build_kernel, generate
from autotune.measure.bench import Bench, TaskData
from autotune.measure.failure import Failure
from autotune.measure.reference import reference_of
from autotune.measure.verify import verify
from autotune.runtime.threads import ThreadPool
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, DType, Expr, Layout, cast, compute, placeholder
from autotune.tensor.expr import unary

HOSTILE = [0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 127.5, 128.5, 254.5, 255.5, 256.0, -127.5, -128.5, -129.0, 32767.5]
HOSTILE += [65536.0, 1e9, 2147483648.0, 4e9, -32769.0, -1e9, -4e9, 1e30, -1e30, np.inf, -np.inf, np.nan, 0.0, -0.0]


def bytes_of(rows: int, columns: int, to: str, zero: int | None) -> Schedule:
    """round(x) + z of a matrix; z a constant, or an operand of one element."""
    x, z = placeholder((rows, columns), "f32", "in0"), placeholder((), to, "in1")

    def point(i: Expr, j: Expr) -> Expr:
        rounded = unary("round", x[i, j])
        return cast(to, rounded + (cast(DType.f32, z[()]) if zero is None else float(zero)))

    out = compute((rows, columns), point, "out", ["i", "j"])
    return Schedule(ComputeDef.build([x, z] if zero is None else [x], [out]))


def tiled(s: Schedule, rows: int, vectors: int, lanes: int) -> Schedule:
    s = s.split("out", "i", rows).split("out", "j", vectors * lanes).split("out", "j.1", lanes)
    s = s.reorder("out", "i.0", "j.0", "i.1", "j.1.0", "j.1.1").unroll("out", "i.1").unroll("out", "j.1.0")
    return s.vectorize("out", "j.1.1")


def assert_right(s: Schedule, target: Target, zero: int, to: str) -> None:
    shape = s.compute.inputs[0].shape
    rng = np.random.default_rng(0)
    x = np.where(rng.random(shape) < 0.5, rng.choice(np.array(HOSTILE, np.float32), shape), rng.normal(0, 200, shape))
    given = [x.astype(np.float32), np.array(zero, to)][: len(s.compute.inputs)]
    data = TaskData(reference_of(s.compute, tuple(given)))
    with Bench(build_kernel(s, target), data, 2) as bench:
        failure = verify(bench, [ThreadPool(1), ThreadPool(2)])
    assert not isinstance(failure, Failure), failure


@pytest.mark.parametrize("target", ["native -num-cores=2", "x86 -mcpu=haswell -num-cores=2"])
@pytest.mark.parametrize(("to", "zero"), [("uint8", 0), ("uint8", 3), ("uint8", 255), ("int8", -128), ("int8", 5)])
@pytest.mark.parametrize(("rows", "vectors"), [(1, 1), (1, 2), (1, 3), (2, 4), (3, 5), (4, 1)])
@pytest.mark.parametrize("given", [True, False])
def test_bytes_are_the_definition(rows: int, vectors: int, to: str, zero: int, given: bool, target: str) -> None:
    t = Target.parse(target)
    lanes = t.lanes(4)
    dtype = to.replace("uint", "u").replace("int", "i")
    columns = 2 * vectors * lanes + (5 if vectors == 3 else 0)
    s = tiled(bytes_of(2 * rows, columns, dtype, None if given else zero), rows, vectors, lanes)
    if not given and vectors == 1:  # rows of one vector each, whose bytes lie side by side
        s = s.layout("out", Layout.blocked(2, [(1, lanes)], order=(1, 0)))
    assert_right(s, t, zero, to)


@pytest.mark.parametrize(("mcpu", "lanes"), [("icelake-server", 16), ("haswell", 8), ("icelake-server", 4)])
def test_all_widths(mcpu: str, lanes: int) -> None:
    if not (target := Target.parse(f"x86 -mcpu={mcpu} -num-cores=1")).runs_on_host():
        pytest.skip("this CPU has no such instructions")
    assert_right(tiled(bytes_of(3, 3 * lanes + 1, "u8", 7), 1, 2, lanes), target, 7, "uint8")


@pytest.mark.parametrize(
    ("mcpu", "register", "narrow"), [("icelake-server", "zmm", "vpermd"), ("haswell", "ymm", "vperm(?:d|ps)")]
)
def test_four_vectors_share_their_packing(mcpu: str, register: str, narrow: str) -> None:
    target = Target.parse(f"x86 -mcpu={mcpu} -num-cores=1")
    s = tiled(bytes_of(4, 8 * target.lanes(4), "u8", None), 2, 4, target.lanes(4))
    text = assembly(generate(s, target).ir, cpu=target.cpu, features=target.llvm_features)
    expected = {"vminps": 8, "vcvtps2dq": 8, "vpackssdw": 4, "vpaddsw": 4, "vpackuswb": 2, narrow: 2}
    expected |= {"vroundps": 0, "vrndscaleps": 0}
    counts = {name: len(re.findall(rf"^\t{name}\s.*%{register}", text, re.MULTILINE)) for name in expected}
    assert counts == expected


def test_one_vector_is_narrowed_with_saturation() -> None:
    target = Target.parse("x86 -mcpu=icelake-server -num-cores=1")
    s = tiled(bytes_of(4, 16, "u8", None), 1, 1, 16)
    text = assembly(generate(s, target).ir, cpu=target.cpu, features=target.llvm_features)
    assert text.count("vpmovusdb") == 1 and text.count("vcvtps2dq") == 1 and "vrndscaleps" not in text


def centred_bytes(rows: int, columns: int, to: str, zero: int | None) -> Schedule:
    """(byte - z) of a matrix, the byte round(x) + z."""
    x, z = placeholder((rows, columns), "f32", "in0"), placeholder((), to, "in1")

    def point(i: Expr, j: Expr) -> Expr:
        moved = cast(DType.f32, z[()]) if zero is None else float(zero)
        return cast(DType.f32, cast(to, unary("round", x[i, j]) + moved)) - moved

    out = compute((rows, columns), point, "out", ["i", "j"])
    return Schedule(ComputeDef.build([x, z] if zero is None else [x], [out]))


@pytest.mark.parametrize("target", ["native -num-cores=2", "x86 -mcpu=haswell -num-cores=2"])
@pytest.mark.parametrize(("to", "zero"), [("uint8", 0), ("uint8", 255), ("int8", -128), ("int8", 5)])
@pytest.mark.parametrize("given", [True, False])
def test_bytes_less_their_zero_point_are_bounded_numbers(to: str, zero: int, given: bool, target: str) -> None:
    t = Target.parse(target)
    dtype = to.replace("uint", "u").replace("int", "i")
    s = tiled(centred_bytes(4, 2 * t.lanes(4) + 5, dtype, None if given else zero), 2, 1, t.lanes(4))
    assert_right(s, t, zero, to)
    text = generate(s, t).ir
    assert "roundeven" in text and "to <" + str(t.lanes(4)) + " x i8>" not in text
