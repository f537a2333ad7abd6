"""Tables: which columns stay and what is cut, at any width."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from autotune.cli.table import Facts, Table
from autotune.cli.text import percents


def lines(table: Table, width: int | None = None) -> list[str]:
    return list(table.lines(width))


def sample() -> Table:
    table = Table(
        ["time", "uses", "node", "operator"],
        right=["time", "uses"], long=["operator", "node"], spare=["uses"], ends=["node"],
    )  # fmt: skip
    table.add_row("12.3 µs", "1", "/model.24/m.0/cv1/conv/Conv (+2)", "conv2d data=1,64,56,56 weight=64,64,3,3 pad=1")
    table.add_row("1.234 ms", "20", "/relu", "relu data=8")
    return table


def test_without_a_limit_everything_is_there() -> None:
    heading, first, second = lines(sample())
    assert heading.split() == ["time", "uses", "node", "operator"]
    assert "/model.24/m.0/cv1/conv/Conv (+2)" in first and first.endswith("weight=64,64,3,3 pad=1")
    assert second.index("/relu") == heading.index("node") == first.index("/model")
    assert heading.index("time") + 4 == first.index("µs") + 2, "numbers end where their heading does"


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120, 200])
def test_no_line_is_wider_and_the_numbers_are_whole(width: int) -> None:
    found = lines(sample(), width)
    assert len(found) == 3
    assert all(cell_len(line) <= width for line in found)
    assert "12.3 µs" in found[1] and "1.234 ms" in found[2]


def test_spare_columns_go_before_long_ones_are_cut_short() -> None:
    heading, first, _ = lines(sample(), 60)
    assert "uses" not in heading
    assert "cv1/conv/Conv (+2)" in first and first.endswith("…"), "a node's end and an operator's start say most"
    assert "uses" in lines(sample(), 80)[0]


def test_columns_that_fit_stay() -> None:
    table = Table(["a", "b"], spare=["b"])
    table.add_row("1", "2")
    assert lines(table, 10) == ["a  b", "1  2"]


def test_narrow_columns_stay_where_leaving_out_a_wide_one_suffices() -> None:
    table = Table(["a", "b", "wide"], right=["a", "b"], spare=["b", "wide"])
    table.add_row("1", "2", "x" * 20)
    assert lines(table, 26) == ["a  b  wide", f"1  2  {'x' * 20}"]
    assert lines(table, 24) == ["a  wide", f"1  {'x' * 20}"]
    assert lines(table, 20) == ["a  b", "1  2"], "b went first, for nothing"


@pytest.mark.parametrize("width", [None, 20, 80])
def test_facts_are_broken_between_words(width: int | None) -> None:
    text = "one two three four five six seven eight"
    lines = list(Facts((("name", text), ("a longer one", "é" * 30), ("empty", ""))).lines(width))
    assert all(line == line.rstrip() for line in lines)
    assert " ".join(" ".join(lines).split()) == f"name {text} a longer one {'é' * 30} empty"
    assert all(len(line) <= (width or 80) for line in lines if "é" not in line)
    assert lines[0].startswith("name          one") and (width != 20 or lines[1].startswith(" " * 14))


def test_wide_letters_count_twice() -> None:
    table = Table(["name"], long=["name"])
    table.add_row("層" * 40)
    assert all(cell_len(line) <= 20 for line in lines(table, 20))


def test_mistakes_are_errors() -> None:
    with pytest.raises(ValueError, match="no column is named b"):
        Table(["a"], right=["b"])
    with pytest.raises(ValueError, match="2 cells for 1 columns"):
        Table(["a"]).add_row("1", "2")


@pytest.mark.parametrize("shares", [[1 / 3] * 3, [0.9999, 0.0001], [1 / 7] * 7, [0.25, 0.5], [], [0.0]])
def test_shares_as_shown_add_up(shares: list[float]) -> None:
    shown = [float(text.removesuffix(" %")) for text in percents(shares)]
    assert sum(shown) == pytest.approx(100 * sum(shares), abs=0.05)
    assert all(abs(one - 100 * share) < 0.1 + 1e-9 for one, share in zip(shown, shares))
