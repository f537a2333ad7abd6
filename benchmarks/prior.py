"""Trains the cost model that ships from the lessons in benchmarks/learned, and says how well it knows the unseen.

python -m benchmarks.prior                                  evaluate only: operators, machines and others left out
python -m benchmarks.prior --out cost_model/nests.forest    train the one that ships
python -m benchmarks.prior --tiles --out cost_model/tiles.forest    that of matrix registers, from lessons of its own
python -m benchmarks.prior --only-leave-out task            one evaluation

New files beside the others (python -m benchmarks.lessons, on another CPU) are learned from, too. What lies under
all of it is xeon.forest: what was learned from records of a Xeon (AVX-512 and AVX2, one and two threads, f32) that
are gone.
A file's name begins with that of the machine: zen4-avx2.jsonl.xz was measured on a Zen 4.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autotune.cost_model.forest import Forest
from autotune.cost_model.training import Lesson, Recipe, Score, left_out, score, train
from autotune.search.lesson_file import load
from autotune.search_spaces.sketch.nest_numbers import NAMES
from benchmarks.report import ROOT, Report, parser, progress

LEARNED = ROOT / "benchmarks" / "learned"
OF_TILES = LEARNED / "tiles"
BASE = LEARNED / "xeon.forest"
BOUNDS = {"operator": 0.75, "target": 0.80, "machine": 0.80, "task": 0.75}
TENTH = 0.97
METHOD = (
    "A forest is trained without an operator, a target, all targets of a machine, or a fifth of the tasks, on top of "
    "what is known from the CPU whose records are gone, and orders the candidates of what was left out. Unseen: tasks "
    "that a forest trained on all lessons has not learned from. Order: share of pairs of one task, more "
    "than 3 % apart, in the right order; chance is a half. First and best of ten: speed of what it ranks first, of the "
    "best of the ten that it ranks first, relative to the best measured. Means over tasks. Base: the same without any "
    "training on these lessons."
)


def lessons(folder: Path, without: Sequence[str] = ()) -> list[Lesson]:
    """Of all files in a folder, but for those of some machines."""
    found = []
    for path in sorted(folder.glob("*.jsonl.xz")):
        machine = path.name.split(".")[0].split("-")[0]
        if machine in without:
            continue
        made = [one.lesson() for one in load(path)]
        found += [replace(lesson, machine=machine) for lesson in made if lesson is not None and lesson.useful]
    return found


def main(arguments: list[str] | None = None) -> int:
    options = parser("prior", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.description = __doc__
    options.add_argument(
        "--lessons", type=Path, metavar="DIR", help=f"[default: {LEARNED.name}; {OF_TILES.name} in it]"
    )
    options.add_argument("--tiles", action="store_true", help="the model of nests of matrix registers, on no base")
    options.add_argument("--base", type=Path, default=BASE, metavar="FILE", help="what is known already")
    options.add_argument("--out", type=Path, metavar="FILE", help="train on these lessons, and write the model there")
    options.add_argument("--without", action="append", default=[], metavar="MACHINE", help="whose lessons not to take")
    options.add_argument("--only-leave-out", choices=BOUNDS, metavar="WHAT", help=", ".join(BOUNDS))
    given = options.parse_args(arguments)
    folder = given.lessons or (OF_TILES if given.tiles else LEARNED)
    found = lessons(folder, given.without)
    base = None if given.tiles else Forest.read(given.base).over(NAMES)
    recipe = Recipe()
    report = Report("prior", METHOD, given.quick)
    if given.out:
        candidates = sum(len(lesson.seconds) for lesson in found)
        before = f"{base.note}; and " if base else ""
        forest = train(found, recipe, base=base, note=f"{before}{len(found)} tasks, {candidates} candidates")
        given.out.write_bytes(forest.to_bytes())
        print(f"{given.out}: {given.out.stat().st_size / 1024:.0f} KiB, {forest.note}")
        return 0
    several = [by for by in BOUNDS if len({getattr(one, "name" if by == "task" else by) for one in found}) > 1]
    for by in [given.only_leave_out] if given.only_leave_out else several[: 1 if given.quick else None]:
        progress(f"without each {by}")
        scores = left_out(found, by, recipe, base=base)
        report.table(f"trained without each {by}", [_row("all", scores), *_groups(found, scores, by)])
        report.claim(f"order, without each {by}", _means(scores)[0], "at least", BOUNDS[by])
        if by == "task":
            report.claim("best of ten, tasks never seen", _means(scores)[2], "at least", TENTH)
    unseen = lessons(folder / "unseen")
    if unseen and not given.only_leave_out:
        forest = train(found, recipe, base=base)
        scores = [score(forest, lesson) for lesson in unseen]
        report.table("unseen", [_row("all", scores), *_groups(unseen, scores, "target")])
        report.claim("best of ten, unseen", _means(scores)[2], "at least", TENTH)
    if base:
        report.table("base alone", [_row("all", [score(base, lesson) for lesson in found])])
    report.finish(given.json)
    return 0


def _groups(found: Sequence[Lesson], scores: Sequence[Score], by: str) -> list[dict[str, str | float]]:
    """By what was left out; tasks by operator."""
    of = {lesson.name: str(getattr(lesson, "operator" if by == "task" else by)) for lesson in found}
    parts = dict.fromkeys(of[s.name] for s in scores)
    return [_row(part, [s for s in scores if of[s.name] == part]) for part in parts]


def _row(name: str, scores: Sequence[Score]) -> dict[str, str | float]:
    order, first, tenth = _means(scores)
    return {"left out": name, "tasks": len(scores), "order": order, "first": first, "best of ten": tenth}


def _means(scores: Sequence[Score]) -> tuple[float, float, float]:
    known = [s for s in scores if s.order == s.order]  # NaN: no pair is more than 3 % apart
    order = statistics.fmean(s.order for s in known) if known else float("nan")
    return order, statistics.fmean(s.first for s in scores), statistics.fmean(s.tenth for s in scores)


if __name__ == "__main__":
    sys.exit(main())
