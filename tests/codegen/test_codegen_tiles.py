"""Products of tiles (AMX): the right numbers, the instructions themselves, one configuration, and every refusal."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.codegen.jit import assembly
from autotune.codegen.kernel import generate
from autotune.errors import CodegenError, ScheduleError
from autotune.lower import lower
from autotune.schedule import Schedule
from autotune.schedule.dot_products import DOT_PRODUCTS
from autotune.target import Target
from autotune.tensor import ComputeDef, Layout, cast, compute, placeholder, reduce_axis, sum_
from tests.conftest import Right
from tests.lower.loop_interpreter import execute

NAMES = ("tdpbusd", "tdpbssd", "tdpbuud", "tdpbf16ps", "tdpfp16ps")
SHAPES = [
    # m, n, k, rows of a tile, tiles along m, along n, groups
    (64, 64, 256, 16, 2, 2, 16),
    (32, 64, 128, 16, 1, 4, 16),
    (33, 40, 64, 16, 2, 2, 16),  # a rest of one row and of half a vector
    (49, 17, 64, 16, 2, 2, 16),  # tiles of 16, of 1 and of no rows
    (21, 50, 24, 7, 3, 1, 2),
    (5, 20, 8, 5, 1, 2, 1),
    (1, 33, 64, 1, 1, 3, 4),
    (37, 40, 64, 10, 2, 2, 16),  # 10 rows and 7
]


def product(m: int, n: int, k: int, left: str = "u8", right: str = "i8", total: str = "i32") -> Schedule:
    a, b = placeholder((m, k), left, "in0"), placeholder((k, n), right, "in1", constant=True)
    r = reduce_axis(k, "k")
    c = compute((m, n), lambda i, j: sum_(cast(total, a[i, r]) * cast(total, b[r, j]), r), name="C")
    d = compute((m, n), lambda i, j: c[i, j] + c[i, j] * 2, name="D")
    return Schedule(ComputeDef.build([a, b], [d]))


def tiled(s: Schedule, name: str, rows: int = 16, down: int = 2, across: int = 2, groups: int = 16) -> Schedule:
    """Tiles of `rows` x 16 accumulators, `down` x `across` of them together, copied to scratch for what follows."""
    fold = DOT_PRODUCTS[name].extent
    s = s.layout("in1", Layout.blocked(2, [(1, 16 * across), (0, fold)]))
    s = s.split("D", "i", rows * down).split("D", "j", 16 * across).reorder("D", "i.0", "j.0", "i.1", "j.1")
    s = s.split("D", "j.1", 16).unroll("D", "j.1.0").vectorize("D", "j.1.1").cache_read("C", "D")
    s = s.compute_at("C.r", "D", "j.0").compute_at("C", "D", "j.0", "tile").parallel("D", "i.0").partition("D", "i.0")
    blocks = Layout.blocked(2, [(0, rows), (1, 16)])
    for stage, i, j in (("C", "i", "j"), ("C.r", "i0", "i1")):
        s = s.layout(stage, blocks).split(stage, i, rows).split(stage, j, 16)
        s = s.reorder(stage, f"{i}.0", f"{j}.0", f"{i}.1", f"{j}.1")
        s = s.unroll(stage, f"{i}.0").unroll(stage, f"{j}.0").vectorize(stage, f"{j}.1").pad(stage, j)
    s = s.split("C", "k", fold * groups).split("C", "k.1", fold)
    s = s.reorder("C", "k.0", "i.0", "j.0", "i.1", "j.1", "k.1.0", "k.1.1")
    return s.tensorize("C", "i.1", name).tensorize("C.r", "i0.1", "tilestored")


def of_types(name: str, m: int, n: int, k: int) -> Schedule:
    dot = DOT_PRODUCTS[name]
    return product(m, n, k, dot.left.value, dot.right.value, dot.total.value)


def assembled(s: Schedule, mcpu: str = "sapphirerapids") -> str:
    target = Target.parse(f"x86 -mcpu={mcpu} -num-cores=1")
    return assembly(generate(s, target).ir, cpu=target.cpu, features=target.llvm_features)


@pytest.mark.isa("amx-int8")
@pytest.mark.parametrize("name", ["tdpbusd", "tdpbssd", "tdpbuud"])
@pytest.mark.parametrize(("m", "n", "k", "rows", "down", "across", "groups"), SHAPES)
def test_bytes(name: str, m: int, n: int, k: int, rows: int, down: int, across: int, groups: int, right: Right) -> None:
    right(tiled(of_types(name, m, n, k), name, rows, down, across, groups))


@pytest.mark.isa("amx-bf16")
@pytest.mark.parametrize(("m", "n", "k", "rows", "down", "across", "groups"), SHAPES)
def test_bf16(m: int, n: int, k: int, rows: int, down: int, across: int, groups: int, right: Right) -> None:
    right(tiled(of_types("tdpbf16ps", m, n, k), "tdpbf16ps", rows, down, across, groups))


@pytest.mark.isa("amx-fp16")
def test_f16(right: Right) -> None:
    right(tiled(of_types("tdpfp16ps", 33, 40, 64), "tdpfp16ps"))


@pytest.mark.isa("amx-int8")
def test_factors_in_the_other_order(right: Right) -> None:
    right(tiled(product(33, 40, 64, "i8", "u8"), "tdpbusd"))


@pytest.mark.parametrize("name", NAMES)
def test_the_nest_means_the_product_on_any_cpu(name: str) -> None:
    dot, rng = DOT_PRODUCTS[name], np.random.default_rng(0)
    left, right = rng.integers(0, 5, (17, 8)), rng.integers(0, 5, (8, 20))
    inputs = {"in0": left.astype(dot.left.numpy), "in1": right.astype(dot.right.numpy)}
    found = execute(lower(tiled(of_types(name, 17, 20, 8), name, groups=2)), inputs)
    np.testing.assert_array_equal(found["D"], 3 * (left @ right))


@pytest.mark.parametrize("name", NAMES)
def test_the_instructions_are_there(name: str) -> None:
    s = tiled(of_types(name, 64, 64, 256), name)
    text = assembled(s, "graniterapids" if name == "tdpfp16ps" else "sapphirerapids")
    counts = {word: text.count(f"\t{word}") for word in (name, "tileloadd", "tilezero", "tilestored", "ldtilecfg")}
    assert counts == {name: 4, "tileloadd": 4, "tilezero": 4, "tilestored": 4, "ldtilecfg": 1}
    assert text.count("\ttilerelease") == 1


def test_the_other_order_has_its_own_instruction() -> None:
    assert assembled(tiled(product(64, 64, 256, "i8", "u8"), "tdpbusd")).count("\ttdpbsud") == 4


def test_tiles_of_other_heights_are_configured_where_they_are_used() -> None:
    """Whole tiles, and a rest of 16 rows and of one."""
    assert assembled(tiled(product(49, 64, 64), "tdpbusd")).count("\tldtilecfg") == 2


def test_registers_of_factors_are_used_again() -> None:
    """Six accumulators leave two registers: the left factor stays, the right ones take turns."""
    text = assembled(tiled(product(16, 96, 64), "tdpbusd", down=1, across=6))
    assert (text.count("\ttdpbusd"), text.count("\ttileloadd")) == (6, 7)


def test_a_target_without_the_instruction() -> None:
    with pytest.raises(CodegenError, match="tensorized with tdpbusd, but .* lacks amx-tile and amx-int8; leave out"):
        assembled(tiled(product(64, 64, 64), "tdpbusd"), "icelake-server")
    with pytest.raises(CodegenError, match="lacks amx-tile and amx-fp16"):
        assembled(tiled(of_types("tdpfp16ps", 64, 64, 64), "tdpfp16ps"))


def test_too_many_accumulators() -> None:
    with pytest.raises(CodegenError, match="C needs more than 6 tiles for accumulators, and there are 8"):
        assembled(tiled(product(64, 128, 64), "tdpbusd", down=2, across=4))


def test_too_many_shapes() -> None:
    """Tiles of 10 rows and of 7 in a rest, and the right factor's: three, where six accumulators leave two."""
    with pytest.raises(CodegenError, match="factors of more shapes than the 2 tiles left for them; make tiles smaller"):
        assembled(tiled(product(37, 40, 64), "tdpbusd", rows=10, across=3))


def test_factors_that_lie_badly() -> None:
    s = tiled(product(64, 64, 64), "tdpbusd").layout("in1", Layout.row_major(2))
    with pytest.raises(CodegenError, match="tdpbusd needs rows of 64 neighbours of in1, or lanes of 4; pack it"):
        assembled(s)
    s = tiled(product(64, 64, 64), "tdpbusd").layout("in0", Layout.blocked(2, [(0, 3)]))
    with pytest.raises(CodegenError, match="the places of in0 along C.i.1 are not evenly apart; pack it"):
        assembled(s)


def test_tiles_that_are_not_tensorized() -> None:
    s = product(64, 64, 64).split("D", "j", 16).compute_at("C", "D", "j.0", "tile")
    with pytest.raises(CodegenError, match="C is kept in tiles, but what touches it is not tensorized; tensorize it"):
        assembled(s)


def test_refusals() -> None:
    s = tiled(product(64, 64, 64), "tdpbusd")
    with pytest.raises(ScheduleError, match="i.1 is tensorized and must stay innermost"):
        s.reorder("C", "i.1", "k.0")
    plain = product(64, 64, 64).split("D", "i", 16).split("D", "j", 16).reorder("D", "i.0", "j.0", "i.1", "j.1")
    plain = plain.cache_read("C", "D").compute_at("C.r", "D", "j.0")
    near = plain.compute_at("C", "D", "j.0", "tile").vectorize("C", "j")
    four = near.split("C", "k", 4)
    with pytest.raises(ScheduleError, match="tdpbusd adds to tiles; compute C at a loop, in tile"):
        plain.compute_at("C", "D", "j.0").tensorize("C", "i", "tdpbusd")
    with pytest.raises(ScheduleError, match="takes four loops, innermost: rows, 16 vectorized lanes, groups, 4 neigh"):
        near.tensorize("C", "i", "tdpbusd")
    with pytest.raises(ScheduleError, match="tdpbssd needs a sum of i32.i8. . i32.i8."):
        four.tensorize("C", "i", "tdpbssd")
    with pytest.raises(ScheduleError, match="tdpbusd folds 4 products, not 8; split"):
        near.split("C", "k", 8).tensorize("C", "i", "tdpbusd")
    with pytest.raises(ScheduleError, match="tilestored takes two loops, innermost: rows, 16 lanes; reorder"):
        plain.tensorize("C.r", "i1", "tilestored")
    with pytest.raises(ScheduleError, match="C is not kept in tiles"):
        plain.vectorize("C.r", "i1").tensorize("C.r", "i0", "tilestored")
    wide = product(64, 64, 512).split("D", "i", 16).split("D", "j", 16).reorder("D", "i.0", "j.0", "i.1", "j.1")
    wide = wide.compute_at("C", "D", "j.0", "tile").vectorize("C", "j").split("C", "k", 4)
    with pytest.raises(ScheduleError, match="tdpbusd takes 16 groups, not 128; split"):
        wide.tensorize("C", "i", "tdpbusd")
    tall = product(64, 64, 64).split("D", "j", 16).reorder("D", "j.0", "i", "j.1")
    tall = tall.compute_at("C", "D", "j.0", "tile").vectorize("C", "j").split("C", "k", 4)
    with pytest.raises(ScheduleError, match="a tile has 16 rows, not 64; split"):
        tall.tensorize("C", "i", "tdpbusd")


def test_every_line_of_a_factor_is_asked_for_in_advance() -> None:
    """Of the right factor, 16 rows of a tile, in each turn for two tiles; of the left one, its rows."""
    s = tiled(product(64, 64, 256), "tdpbusd")
    assert assembled(s.prefetch("C", "in1", "k.0", 2)).count("\tprefetcht0") == 32
    assert assembled(s.prefetch("C", "in0", "k.0", 2)).count("\tprefetcht0") == 32
