"""Regions: boxes around what loops touch, and the lines of memory that these lie on."""

from __future__ import annotations

from autotune.lower.ir import OPERAND, REGISTER, Buffer, For, Load, Stmt, Store
from autotune.lower.regions import Region, touched
from autotune.schedule.state import UNROLL
from autotune.tensor.dtype import DType
from autotune.tensor.linear import Linear

SOURCE = Buffer("source", DType.f32, (8, 100), OPERAND)
SUM = Buffer("sum", DType.f32, (1,), REGISTER)


def loop(var: str, extent: int, *body: Stmt) -> For:
    return For(var, 0, extent, "", body)


def test_a_box_is_around_all_places_and_within_the_buffer() -> None:
    row, column = Linear.var("i"), Linear.var("j") * 2 - 1
    body = Store(((SUM, (Linear(),)),), (Load(SOURCE, (row, column)),), "sum")
    found = touched([loop("j", 10, body)], {"i": (3, 4)})
    assert found == {"source": Region(SOURCE, ((3, 4), (0, 17)))}
    assert found["source"].bytes == 2 * 18 * 4


def test_lines_are_those_of_runs_in_memory() -> None:
    assert Region(SOURCE, ((0, 1), (0, 17))).lines(64) == 2 * 128  # two runs of 72 bytes
    assert Region(SOURCE, ((2, 5), (0, 99))).lines(64) == 4 * 400  # whole rows are one run of 25 lines
    assert Region(SOURCE, ((0, 1), (5, 4))).lines(64) == 0


def test_joined_regions_are_the_box_around_both() -> None:
    one, other = Region(SOURCE, ((0, 1), (4, 9))), Region(SOURCE, ((3, 3), (0, 5)))
    assert one.joined(other).box == ((0, 3), (0, 9))
    assert one.joined(None) is one


def test_what_loops_step_over_is_not_touched() -> None:
    """Halves of rows and of columns: the runs of four quarters, not the box around them."""
    large = Buffer("large", DType.f32, (64, 256), OPERAND)
    row, column = Linear.var("p") * 32 + Linear.var("i"), Linear.var("q") * 128 + Linear.var("lane")
    body = Store(((large, (row, column)),), (), "")
    (found,) = touched([loop("p", 2, loop("q", 2, loop("lane", 16, body)))], {"i": (0, 0)}).values()
    assert found.box == ((0, 32), (0, 143)) and found.counts == (2, 32)
    assert found.bytes == 4 * 16 * 4
    (rows,) = touched([loop("p", 2, loop("q", 2, loop("lane", 16, body)))], {"i": (0, 3)}).values()
    assert rows.counts == (8, 32)
    assert found.joined(found) is found and found.joined(rows).counts == (10, 32), "no more than both together"


def test_turns_whose_number_is_divided_are_looked_at_one_by_one() -> None:
    """Pixels of the halves of an image: two runs in other rows, not all columns of all rows between."""
    image = Buffer("image", DType.f32, (7, 7, 16), OPERAND)
    pixel = Linear.var("q") * 25 + Linear.var("i")
    ranges = {"q": (0, 1), "i": (0, 24)}
    place = (pixel.floordiv(7, ranges), pixel.floormod(7, ranges), Linear.var("lane"))
    quarter = loop("lane", 16, Store(((image, place),), (), ""))
    for i in (0, 6, 24):
        (found,) = touched([For("q", 0, 2, UNROLL, (quarter,))], {"i": (i, i)}).values()
        assert found.parts == 2 and found.bytes == found.lines(64) == 2 * 64
    (whole,) = touched([For("q", 0, 2, UNROLL, (quarter,))], {"i": (0, 24)}).values()
    assert whole.bytes == 7 * 7 * 64, "no more than there is"
    (anywhere,) = touched([loop("q", 2, quarter)], {"i": (0, 0)}).values()
    assert anywhere.parts == 1 and anywhere.bytes == 4 * 7 * 64


def test_steps_within_a_line_touch_all_of_it() -> None:
    body = Store(((SOURCE, (Linear.var("i"), Linear.var("j") * 4)),), (), "")
    (found,) = touched([loop("i", 2, loop("j", 5, body))], {}).values()
    assert not found.counts and found.box == ((0, 1), (0, 16))


def test_parts_that_lie_anywhere_leave_no_gaps_beside_others() -> None:
    parts = Region(SOURCE, ((0, 7), (0, 99)), (1, 16), 4)
    assert parts.joined(parts) is parts and parts.bytes == 4 * 64
    assert parts.joined(Region(SOURCE, ((0, 0), (0, 15)))) == Region(SOURCE, ((0, 7), (0, 99)))
