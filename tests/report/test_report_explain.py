"""Explanations: footprints counted by hand, the marked loop, and what the cost model is asked."""

from __future__ import annotations

import autotune
from autotune.api.explain import explain
from autotune.cost_model.prior import FOLDED, VECTORS_FOLD
from autotune.report.assembly import hot_loop, marked
from autotune.report.footprint import footprints
from autotune.search_spaces import Config
from tests.targets import fixed

TARGET = fixed("x86 -mcpu=skylake-avx512 -num-cores=1")
PRODUCT = "matmul a=128,256 b=256,512"
SMALL = Config.from_json(
    '{"block.i":1,"block.j":1,"depth":0,"inner":[0,1],"lanes":16,"outer":[1,0],"pack.in0":"no","shared":2,'
    '"template":"sketch.contraction","tile":[4,2],"unroll":8,"vector":"j"}'
)
LOOP = """\
\t.text
kernel:
.LBB0_1:
\tvmovups\t(%rdi), %zmm0
.LBB0_2:
\tvfmadd231ps\t(%rsi), %zmm0, %zmm1
\tvmovups\t64(%rsp), %zmm2
\taddq\t$64, %rsi
\tjne\t.LBB0_2
\tjne\t.LBB0_1
\tvmovups\t%zmm1, (%rdx)
\tretq
"""


def test_a_turn_touches_what_can_be_counted_by_hand() -> None:
    found = explain(PRODUCT, TARGET, False, config=SMALL)
    parallel, rows, terms = footprints(found.source.program)
    # all of a, a panel of 32 columns of b
    assert (parallel.mark, parallel.extent) == ("parallel", 16)
    assert dict(parallel.touched) == {"in0": 128 * 256 * 4, "in1": 256 * 32 * 4, "out0": 128 * 32 * 4}
    # 4 rows of a, the panel, a tile of the result
    assert (rows.depth, rows.extent) == (1, 32)
    assert dict(rows.touched) == {"in0": 4 * 256 * 4, "in1": 256 * 32 * 4, "out0": 4 * 32 * 4}
    # in a turn of 8 terms: 8 of each row, 8 rows of the panel
    assert (terms.depth, terms.extent) == (2, 32)
    assert dict(terms.touched) == {"in0": 4 * 8 * 4, "in1": 8 * 32 * 4}


def test_the_loop_with_the_most_arithmetic_is_found_and_marked() -> None:
    loop = hot_loop(LOOP)
    assert loop is not None
    assert (loop.instructions, loop.vector, loop.arithmetic, loop.stack) == (4, 2, 1, 1)
    lines = marked(LOOP, loop)
    assert [line[2:].split()[0] for line in lines if line.startswith("|")] == [
        ".LBB0_2:", "vfmadd231ps", "vmovups", "addq", "jne",
    ]  # fmt: skip
    assert not any(".text" in line for line in lines)
    assert hot_loop("kernel:\n\tretq\n") is None


def test_the_tile_of_the_schedule_is_in_its_code() -> None:
    found = explain(PRODUCT, TARGET, False, config=SMALL)
    loop = found.hot_loop
    assert loop is not None and loop.arithmetic == 4 * 2 * 8  # rows, vectors, terms
    assert found.kernel.spills == 0 and loop.stack == 0
    assert "vectorize('out0', 'j.1.1')" not in found.steps and "vectorize(out0, j.1.1)" in found.steps


def test_the_cost_model_is_asked_about_each_number() -> None:
    here = explain(PRODUCT, TARGET, False, config=SMALL).opinions()
    assert here and len({one.name for one in here}) == len(here)
    assert all(one.factor > 0 and one.value != one.usual for one in here)
    depthwise = explain("conv2d data=1,32,8,8 weight=32,1,3,3 pad=1 groups=32", TARGET, False)
    assert depthwise.choice.config.template == "sketch.contraction" or depthwise.opinions() == []


def test_tiles_are_held_against_tiles() -> None:
    """Whose instructions add up more than those of vectors: else that alone would be worth most."""
    server = fixed("x86 -mcpu=graniterapids -num-cores=1")
    found = explain("matmul a=64,256:u8 b=const:256,64:i8", server, False)
    assert found.choice.config.get_str("dot") == "tdpbusd"
    folds = [one for one in found.opinions(100) if one.name == FOLDED]
    assert all(one.usual > VECTORS_FOLD for one in folds)


def test_two_schedules_differ_in_their_loops() -> None:
    one = autotune.explain(PRODUCT, TARGET, False, config=SMALL)
    other = autotune.explain(PRODUCT, TARGET, False, config=SMALL.replace(tile=(8, 2)))
    assert one.difference(one) == []
    changed = one.difference(other)
    assert changed[:2] == ["--- other", "+++ this"]
    assert any(line.startswith("-") and "in 0..8" in line for line in changed)
