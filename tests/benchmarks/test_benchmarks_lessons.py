"""Lessons: measured, added to, learned from; and the files that the shipped model was made of."""

from __future__ import annotations

import filecmp
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest

from autotune.cores import core_of
from autotune.cost_model.features import FEATURES_VERSION
from autotune.cost_model.forest import Forest
from autotune.cost_model.prior_files import OF_TILES, SHIPPED
from autotune.machine import this_machine
from autotune.ops import parse_workload
from autotune.schedule.dot_products import on_tiles
from autotune.search.lesson_file import Measured, load, save
from autotune.search_spaces.sketch.nest_numbers import NAMES
from autotune.search_spaces.space.registry import task_space
from autotune.target import Target
from benchmarks import lesson_tasks, lessons, prior, untuned

LINE = "matmul a=var:16,24 b=const:24,32"
SKETCH = "sketch.contraction"
ONE = Target.parse("native -num-cores=1")
CPUS = {
    "zen3": "znver3",
    "zen4": "znver4",
    "zen5": "znver5",
    "emerald": "emeraldrapids",
    "granite": "rocketlake",  # as a virtual machine calls it that hides its model
    "cascadelake": "cascadelake",
}
"""Of machines, by what names of files begin with."""
MOST_BYTES, MOST_MODEL = 3 << 20, 2 << 20


def test_lessons_are_measured_added_to_and_learned_from(tmp_path: Path) -> None:
    path, lock, model, figures = (tmp_path / name for name in ("a.jsonl.xz", "lock", "a.forest", "figures.json"))
    sizes = ["--liked", "2", "--steps", "2", "--chance", "3"]
    for rounds in range(2):
        assert lessons.main(["--out", str(path), "--op", LINE, "--rounds", "1", "--lock", str(lock), *sizes]) == 0
        found = load(path)
        configs = sum(len(one.seconds) for one in found)
        assert configs >= 3 * (1 + rounds) and {one.workload for one in found} == {LINE}
        assert any(math.isfinite(seconds) for one in found for seconds in one.seconds.values())
    assert prior.main(["--lessons", str(tmp_path), "--out", str(model)]) == 0
    assert Forest.read(model).names == NAMES
    assert untuned.main([str(path), "--json", str(figures)]) == 0
    (row,) = json.loads(figures.read_text())["tables"][f"{path.name}, {ONE}"]
    assert 0 < row["share"] <= 1


def test_candidates_timed_in_turn_keep_to_the_day_of_those_known_before(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.xz"
    sizes = ["--liked", "1", "--counted", "2", "--steps", "1", "--chance", "1", "--rounds", "1", "--in-turn", "2"]
    assert lessons.main(["--out", str(path), "--op", LINE, *sizes]) == 0
    first = {(one.template, c): s for one in load(path) for c, s in one.seconds.items()}
    assert len(first) >= 3 and all(map(math.isfinite, first.values()))
    slow = [Measured(one.workload, one.target, one.template, dict.fromkeys(one.seconds, 1.0)) for one in load(path)]
    save(path, slow)
    assert lessons.main(["--out", str(path), "--op", LINE, *sizes]) == 0
    scaled = [s for one in load(path) for c, s in one.seconds.items() if (one.template, c) not in first]
    assert scaled and all(s > 0.01 for s in scaled)


def test_a_calm_moment_counts_twice_and_a_busy_one_once() -> None:
    once = np.array([[2.0, 3.0, math.inf]])
    assert lessons.of_moments(once) == pytest.approx(once[0])
    calm, flipping = [2.0] * 8, [1.0] * 4 + [8.0] * 4
    assert lessons.of_moments(np.array([calm, flipping]).T) == pytest.approx([2.0, 2.0])
    lucky = [0.1] + [2.0] * 7  # one moment alone may be an error of the clock
    assert lessons.of_moments(np.array([lucky]).T) == pytest.approx([2.0])


@pytest.mark.parametrize("given", [["--moments", "0", "--in-turn", "1"], ["--moments", "3"]])
def test_moments_without_turns_are_refused(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        lessons.main(["--out", "nowhere", "--op", LINE, *given])
    assert "--in-turn" in capsys.readouterr().err.splitlines()[-1]


def test_lessons_of_matrix_registers_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.xz"
    line, target = "matmul a=var:64,256:u8 b=const:256,64:i8", "x86 -mcpu=sapphirerapids -num-cores=1"
    space, mix = task_space(parse_workload(line), Target.parse(target)), lessons.Mixture(6, 6, 6, 40)
    found = lessons.candidates(space, {}, mix, random.Random(0))
    assert {on_tiles(str(config.get("dot"))) for config in found} == {True, False}
    sizes = ["--liked", "2", "--steps", "1", "--chance", "1", "--rounds", "1", "--in-turn", "1", "--moments", "2"]
    assert lessons.main(["--out", str(path), "--op", line, "--tiles", *sizes]) == 0
    kept = [config for one in load(path) for config in one.seconds]
    assert all(on_tiles(str(config.get("dot"))) for config in kept)  # none, where the CPU has no such registers


def test_lessons_stand_under_the_core_that_was_measured() -> None:
    assert lessons.here(ONE) == ONE
    other = lessons.here(Target.parse("x86 -mcpu=broadwell -num-cores=1"))
    assert (other.cpu, other.core) == ("broadwell", core_of(this_machine().cpu, other.features))
    for path in prior.LEARNED.rglob("*.jsonl.xz"):
        cpu, targets = CPUS[path.name.split(".")[0].split("-")[0]], {one.target for one in load(path)}
        assert all(target.core == core_of(cpu, target.features) for target in targets), path.name


def test_a_round_never_measures_twice_what_is_known_but_what_is_doubted() -> None:
    space, mix = task_space(parse_workload(LINE), ONE), lessons.Mixture(3, 3, 3)
    first = lessons.candidates(space, {}, mix, random.Random(0))
    assert first[0] == space.default() and len(set(first)) == len(first)
    known = dict.fromkeys(first, 1.0)
    assert not known.keys() & set(lessons.candidates(space, known, mix, random.Random(1)))
    doubted = {**known, first[0]: 2.0}
    assert first[0] in lessons.candidates(space, doubted, mix, random.Random(1))


def test_what_became_faster_is_timed_again_as_on_the_day_of_the_others() -> None:
    space, rng = task_space(parse_workload(LINE), ONE), random.Random(0)
    sketch = space.members[SKETCH].space
    drawn = list(dict.fromkeys(sketch.sample(rng) for _ in range(90)))
    known = {config.replace(template=SKETCH): 1e-6 for config in drawn}
    packed = [config for config in known if config.get("pack.in0") != "no"]
    chosen = lessons.once_more(space, known, ["pack."])
    assert chosen[: len(packed)] == packed and len(chosen) == len(packed) + lessons.ELITE
    assert lessons.once_more(space, {c: 1e-6 for c in known if c not in packed}, ["pack."]) == []
    before = Measured(LINE, ONE, SKETCH, dict.fromkeys(drawn, 1e-6))
    today = Measured(LINE, ONE, SKETCH, {c.without("template"): 0.6e-6 if c in packed else 1.2e-6 for c in chosen})
    found = lessons.as_before(today, [before], ["pack."])
    assert dict(found.seconds) == {c.without("template"): 0.5e-6 for c in packed}
    assert lessons.without(before, [found]).keys() == set(drawn) - {c.without("template") for c in packed}


def test_tasks_are_parsed_and_none_is_both_learned_and_judged_by() -> None:
    kinds = [lesson_tasks.TASKS, lesson_tasks.UNSEEN]
    lines = [line for tasks in kinds for some in tasks.values() for line in some]
    assert len(set(lines)) == len(lines) >= 100
    assert lesson_tasks.TASKS.keys() >= lesson_tasks.UNSEEN.keys()
    for line in lines:
        parse_workload(line)


def test_the_shipped_model_fits_and_was_made_of_what_is_kept(tmp_path: Path) -> None:
    shipped, base = Forest.read(SHIPPED), Forest.read(prior.BASE)
    assert (shipped.names, shipped.version) == (NAMES, FEATURES_VERSION)
    assert (shipped.threshold[: len(base.threshold)] == base.threshold).all()  # nothing that was known is lost
    assert SHIPPED.stat().st_size <= MOST_MODEL
    assert sum(path.stat().st_size for path in prior.LEARNED.iterdir()) <= MOST_BYTES
    for path in prior.LEARNED.glob("*.jsonl.xz"):
        found = load(path)
        save(tmp_path / path.name, found)
        assert filecmp.cmp(tmp_path / path.name, path, shallow=False)
        assert {one.workload for one in found} <= {line for some in lesson_tasks.TASKS.values() for line in some}


def test_the_model_of_matrix_registers_fits_and_was_made_of_what_is_kept(tmp_path: Path) -> None:
    shipped, again = Forest.read(OF_TILES), tmp_path / "tiles.forest"
    assert (shipped.names, shipped.version) == (NAMES, FEATURES_VERSION)
    assert OF_TILES.stat().st_size + SHIPPED.stat().st_size <= MOST_MODEL
    for path in prior.OF_TILES.glob("*.jsonl.xz"):
        found = load(path)
        assert all(on_tiles(str(config.get("dot"))) for one in found for config in one.seconds)
        assert {one.workload for one in found} <= {line for some in lesson_tasks.TASKS.values() for line in some}
    assert prior.main(["--tiles", "--out", str(again)]) == 0
    assert filecmp.cmp(again, OF_TILES, shallow=False)  # pytest would compare bytes for hours, to say how they differ
