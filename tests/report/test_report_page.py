"""The report page: what it says, that it loads nothing, and the geometry of its charts."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.cost_model.training import Score
from autotune.report.charts import Axis, apart, spanning, stairs
from autotune.report.history import Difference, History
from autotune.report.page import Quality, render
from tests.report.report_pages import EVIL, kernel, page


class _Links(HTMLParser):
    """What a browser would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href") or name.startswith("on")]
        self.found += [tag] if tag in ("script", "iframe", "link", "object") else []
        if tag not in ("meta", "line", "polyline", "circle", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("line", "polyline", "circle", "rect"):
            assert self.open.pop() == tag


def test_the_page_loads_nothing_and_is_well_formed() -> None:
    parser = _Links()
    text = render(page())
    parser.feed(text)
    assert parser.found == [] and parser.open == []
    assert "http" not in text and "url(" not in text and "@import" not in text


def test_bars_lie_on_one_scale_whatever_is_said_beside_them() -> None:
    """Each engine is a name, a bar and its words, which are cells of one grid: columns of one width for all."""
    text = render(page())
    bars = text[text.index('<div class="bars told"') : text.index("Medians of rounds")]
    assert bars.count('<div><i class="') == bars.count('<span class="said">') == 2


def test_what_is_unknown_is_a_dash() -> None:
    score = Score("conv", 3, math.nan, 0.9, 1.0)
    text = render(page(quality=Quality("shipped", (("cycles", 0.5),), (score,))))
    assert "nan" not in text and "<td>-</td><td>90.0 %</td>" in text


def test_limits_in_doubt_are_not_drawn_as_such() -> None:
    history = History("matmul", ((1, 2e-3), (3, 1e-3)), 4, 0)
    sure, doubtful = (
        render(page(histories=((history, 5e-4),), profile=replace(page().profile, doubts=doubts)))
        for doubts in ((), ("this CPU should reach more",))
    )
    assert "limit 500 µs" in sure and "Dashed" in sure
    assert "limit 500 µs" not in doubtful and "Dashed" not in doubtful


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(9.064e-6, "9.06 µs"), (29.02e-3, "29.0 ms"), (99.96e-6, "100 µs"), (999.7e-6, "1.00 ms"), (0.9999, "1.00 s"),
     (1234.5, "1234 s"), (None, "-")],
)  # fmt: skip
def test_a_time_has_three_digits(seconds: float | None, text: str) -> None:
    assert f">{text}</td>" in render(page(differences=(Difference("matmul", seconds, 1.0),), other="other.sqlite"))


def test_lines_of_a_roof_are_parallel_also_where_they_enter_from_below() -> None:
    levels = (("L2", 1, 900.0), ("L3", 2, 40.0), ("memory", 3, 2.0))
    kernels = tuple(
        replace(one, report=replace(one.report, nbytes=nbytes))
        for one, nbytes in zip(page().profile.kernels, (10**4, 10**7))
    )
    text = render(page(profile=replace(page().profile, kernels=kernels, levels=levels)))
    lines = [[tuple(map(float, point.split(","))) for point in line.split()]
             for line in re.findall(r'<polyline class="roof" points="([^"]+)"', text)]  # fmt: skip
    slopes = [(bend[1] - enters[1]) / (bend[0] - enters[0]) for enters, bend, _ in lines]
    assert slopes == [pytest.approx(slopes[0], rel=0.02)] * 3
    assert all(f'text-anchor="middle">{name}</text>' in text for name, _, _ in levels)


def test_of_many_kernels_the_page_scores_those_measured_most() -> None:
    scores = tuple(Score(f"conv {n}", n, 0.5, 0.9, 1.0) for n in range(2, 32))
    text = render(page(quality=Quality("shipped", (("cycles", 0.5),), scores)))
    assert "conv 31" in text and "conv 11<" not in text and "and 10 more" in text


def test_what_stands_between_backticks_is_code() -> None:
    text = render(page(notes=(f"`autotune tune {EVIL}` runs it",)))
    assert '<p class="note"><code>autotune tune &lt;script&gt;' in text and "`" not in text and EVIL not in text


def test_names_out_of_a_model_are_text() -> None:
    text = render(page(title=EVIL, command=EVIL, notes=(EVIL,)))
    assert EVIL not in text and text.count("&lt;script&gt;") >= 4


def test_it_says_what_was_measured() -> None:
    text = render(
        page(
            histories=((History("matmul", ((1, 3e-3), (4, 2e-3)), 9, 2), 1e-3),),
            quality=Quality("nests.forest", (("cycles", 0.5), ("l1", 0.25)), ()),
            differences=(Difference("matmul", 2e-3, 4e-3), Difference("conv", None, 1e-3)),
            other="other.sqlite",
        )
    )
    shown = " ".join(re.sub(r"<[^>]+>", " ", text).split())
    for piece in (
        "4.20 ms", "1.19 × our time, 1.10 to 1.30; answers differ",
        "answers differ from ONNX Runtime's by 1.0e-06", "conv1", "50.0 %", "autotune tune model.onnx",
        "3.00 ms → 2.00 ms, limit 1.00 ms; 9 trials, 2 failed", "cycles", "Against other.sqlite", "0.50", "on the host",
        "FLOP per byte", "1 kernel: never tuned", "a run, in 2 kernels",
    ):  # fmt: skip
        assert piece in shown
    bare = render(page())
    assert "Best so far" not in bare and "The cost model" not in bare and "Against" not in bare


def test_nothing_is_held_against_limits_in_doubt() -> None:
    sure, profile = render(page()), replace(page().profile, doubts=("this CPU should reach 900 GFLOP/s",))
    unsure = render(page(profile=profile))
    for text in ("of limit", "above limit", "limits would allow", "furthest above"):
        assert text in sure and text not in unsure
    assert "in doubt" in unsure and "in doubt" not in sure
    heads, rows = (re.findall(rf"<{tag}[ >]", unsure.split("Roofline")[0]) for tag in ("th", "td"))
    assert len(rows) == 3 * len(heads)


def test_columns_without_a_value_have_no_place() -> None:
    assert "when tuned" in render(page())
    untuned = replace(page().profile, kernels=(kernel("conv1", 0.0, 2e-3),))
    assert "when tuned" not in render(page(profile=untuned))


@pytest.mark.parametrize("log", [False, True])
@given(values=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=20))
def test_values_lie_within_their_axis(log: bool, values: list[float]) -> None:
    axis = spanning(values, 300, 10, log=log)
    places = [axis.place(value) for value in sorted(values)]
    assert all(10 <= place <= 300 for place in places)
    assert places == sorted(places, reverse=True)
    assert all(math.isclose(axis.place(value), place) for value, place in axis.ticks())
    assert len(axis.ticks()) <= 14


def test_ticks_are_round() -> None:
    assert [value for value, _ in Axis(0, 230, 0, 100).ticks()] == [0, 100, 200]
    assert [value for value, _ in Axis(0.2, 300, 0, 100, log=True).ticks()] == [1, 10, 100]


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(1, 20)), max_size=5))
def test_labels_are_apart(labels: list[tuple[float, float]]) -> None:
    places, widths = sorted(place for place, _ in labels), [width for _, width in labels]
    middles = apart(places, widths, 0, 100)
    edges = [0.0, *(edge for m, w in zip(middles, widths) for edge in (m - w / 2, m + w / 2)), 100.0]
    assert all(before <= after + 0.05 for before, after in pairwise(edges))


def test_labels_with_room_stay_where_they_belong() -> None:
    assert apart([20, 50, 100], [10, 10, 20], 0, 100) == [20, 50, 90]


def test_a_best_stays_until_the_next_one() -> None:
    x, y = Axis(1, 5, 0, 4), Axis(0, 10, 10, 0)
    assert stairs([(1, 10.0), (3, 5.0)], 5, x, y) == "0.0,0.0 2.0,0.0 2.0,5.0 4.0,5.0"
