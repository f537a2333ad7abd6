"""The report: one self-contained page about a model, from values that are gathered elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.report.charts import Axis, apart, spanning, stairs
from autotune.report.coverage import Coverage
from autotune.report.history import Difference, History
from autotune.report.naming import kernel_name
from autotune.report.profile import HostProfile, KernelProfile, Profile
from autotune.report.text import counted, percent

if TYPE_CHECKING:
    from markupsafe import Markup

    from autotune.cost_model.training import Score

TEMPLATE = "page.html"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 300, 52, 10, 24, 34
"""Of a drawing, in its own units: it is scaled to the page."""
LETTER, SPACE = 6.5, 10.0
"""Of a label in a drawing: the width of a letter, and what lies between two labels."""
MOST_CURVES = 12
MOST_ROWS = 20


@dataclass(frozen=True, slots=True)
class Contender:
    """One engine: its latency, and how many times its time is ours, with the interval of that ratio."""

    name: str
    seconds: float
    ratio: float | None
    interval: tuple[float, float] | None
    error: float | None


@dataclass(frozen=True, slots=True)
class Quality:
    """The cost model: its file, what it looks at (shares), and how well it knows the tasks of this model."""

    file: str
    attention: tuple[tuple[str, float], ...]
    scores: tuple[Score, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that the page shows.

    Attributes:
        title, facts: of the model, and what the figures were taken on.
        contenders: ours first.
        profile: one pass; `histories`: of its kernels, in the same order as `timed`.
        coverage, command: what is tuned, and what to type to tune the rest.
        quality: None without a cost model.
        differences: against another database, called `other`; empty without one.
        notes: what was left out, and what disturbed the measurements.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    contenders: tuple[Contender, ...]
    profile: Profile
    coverage: Coverage
    command: str
    histories: tuple[tuple[History, float], ...] = ()
    quality: Quality | None = None
    differences: tuple[Difference, ...] = ()
    other: str = ""
    notes: tuple[str, ...] = ()


def render(page: Page) -> str:
    """The page as HTML: no script, nothing loaded from elsewhere, light and dark."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(duration=_duration, percent=percent, number=_number, coded=_coded, counted=counted)
    rows = sorted(_steps(page.profile), key=lambda row: -row.seconds)
    return environment.get_template(TEMPLATE).render(
        page=page, bars=_bars(page.contenders), strip=_strip(page.profile), roof=_roofline(page.profile),
        curves=[_curve(one, least) for one, least in page.histories[:MOST_CURVES]],
        rows=[_row(page.profile, row) for row in rows[:MOST_ROWS]], more=rows[MOST_ROWS:],
        scores=_scores(page.quality), gains=_gains(page.profile),
        recorded=any(k.report.seconds for k in page.profile.kernels),
        width=WIDTH, height=HEIGHT, left=LEFT, right=WIDTH - RIGHT, bottom=HEIGHT - BOTTOM, top=TOP,
    )  # fmt: skip


def _steps(profile: Profile) -> list[KernelProfile | HostProfile]:
    return [*profile.kernels, *profile.hosts]


def _bars(contenders: Sequence[Contender]) -> list[dict[str, Any]]:
    longest = max((one.seconds for one in contenders), default=1.0) or 1.0
    return [{"of": one, "share": round(100 * one.seconds / longest, 1), "ours": n == 0}
            for n, one in enumerate(contenders)]  # fmt: skip


def _strip(profile: Profile) -> list[dict[str, Any]]:
    """The pass as one line of boxes, in the order in which kernels run."""
    total, at = profile.seconds or 1.0, 0.0
    found: list[dict[str, Any]] = []
    templates = [name for name, _, _ in profile.by_template()]
    for row in sorted(_steps(profile), key=lambda row: row.start):
        color = 0 if isinstance(row, HostProfile) else 1 + templates.index(row.template) % 8
        share, title = 100 * row.seconds / total, f"{_name(row)}: {_duration(row.seconds)}"
        found.append({"x": round(at, 3), "w": round(share, 3), "color": color, "title": title})
        at += share
    return found


def _roofline(profile: Profile) -> dict[str, Any] | None:
    """Kernels by operations per byte and operations per second, under what the machine allows."""
    shown = [k for k in profile.kernels if k.report.flops and k.report.nbytes and k.seconds]
    if not shown or not profile.levels:
        return None
    intensity = [k.report.flops / k.report.nbytes for k in shown]
    rates = [k.report.flops / k.seconds * 1e-9 for k in shown]
    x = spanning(intensity, LEFT, WIDTH - RIGHT, log=True)
    y = spanning([*rates, profile.fp32], HEIGHT - BOTTOM, TOP, log=True)
    levels = [(name, rate) for name, _, rate in profile.levels if rate]
    bends = [x.place(profile.fp32 / rate) for _, rate in levels]
    labels = apart(bends, [LETTER * len(name) + SPACE for name, _ in levels], LEFT, WIDTH - RIGHT)
    lines = [
        {"name": name, "rate": f"{rate:.3g}", "points": _roof(x, y, rate, profile.fp32), "label": label}
        for (name, rate), label in zip(levels, labels)
    ]
    largest = max(k.seconds for k in shown)
    dots = [
        {"x": x.place(i), "y": y.place(r), "r": round(2.5 + 7 * (k.seconds / largest) ** 0.5, 2),
         "title": f"{_name(k)}: {r:.0f} GFLOP/s, {i:.1f} FLOP/B, {_duration(k.seconds)}"}
        for k, i, r in zip(shown, intensity, rates)
    ]  # fmt: skip
    return {"x": x.ticks(), "y": y.ticks(), "lines": lines, "dots": dots, "peak": y.place(profile.fp32)}


def _roof(x: Axis, y: Axis, rate: float, peak: float) -> str:
    """Points of the most that `rate` bytes and `peak` operations allow, from where it enters the drawing."""
    enters = min(max(x.low, y.low / rate), x.high)
    bend = min(max(peak / rate, enters), x.high)
    return " ".join(f"{x.place(i)},{y.place(min(rate * i, peak))}" for i in (enters, bend, x.high))


def _curve(one: History, least: float) -> dict[str, Any]:
    """The best time after each trial, and the limit. What a trial found lasts to the next one, also the last."""
    x = Axis(1, one.trials + 1, 6, 194)
    y = spanning([value for _, value in one.steps], 66, 8)
    return {"of": one, "line": stairs(one.steps, one.trials + 1, x, y), "limit": y.place(least), "least": least}


def _row(profile: Profile, row: KernelProfile | HostProfile) -> dict[str, Any]:
    if isinstance(row, HostProfile):
        return {"name": row.label, "what": "on the host", "template": "", "seconds": row.seconds,
                "share": profile.share(row), "of_limit": None, "record": None, "against": None, "tier": "",
                "gain": None}  # fmt: skip
    return {
        "name": kernel_name(row.report.origins) or "-", "what": row.report.description, "template": row.template,
        "seconds": row.seconds, "share": profile.share(row), "of_limit": profile.limit_share(row),
        "record": row.report.seconds, "against": row.against_record, "tier": row.report.tier.value,
        "gain": max(row.seconds - row.least, 0.0),
    }  # fmt: skip


def _gains(profile: Profile) -> Mapping[str, Any] | None:
    """What is above the limits, in all, and the five kernels with most of it; None where the limits are in doubt."""
    if profile.disturbed:
        return None
    over = sorted(profile.kernels, key=lambda k: k.least - k.seconds)[:5]
    least = sum(min(k.least, k.seconds) for k in profile.kernels) + sum(host.seconds for host in profile.hosts)
    return {
        "least": least,
        "share": 1 - least / profile.seconds if profile.seconds else 0.0,
        "kernels": [(_name(k), k.seconds - k.least, profile.limit_share(k)) for k in over if k.seconds > k.least],
    }


def _name(row: KernelProfile | HostProfile) -> str:
    if isinstance(row, HostProfile):
        return row.label
    return kernel_name(row.report.origins) or row.report.description


def _scores(quality: Quality | None) -> list[Score]:
    """Of the kernels that say most about a cost model: those of which most schedules were measured."""
    return sorted(quality.scores, key=lambda one: -one.candidates)[:MOST_ROWS] if quality else []


def _duration(seconds: float | None) -> str:
    """To three digits: 9.06 µs, 29.0 ms, 102 s; "-" where it is unknown."""
    if seconds is None:
        return "-"
    factor, unit = next(((f, u) for f, u in ((1e6, "µs"), (1e3, "ms")) if seconds * f < 999.5), (1.0, "s"))
    value = seconds * factor
    return f"{value:.0f} {unit}" if value >= 99.95 else f"{value:#.3g} {unit}"


def _number(value: float) -> str:
    return f"{value:g}"


def _coded(text: str) -> Markup:
    """As HTML: what stands between backticks is code."""
    from markupsafe import Markup, escape

    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))
