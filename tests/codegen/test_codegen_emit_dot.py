"""Dot-product instructions: the right numbers, the instruction itself, and every refusal."""

from __future__ import annotations

import pytest

from autotune.codegen.jit import assembly
from autotune.codegen.kernel import generate
from autotune.errors import CodegenError, ScheduleError
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.tensor import ComputeDef, Expr, Layout, cast, compute, placeholder, read, reduce_axis, sum_
from autotune.tensor.expr import binary, const
from tests.conftest import Right


def product(m: int, n: int, k: int, left: str = "u8", right: str = "i8", total: str = "i32") -> Schedule:
    a, b = placeholder((m, k), left, "in0"), placeholder((k, n), right, "in1", constant=True)
    r = reduce_axis(k, "k")
    c = compute((m, n), lambda i, j: sum_(cast(total, a[i, r]) * cast(total, b[r, j]), r), name="C")
    d = compute((m, n), lambda i, j: c[i, j] + c[i, j] * 2, name="D")
    return Schedule(ComputeDef.build([a, b], [d]))


def tiled(s: Schedule, lanes: int, extent: int, rows: int = 4) -> Schedule:
    """Rows x lanes in registers; B in blocks of lanes columns x extent rows."""
    s = s.layout("in1", Layout.blocked(2, [(1, lanes), (0, extent)]))
    s = s.split("D", "i", rows).split("D", "j", lanes).reorder("D", "i.0", "j.0", "i.1", "j.1")
    s = s.unroll("D", "i.1").vectorize("D", "j.1").compute_at("C", "D", "j.0", "register")
    return s.split("C", "k", extent).reorder("C", "k.0", "i", "j", "k.1").unroll("C", "i").vectorize("C", "j")


@pytest.mark.isa("avx512vnni")
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize(("m", "n", "k"), [(8, 32, 64), (7, 19, 12), (1, 20, 4)])
def test_vpdpbusd(m: int, n: int, k: int, lanes: int, right: Right) -> None:
    right(tiled(product(m, n, k), lanes, 4).tensorize("C", "k.1", "vpdpbusd"))


@pytest.mark.isa("avx512vnni")
def test_factors_in_the_other_order(right: Right) -> None:
    right(tiled(product(8, 32, 16, "i8", "u8"), 16, 4).tensorize("C", "k.1", "vpdpbusd"))


@pytest.mark.parametrize("types", [("u8", "i8"), ("i8", "i8"), ("u8", "u8"), ("i8", "u8")])
@pytest.mark.parametrize(
    ("instruction", "mcpu", "lanes"),
    [("vpmaddwd", "haswell", 4), ("vpmaddwd", "haswell", 8), ("vpmaddwd", "x86-64-v4", 16),
     ("vpdpwssd", "alderlake", 8), ("vpdpwssd", "icelake-server", 16)],
)  # fmt: skip
def test_bytes_that_are_widened(instruction: str, mcpu: str, lanes: int, types: tuple[str, str], right: Right) -> None:
    target = f"x86 -mcpu={mcpu} -num-cores=2"
    if not Target.parse(target).runs_on_host() or (instruction == "vpdpwssd" and len(set(types)) == 2):
        pytest.skip("this CPU has no such instruction, or it does not multiply these")
    right(tiled(product(7, 19, 12, *types), lanes, 4).tensorize("C", "k.1", instruction), target=target)


@pytest.mark.parametrize(
    ("instruction", "mcpu", "lanes", "types", "count"),
    [("vpdpbssd", "sierraforest", 8, ("i8", "i8"), 4), ("vpdpbuud", "arrowlake", 4, ("u8", "u8"), 4),
     ("vpdpbssd", "diamondrapids", 16, ("i8", "i8"), 4), ("vpdpbuud", "diamondrapids", 16, ("u8", "u8"), 4),
     ("vpdpwssd", "znver4", 16, ("i8", "i8"), 8), ("vpmaddwd", "znver2", 8, ("u8", "i8"), 8)],
)  # fmt: skip
def test_instructions_of_other_cpus(
    instruction: str, mcpu: str, lanes: int, types: tuple[str, str], count: int
) -> None:
    target = Target.parse(f"x86 -mcpu={mcpu} -num-cores=1")
    s = tiled(product(8, 32, 64, *types), lanes, 4).tensorize("C", "k.1", instruction)
    text = assembly(generate(s, target).ir, cpu=target.cpu, features=target.llvm_features)
    assert text.count(f"\t{instruction}\t") == count


@pytest.mark.isa("avx512bf16")
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize(("m", "n", "k"), [(8, 32, 64), (7, 19, 12), (1, 20, 2)])
def test_vdpbf16ps(m: int, n: int, k: int, lanes: int, right: Right) -> None:
    right(tiled(product(m, n, k, "bf16", "bf16", "f32"), lanes, 2).tensorize("C", "k.1", "vdpbf16ps"))


@pytest.mark.isa("avx512vnni")
@pytest.mark.parametrize(
    "form", [Layout.row_major(2), Layout.blocked(2, [(1, 16)]), Layout.blocked(2, [(1, 16)], (1, 0))]
)
@pytest.mark.parametrize("n", [32, 19])
def test_neighbours_of_lanes_are_interleaved(form: Layout, n: int, right: Right) -> None:
    right(tiled(product(7, n, 12), 16, 4).layout("in1", form).tensorize("C", "k.1", "vpdpbusd"))


@pytest.mark.isa("avx512bf16")
def test_pairs_of_lanes_are_interleaved(right: Right) -> None:
    s = tiled(product(8, 32, 12, "bf16", "bf16", "f32"), 16, 2).layout("in1", Layout.row_major(2))
    right(s.tensorize("C", "k.1", "vdpbf16ps"))


def test_four_rows_that_follow_one_another_are_one_load_and_one_shuffle() -> None:
    target = Target.parse("x86 -mcpu=icelake-server -num-cores=1")
    s = tiled(product(8, 32, 64), 16, 4).layout("in1", Layout.blocked(2, [(1, 16)], (1, 0)))
    text = assembly(
        generate(s.tensorize("C", "k.1", "vpdpbusd"), target).ir, cpu=target.cpu, features=target.llvm_features
    )
    assert text.count("vpermb") == 1 and text.count("vpdpbusd") == 4


@pytest.mark.parametrize("types", [("u8", "i8"), ("i8", "i8"), ("u8", "u8"), ("i8", "u8")])
@pytest.mark.parametrize(("n", "k"), [(32, 12), (19, 8), (8, 4)])
def test_pairs_of_pixels_are_one_shuffle(n: int, k: int, types: tuple[str, str], right: Right) -> None:
    s = tiled(product(7, n, k, *types), 8, 4).layout("in1", Layout.blocked(2, [(1, 8)], (1, 0)))
    right(s.tensorize("C", "k.1", "vpmaddwd"), target="x86 -mcpu=haswell -num-cores=2")


@pytest.mark.parametrize(("signed", "shifts"), [("u8", 0), ("i8", 2)])
def test_what_is_shuffled_for_all_rows(signed: str, shifts: int) -> None:
    """Two shuffles for all rows, which need two themselves."""
    target = Target.parse("x86 -mcpu=haswell -num-cores=1")
    s = tiled(product(8, 32, 64, "u8", signed), 8, 4).layout("in1", Layout.blocked(2, [(1, 8)], (1, 0)))
    text = assembly(
        generate(s.tensorize("C", "k.1", "vpmaddwd"), target).ir, cpu=target.cpu, features=target.llvm_features
    )
    found = [text.count(f"\t{x}\t") for x in ("vpshufb", "vpermq", "vpsraw")]
    assert text.count("\tvpmaddwd\t") == 8 and found == [2 + 8, 0, shifts]


@pytest.mark.isa("avx512vnni")
def test_convolution_with_padding_that_is_zero(right: Right) -> None:
    x, w = placeholder((1, 8, 6, 7), "u8", "in0"), placeholder((16, 8, 3, 3), "i8", "in1", constant=True)
    c, r, q = reduce_axis(8, "c"), reduce_axis(3, "r"), reduce_axis(3, "q")

    def tap(n: Expr, k: Expr, h: Expr, v: Expr) -> Expr:
        y, z = h + r.var - 1, v + q.var - 1
        inside = (y >= 0) & (y < 6) & (z >= 0) & (z < 7)
        return sum_(cast("i32", read(x, (n, c.var, y, z), inside)) * cast("i32", w[k, c, r, q]), (c, r, q))

    out = compute((1, 16, 6, 7), tap, "out", ["n", "k", "h", "v"])
    s = Schedule(ComputeDef.build([x, w], [out])).layout("in0", Layout.blocked(4, [(1, 4)]))
    s = s.layout("in1", Layout.blocked(4, [(0, 16), (1, 4)])).split("out", "c", 4)
    s = s.reorder("out", "n", "h", "v", "r", "q", "c.0", "k", "c.1").vectorize("out", "k")
    right(s.tensorize("out", "c.1", "vpdpbusd"))


@pytest.mark.parametrize(("mcpu", "lanes", "register"), [("icelake-server", 16, "zmm"), ("alderlake", 8, "ymm")])
def test_the_instruction_is_there(mcpu: str, lanes: int, register: str) -> None:
    target = Target.parse(f"x86 -mcpu={mcpu} -num-cores=1")
    s = tiled(product(8, 32, 64), lanes, 4).tensorize("C", "k.1", "vpdpbusd")
    text = assembly(generate(s, target).ir, cpu=target.cpu, features=target.llvm_features)
    assert text.count("vpdpbusd") == 4
    assert text.count(f"%{register}0") > 0
    assert ("{vex}" in text) == (mcpu == "alderlake")


@pytest.mark.parametrize(
    ("s", "instruction", "mcpu", "message"),
    [
        (
            product(8, 32, 64),
            "vpdpbusd",
            "haswell",
            "vpdpbusd of 16 lanes, but .* lacks avx512vnni and avx512vl; leave",
        ),
        (product(8, 32, 64, "bf16", "bf16", "f32"), "vdpbf16ps", "icelake-server", "lacks avx512bf16"),
    ],
)
def test_a_target_without_the_instruction(s: Schedule, instruction: str, mcpu: str, message: str) -> None:
    extent = 4 if instruction == "vpdpbusd" else 2
    s = tiled(s, 16, extent).tensorize("C", "k.1", instruction)
    with pytest.raises(CodegenError, match=message):
        generate(s, Target.parse(f"x86 -mcpu={mcpu} -num-cores=1"))


def test_elements_that_are_not_neighbours() -> None:
    pairs = Layout.blocked(2, [(1, 16), (0, 2)])
    s = tiled(product(8, 32, 64), 16, 4).layout("in1", pairs).tensorize("C", "k.1", "vpdpbusd")
    with pytest.raises(CodegenError, match="neighbours of in1 along C.k.1.*in innermost blocks of 4"):
        generate(s, Target.parse("x86 -mcpu=icelake-server -num-cores=1"))


def test_a_rest_that_needs_guards() -> None:
    s = tiled(product(8, 32, 66), 16, 4).tensorize("C", "k.1", "vpdpbusd")
    with pytest.raises(CodegenError, match="guards or other statements are left inside it; pad or split"):
        generate(s, Target.parse("x86 -mcpu=icelake-server -num-cores=1"))


def test_refusals() -> None:
    s = tiled(product(8, 32, 64), 16, 4)
    with pytest.raises(ScheduleError, match="unknown instruction 'vdot'; known: vpdpbusd, vpdpbssd"):
        s.tensorize("C", "k.1", "vdot")
    with pytest.raises(ScheduleError, match="it must be the innermost loop and a reduce loop; reorder"):
        s.tensorize("C", "k.0", "vpdpbusd")
    with pytest.raises(ScheduleError, match="vdpbf16ps folds 2 products, not 4; split"):
        s.tensorize("C", "k.1", "vdpbf16ps")
    with pytest.raises(ScheduleError, match="vpdpbusd needs a sum of i32.u8. . i32.i8."):
        tiled(product(8, 32, 64, "i8"), 16, 4).tensorize("C", "k.1", "vpdpbusd")
    with pytest.raises(ScheduleError, match="it needs a vectorized spatial loop of 4, 8, 16 iterations"):
        product(8, 32, 64).split("C", "k", 4).tensorize("C", "k.1", "vpdpbusd")
    with pytest.raises(ScheduleError, match="k.1 is tensorized and must stay innermost"):
        s.tensorize("C", "k.1", "vpdpbusd").reorder("C", "k.1", "j")
    with pytest.raises(ScheduleError, match="already marked vpdpbusd"):
        s.tensorize("C", "k.1", "vpdpbusd").unroll("C", "k.1")


def fields(shift: int, mask: int = 15, lanes: int = 16, unroll: int = 1, extreme: bool = False) -> Schedule:
    """Bytes times the same bits of each byte of a word; those that give the largest sums where they are `extreme`."""
    x, y = placeholder((8, 64), "i8", "in0"), placeholder((16, 32), "u32", "in1", constant=True)
    least, ones = const(-128, "i8"), const(2**32 - 1, "u32")
    a = compute((8, 64), lambda i, k: binary("min", x[i, k], least), name="A") if extreme else x
    b = compute((16, 32), lambda g, j: binary("or", y[g, j], ones), name="B") if extreme else y
    g, q = reduce_axis(16, "g"), reduce_axis(4, "q")

    def term(i: Expr, j: Expr) -> Expr:
        word = binary("shr", b[g, j], cast("u32", q.var * shift + 4))
        return sum_(cast("i32", binary("and", word, mask)) * cast("i32", a[i, g.var * 4 + q.var]), [g, q])

    c = compute((8, 32), term, name="C")
    d = compute((8, 32), lambda i, j: c[i, j] + c[i, j] * 2, name="D")
    s = Schedule(ComputeDef.build([x, y], [d])).layout("B" if extreme else "in1", Layout.blocked(2, [(1, lanes)]))
    s = s.split("D", "i", 4).split("D", "j", lanes).reorder("D", "i.0", "j.0", "i.1", "j.1")
    s = s.unroll("D", "i.1").vectorize("D", "j.1").compute_at("C", "D", "j.0", "register").split("C", "g", unroll)
    return s.reorder("C", "g.0", "g.1", "i", "j", "q").unroll("C", "g.1").unroll("C", "i").vectorize("C", "j")


@pytest.mark.isa("avx512vnni")
@pytest.mark.parametrize("mask", [15, 3, 255])
def test_fields_of_words_are_bytes(mask: int, right: Right) -> None:
    right(fields(8, mask).tensorize("C", "q", "vpdpbusd"))


def test_fields_that_are_no_bytes() -> None:
    target = Target.parse("x86 -mcpu=znver4 -num-cores=1")
    with pytest.raises(CodegenError, match="not by whole bytes along"):
        generate(fields(4).tensorize("C", "q", "vpdpbusd"), target)
    with pytest.raises(ScheduleError, match="needs a sum of"):
        fields(8, 511).tensorize("C", "q", "vpdpbusd")


@pytest.mark.isa("avx2")
@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("lanes", [4, 8])
@pytest.mark.parametrize(("mask", "unroll"), [(15, 16), (15, 1), (3, 16), (127, 4), (21, 8)])
def test_pairs_are_added_in_16_bits_while_they_fit(
    mask: int, unroll: int, lanes: int, extreme: bool, right: Right
) -> None:
    s = fields(8, mask, lanes, unroll, extreme)
    right(s.tensorize("C", "q", "vpmaddubsw"), target="x86 -mcpu=haswell -num-cores=2")


@pytest.mark.parametrize(("mask", "unroll", "times"), [(15, 16, 2), (15, 4, 1), (3, 16, 1), (127, 4, 4), (21, 8, 2)])
def test_as_many_pairs_as_16_bits_hold_are_added_up_at_once(mask: int, unroll: int, times: int) -> None:
    """Of one place, in a turn: 8 sums of two products of 15 and -128, 42 of 3, 1 of 127, 6 of 21."""
    target, s = Target.parse("x86 -mcpu=haswell -num-cores=1"), fields(8, mask, 8, unroll)
    ir = generate(s.tensorize("C", "q", "vpmaddubsw"), target).ir
    text = assembly(ir, cpu=target.cpu, features=target.llvm_features)
    assert text.count("\tvpmaddubsw\t") == 4 * unroll and text.count("\tvpmaddwd\t") == 4 * times


def test_sums_that_could_saturate_are_refused() -> None:
    for s, loop in ((fields(8, 255, 8), "q"), (tiled(product(8, 32, 64), 8, 4), "k.1")):
        with pytest.raises(ScheduleError, match="vpmaddubsw needs a sum of"):
            s.tensorize("C", loop, "vpmaddubsw")
