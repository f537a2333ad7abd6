"""Recorded spaces: the file keeps everything, and a replay asks for nothing that was not measured."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest

from autotune.cost_model.model import RandomModel
from autotune.errors import ConfigError, MeasureError
from autotune.search.recorded_space import FEWEST_NEIGHBOURS, RecordedSpace
from autotune.search.simulation import simulate
from autotune.search.space_recording import RecordedPoint, SpaceRecording
from autotune.search.strategies import STRATEGIES, make_strategy
from autotune.search.trial import Trial
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.knobs import Choice, flag
from autotune.search_spaces.space.space import ConfigSpace, Constraint, Member, Space, TaskSpace

KNOBS = (
    Choice("tile", (1, 2, 3, 4, 6, 8, 12, 16)),
    Choice("split", tuple((16 // (b * c), b, c) for b in (1, 2, 4, 8, 16) for c in (1, 2, 4, 8, 16) if b * c <= 16)),
    Choice("order", ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))),
    Choice("pack", ("none", "a", "b")),
    flag("half"),
)
RULE = Constraint("small", lambda config: config.get_int("tile") * config.get_ints("split")[2] <= 32, "at most 32")


@pytest.fixture(scope="module")
def real() -> TaskSpace:
    wide = ConfigSpace(KNOBS, (RULE,))
    narrow = ConfigSpace((Choice("unroll", (1, 2, 4)),))
    return TaskSpace({"wide": Member(wide, wide.default()), "last": Member(narrow, narrow.default(), 0.05)})


def recorded(space: TaskSpace, configs: list[Config], **more: object) -> SpaceRecording:
    empty = SpaceRecording(
        name="a task",
        workload="matmul a=8,8 b=8,8",
        target="x86",
        feature_names=space.feature_names,
        defaults=tuple(config.key for config in space.defaults()),
        weights={name: member.weight for name, member in space.members.items()},
        about={"commit": "abc"},
    )
    points = [RecordedPoint(trial(config), space.encode(config), 3, 20, config.key, "[]") for config in configs]
    return empty.with_points(*points, **more)


def trial(config: Config) -> Trial:
    number = int(config.key[:8], 16)
    return Trial(config, failure="crash") if number % 11 == 0 else Trial(config, seconds=float(f"{1 + number % 97}e-6"))


@pytest.fixture(scope="module")
def whole(real: TaskSpace) -> RecordedSpace:
    return RecordedSpace(recorded(real, list(real.enumerate()), complete=True))


@pytest.fixture(scope="module")
def sample(real: TaskSpace) -> RecordedSpace:
    rng = random.Random(1)
    return RecordedSpace(recorded(real, [*real.defaults(), *(real.sample(rng) for _ in range(120))]))


def test_a_whole_recording_has_the_neighbours_of_the_space(real: TaskSpace, whole: RecordedSpace) -> None:
    rng = random.Random(0)
    assert whole.size == real.count_valid() == whole.count_valid()
    for _ in range(60):
        config = real.sample(rng)
        steps, near = set(real.neighbours(config, rng)), set(whole.neighbours(config, rng))
        assert near <= steps
        # A split of three parts has steps by larger factors, too, where a smaller one is not to be had.
        assert all(other["split"] != config["split"] for other in steps - near)


def test_a_sample_has_the_nearest_configs_as_neighbours(sample: RecordedSpace) -> None:
    rng = random.Random(0)
    for config in sample.enumerate():
        near = sample.neighbours(config, rng)
        assert len(set(near)) == len(near) and config not in near
        assert all(other.template == config.template for other in near)
        for other in near:
            sample.validate(other)
        if config.template == "wide":
            assert len(near) >= FEWEST_NEIGHBOURS


def test_mutants_and_children_were_recorded(sample: RecordedSpace) -> None:
    rng = random.Random(0)
    for _ in range(200):
        mother, father = sample.sample(rng), sample.sample(rng)
        mutant, child = sample.mutate(mother, rng), sample.crossover(mother, father, rng)
        sample.validate(mutant)
        sample.validate(child)
        assert mutant != mother or mother.template == "last"
        assert child.template == mother.template
    assert sample.crossover(mother, mother, rng) == mother


def test_templates_are_sampled_by_weight_not_by_number(whole: RecordedSpace) -> None:
    rng = random.Random(0)
    drawn = [whole.sample(rng).template for _ in range(2000)]
    assert drawn.count("last") == pytest.approx(2000 * 0.05 / 1.05, abs=40)


def test_it_is_a_space_like_any_other(sample: RecordedSpace, real: TaskSpace) -> None:
    space: Space = sample
    assert space.default() == real.default()
    assert space.defaults() == real.defaults()
    for config in space.enumerate():
        np.testing.assert_array_equal(space.encode(config), real.encode(config))
    stranger = next(config for config in real.enumerate() if config not in set(space.enumerate()))
    with pytest.raises(ConfigError, match=r"was not recorded among \d+ configs"):
        space.encode(stranger)


def test_without_its_defaults_a_search_starts_from_nothing(real: TaskSpace) -> None:
    recording = recorded(real, list(real.enumerate()))
    assert RecordedSpace(recording, defaults_first=False).defaults() == []
    lacking = recorded(real, [config for config in real.enumerate() if config != real.default()])
    with pytest.raises(ConfigError, match="lacks the default"):
        RecordedSpace(lacking).default()


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_exhausts_a_recording(name: str, sample: RecordedSpace) -> None:
    strategy = make_strategy(name, sample, RandomModel(random.Random(0)), random.Random(0))
    trials = simulate(strategy, sample.simulation, sample.size + 8)
    assert {trial.config for trial in trials} == set(sample.enumerate())
    assert min(trial.cost for trial in trials) == sample.simulation.best


def test_a_file_keeps_everything(tmp_path: Path, real: TaskSpace) -> None:
    path = tmp_path / "space.jsonl.gz"
    before = recorded(real, [*real.defaults(), *(real.sample(random.Random(n)) for n in range(30))], settled=True)
    before.save(path)
    after = SpaceRecording.load(path)
    for name in ("name", "workload", "target", "feature_names", "defaults", "weights", "complete", "settled", "about"):
        assert getattr(after, name) == getattr(before, name)
    assert list(after.points) == list(before.points)
    for old, new in zip(before.points.values(), after.points.values(), strict=True):
        assert new.trial == old.trial
        assert (new.spills, new.fmas, new.ir_hash, new.steps) == (old.spills, old.fmas, old.ir_hash, old.steps)
        np.testing.assert_array_equal(new.features, old.features)
    written = path.read_bytes()
    after.save(path)
    assert path.read_bytes() == written
    assert list(tmp_path.iterdir()) == [path]


def test_another_measurement_of_a_config_replaces_the_first(real: TaskSpace) -> None:
    recording = recorded(real, real.defaults())
    point = next(iter(recording.points.values()))
    again = recording.with_points(RecordedPoint(Trial(point.config, 1.0), point.features))
    assert len(again.points) == len(recording.points)
    assert again.points[point.config.key].trial.seconds == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:40], "damaged"),
        (lambda data: b"plain text", "cannot read"),
        (lambda data: gzip.compress(b""), "damaged"),
        (lambda data: gzip.compress(b'{"format": 99}\n'), "format 99, not 1"),
        (lambda data: gzip.compress(gzip.decompress(data) + b"[1]\n"), "damaged"),
        (lambda data: gzip.compress(_with_short_features(gzip.decompress(data))), "header names"),
    ],
)
def test_another_file_is_refused_in_one_line(tmp_path: Path, real: TaskSpace, change: object, message: str) -> None:
    path = tmp_path / "space.jsonl.gz"
    recorded(real, real.defaults()).save(path)
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(MeasureError, match=message) as caught:
        SpaceRecording.load(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match="No such file"):
        SpaceRecording.load(tmp_path / "none.jsonl.gz")


def _with_short_features(text: bytes) -> bytes:
    header, first, *rest = text.decode().splitlines()
    point = json.loads(first)
    point[6] = point[6][:-1]
    return "\n".join([header, json.dumps(point), *rest]).encode()
