"""Requests for the next part of what loops read again and again."""

from __future__ import annotations

import pytest

from autotune.lower import lower, print_program
from autotune.lower.coming import spread
from autotune.lower.ir import OPERAND, REGISTER, Buffer, For, Load, Prefetch, Store, statements
from autotune.schedule import Schedule
from autotune.tensor import ComputeDef, DType, Layout, compute, placeholder, reduce_axis, sum_
from autotune.tensor.linear import Linear


def product(m: int, n: int, k: int, rows: int = 2, columns: int = 16, fused: bool = False) -> Schedule:
    """Panels of so many columns, each read by tiles of so many rows, one after the other."""
    a, b, r = placeholder((m, k), name="A"), placeholder((k, n), name="B", constant=True), reduce_axis(k, "r")
    total = compute((m, n), lambda i, j: sum_(a[i, r] * b[r, j], r), name="C")
    s = Schedule(ComputeDef.build([a, b], [compute((m, n), lambda i, j: total[i, j] * 2.0, name="D")]))
    s = s.layout("B", Layout.blocked(2, [(1, columns)], order=(1, 0))).split("D", "i", rows).split("D", "j", columns)
    s = s.reorder("D", "j.0", "i.0", "i.1", "j.1").unroll("D", "i.1").vectorize("D", "j.1")
    s = s.fuse("D", "j.0", "i.0") if fused else s
    s = s.compute_at("C", "D", "j.0*i.0" if fused else "i.0", "register")
    return s.reorder("C", "r", "i", "j").unroll("C", "i").vectorize("C", "j")


def requests(s: Schedule) -> list[str]:
    return [line.strip() for line in print_program(lower(s)).splitlines() if "prefetch" in line]


def test_requests_for_the_next_panel_are_spread_over_all_turns_that_read_this_one() -> None:
    """8 tiles of 20 turns for the 320 elements of a panel: two in a turn."""
    (request,) = requests(product(16, 64, 20).stream("C", "B", "r"))
    assert request == "prefetch to L2 B[0, 0, 2*C.r + 40*D.i.0 + 320*D.j.0 + 320]"


def test_what_is_read_once_is_asked_for_by_who_reads_it() -> None:
    assert requests(product(2, 64, 20).stream("C", "B", "r")) == []


def test_where_a_turn_has_more_than_a_line_to_ask_for_it_asks_in_several_places() -> None:
    """Two tiles for panels of 64 columns: 32 elements a turn, of 16 on a line, from both halves of a panel of 1280."""
    first, second = requests(product(4, 128, 20, columns=64).stream("C", "B", "r"))
    assert first == "prefetch to L2 B[0, 0, 16*C.r + 320*D.i.0 + 1280*D.j.0 + 1280]"
    assert second == "prefetch to L2 B[0, 0, 16*C.r + 320*D.i.0 + 1280*D.j.0 + 1920]"


@pytest.mark.parametrize(("lines", "places"), [(6, 3), (8, 4), (10, 5), (16, 4), (18, 5), (36, 6)])
def test_all_of_the_next_panel_is_asked_for_from_few_places(lines: int, places: int) -> None:
    """Two tiles of 20 turns, of which each reads so many lines."""
    panel = 20 * lines * 16
    weights, total = Buffer("B", DType.f32, (3 * panel,), OPERAND), Buffer("C", DType.f32, (1,), REGISTER)
    here = Linear(0, {"panel": panel, "turn": 16 * lines})
    add = Store(((total, (Linear(),)),), (Load(weights, (here + Linear.var("column"),)),), "sum")
    inside = (Prefetch(weights, (here,), 2, coming=1 << 18), For("column", 0, 16 * lines, "", (add,)))
    (nest,) = spread((For("panel", 0, 2, "", (For("tile", 0, 2, "", (For("turn", 0, 20, "", inside),)),)),))
    places_of = [stmt.place for stmt in statements((nest,)) if isinstance(stmt, Prefetch)]
    assert {place.terms["turn"] for place in places_of} == {16 * len(places_of) // places}
    turns = [{"panel": Linear(), "tile": Linear(t), "turn": Linear(n)} for t in range(2) for n in range(20)]
    asked = [place.substitute(turn, {}).const for place in places_of for turn in turns]
    assert set(range(panel, 2 * panel, 16)) <= set(asked) and len(asked) <= 1.2 * panel / 16


def test_loops_one_after_the_other_share_the_requests() -> None:
    """Of 9 rows, the last is code of its own: it asks for what comes behind that of the others."""
    s = product(9, 64, 20).partition("D", "i.0").stream("C", "B", "r")
    whole, rest = requests(s)
    assert whole == "prefetch to L2 B[0, 0, 4*C.r + 80*D.i.0 + 320*D.j.0 + 320]"
    assert rest == "prefetch to L2 B[0, 0, 4*C.r + 320*D.j.0 + 640]"


def test_pieces_that_lie_apart_and_are_read_in_one_turn_are_all_asked_for() -> None:
    """Weights as (channels, places, filters), of which a turn of the channels' loop reads 3 places, unrolled."""
    a, b = placeholder((4, 2, 4, 3), name="A"), placeholder((2, 3, 4, 64), name="B", constant=True)
    o, w, i = reduce_axis(2, "o"), reduce_axis(3, "w"), reduce_axis(4, "i")
    total = compute((4, 64), lambda m, j: sum_(a[m, o, i, w] * b[o, w, i, j], (o, w, i)), name="C")
    s = Schedule(ComputeDef.build([a, b], [compute((4, 64), lambda m, j: total[m, j] * 2.0, name="D")]))
    s = s.layout("B", Layout.blocked(4, [(3, 16)], order=(3, 0, 1, 2))).split("D", "j", 16).vectorize("D", "j.1")
    s = s.reorder("D", "j.0", "m", "j.1").compute_at("C", "D", "m", "register").vectorize("C", "j")
    s = s.reorder("C", "m", "o", "i", "w", "j").unroll("C", "w").stream("C", "B", "i")
    (request,) = requests(s)  # 384 elements of a panel in 4 tiles of 8 turns: 12 in a turn
    assert request == "prefetch to L2 B[0, 0, 0, 0, 12*C.i + 48*C.o + 384*D.j.0 + 96*D.m + 384]"


def test_what_moves_unevenly_is_not_asked_for() -> None:
    assert requests(product(16, 64, 20, fused=True).stream("C", "B", "r")) == []


def windows(order: tuple[int, ...]) -> Schedule:
    """Sums over blocks of 4 channels, 3 places and the channels of a block, weights blocked likewise."""
    a, b = placeholder((8, 3), name="A"), placeholder((8, 3, 64), name="B", constant=True)
    c, w = reduce_axis(8, "c"), reduce_axis(3, "w")
    total = compute((64,), lambda j: sum_(a[c, w] * b[c, w, j], (c, w)), name="C")
    s = Schedule(ComputeDef.build([a, b], [compute((64,), lambda j: total[j] * 2.0, name="D")]))
    s = s.layout("B", Layout.blocked(3, [(0, 4), (2, 16)], order=order)).split("D", "j", 16).vectorize("D", "j.1")
    s = s.compute_at("C", "D", "j.0", "register").split("C", "c", 4)
    return s.reorder("C", "c.0", "w", "c.1", "j").vectorize("C", "j").prefetch("C", "B", "c.1", 10)


def test_what_is_asked_for_turns_ahead_lies_where_the_loops_around_go_on() -> None:
    """Ten turns of 4 end in the third turn of the loop over places around them, not two blocks of channels later."""
    (request,) = requests(windows(order=(2, 0, 1)))
    assert request == "prefetch B[0, 0, 0, 0, 192*C.c.0 + 16*C.c.1 + 64*C.w + 384*D.j.0 + 160]"


def test_where_memory_does_not_go_on_with_the_loop_around_only_the_loop_itself_counts() -> None:
    (request,) = requests(windows(order=(2, 1, 0)))
    assert request == "prefetch B[D.j.0, C.w, (C.c.1 + 2)//4 + C.c.0 + 2, (C.c.1 + 2)%4, 0]"


def test_parts_that_lie_between_the_steps_of_loops_inside_are_asked_for_by_a_loop_farther_out() -> None:
    """Weights as (blocks of channels, places, channels of a block), walked along with the channels outside of the
    places, which are two loops: a turn along the channels reads no part that lies in one piece."""
    a, b = placeholder((4, 4, 3), name="A"), placeholder((4, 3, 4, 64), name="B", constant=True)
    o, w, i = reduce_axis(4, "o"), reduce_axis(3, "w"), reduce_axis(4, "i")
    total = compute((2, 64), lambda m, j: sum_(a[o, i, w] * b[o, w, i, j], (o, w, i)), name="C")
    s = Schedule(ComputeDef.build([a, b], [compute((2, 64), lambda m, j: total[m, j] * 2.0, name="D")]))
    s = s.layout("B", Layout.blocked(4, [(3, 16)], order=(3, 0, 1, 2))).split("D", "j", 16).vectorize("D", "j.1")
    s = s.reorder("D", "j.0", "m", "j.1").compute_at("C", "D", "m", "register").vectorize("C", "j")
    s = s.split("C", "w", 2).reorder("C", "m", "o", "i", "w.0", "w.1", "j").partition("C", "w.0")
    asked = requests(s.stream("C", "B", "w.0"))
    assert asked and all("768*D.j.0" in line and int(line.rsplit("+ ", 1)[1].rstrip("]")) >= 768 for line in asked)


@pytest.mark.parametrize(("near", "ahead"), [(1 << 18, 2), (2 * 4 * 320, 2), (2 * 4 * 320 - 1, 1), (64, 1)])
def test_parts_are_as_near_as_the_schedule_says(near: int, ahead: int) -> None:
    """Both loops over panels go on to what is read twice: the outer one in pairs of 2560 bytes."""
    weights, total = Buffer("B", DType.f32, (6 * 320,), OPERAND), Buffer("C", DType.f32, (1,), REGISTER)
    here = Linear(0, {"pair": 640, "panel": 320, "turn": 16})
    add = Store(((total, (Linear(),)),), (Load(weights, (here + Linear.var("column"),)),), "sum")
    inside = (Prefetch(weights, (here,), 2, coming=near), For("column", 0, 16, "", (add,)))
    nest: tuple[For, ...] = (For("turn", 0, 20, "", inside),)
    for loop, turns in (("tile", 2), ("panel", 2), ("pair", 3)):
        nest = (For(loop, 0, turns, "", nest),)
    (asked,) = [stmt.place for stmt in statements(spread(nest)) if isinstance(stmt, Prefetch)]
    assert asked.const == ahead * 320 and asked.terms["pair"] == 640


def test_a_step_says_how_near_parts_are_where_it_is_not_what_records_mean() -> None:
    assert product(16, 64, 20).stream("C", "B", "r").steps[-1] == ("stream", "C", "B", "r", 2)
    near = product(16, 64, 20).stream("C", "B", "r", near=64)
    assert near.steps[-1] == ("stream", "C", "B", "r", 2, 64)
    assert Schedule(near.compute, near.steps).state == near.state
