"""RecordedSpace: the configs of a recording as a space, so that a replayed search only asks for what was measured.

Where all of a task's configs were recorded, its steps are those of the real space. A sample has holes: there,
neighbours are the recorded configs fewest steps away, and what mutation and crossover make becomes the recorded config
nearest to it. A step is what `Choice.near` calls one: the next number, one factor moved, two places of an order
exchanged, another word.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.errors import ConfigError
from autotune.search.simulation import Simulation
from autotune.search.space_recording import SpaceRecording
from autotune.search_spaces.space.config import TEMPLATE, Config, KnobValue
from autotune.search_spaces.space.knobs import Choice
from autotune.search_spaces.space.space import CHANGE_OF_TEMPLATE, ENUMERABLE, stacked

FEWEST_NEIGHBOURS = 8
"""Of a config of a sample; real spaces have about as many or more."""

Array = NDArray[np.float64]


class RecordedSpace:
    """See `Space`. Templates are sampled by their weights, a template's configs alike.

    Args:
        defaults_first: whether there are first guesses; without them a search starts from nothing.
    """

    def __init__(self, recording: SpaceRecording, *, defaults_first: bool = True) -> None:
        self._recording = recording
        self._defaults_first = defaults_first
        self._configs = [point.config for point in recording.points.values()]
        self._numbers = {config: number for number, config in enumerate(self._configs)}
        templates: dict[str, list[Config]] = {}
        for config in self._configs:
            templates.setdefault(config.template or "", []).append(config)
        self._groups = {name: _Group(configs) for name, configs in templates.items()}

    @property
    def simulation(self) -> Simulation:
        """What every config of the space came to."""
        return Simulation.of_trials(point.trial for point in self._recording.points.values())

    @property
    def size(self) -> int:
        return len(self._configs)

    def count_valid(self, limit: int = ENUMERABLE) -> int | None:
        return self.size if self.size <= limit else None

    def default(self) -> Config:
        key = self._recording.defaults[0]
        if key not in self._recording.points:
            raise ConfigError(f"the recorded space of {self._recording.name!r} lacks the default; record it anew")
        return self._recording.points[key].config

    def defaults(self) -> list[Config]:
        points = self._recording.points
        found = [points[key].config for key in self._recording.defaults if key in points]
        return found if self._defaults_first else []

    def promising(self, count: int) -> list[Config]:
        return []

    def sample(self, rng: random.Random) -> Config:
        weights = [self._recording.weights.get(name, 1.0) for name in self._groups]
        return rng.choice(rng.choices(list(self._groups.values()), weights)[0].configs)

    def neighbours(self, config: Config, rng: random.Random) -> list[Config]:
        found = self._group(config).around(config, 0 if self._recording.complete else FEWEST_NEIGHBOURS)
        found += self._relatives(config)
        rng.shuffle(found)
        return found

    def mutate(self, config: Config, rng: random.Random) -> Config:
        group = self._group(config)
        relatives = self._relatives(config) if rng.random() < CHANGE_OF_TEMPLATE else []
        if relatives:
            return rng.choice(relatives)
        if len(group.configs) == 1:
            return self.sample(rng)
        changed = dict(config.entries)
        movable = group.movable
        for knob in rng.sample(movable, k=min(len(movable), 1 + (rng.random() < 0.3))):
            near = knob.near(changed[knob.name])
            changed[knob.name] = rng.choice(near if rng.random() < 0.6 else knob.values)
        found = group.nearest(changed, config)
        return config if found is None else found

    def crossover(self, mother: Config, father: Config, rng: random.Random) -> Config:
        group = self._group(mother)
        if set(father) != set(mother):
            return mother
        child = {name: rng.choice((mother, father))[name] for name in mother if name != TEMPLATE}
        found = group.nearest(child, None)
        return mother if found is None else found

    def _relatives(self, config: Config) -> list[Config]:
        """What is nearest to the config in the other templates that have its knobs (see `TaskSpace.neighbours`)."""
        others = [group for name, group in self._groups.items() if name != (config.template or "")]
        nearest = [group.nearest(config, None) for group in others if set(group.configs[0]) == set(config)]
        return [other for other in nearest if other is not None]

    def enumerate(self) -> Iterator[Config]:
        return iter(self._configs)

    def validate(self, config: Config) -> None:
        if config not in self._numbers:
            raise ConfigError(f"{config.to_json()} was not recorded among {self.size} configs")

    @property
    def feature_names(self) -> tuple[str, ...]:
        return self._recording.feature_names

    def encode(self, config: Config) -> NDArray[np.float32]:
        self.validate(config)
        return self._recording.points[config.key].features

    def encode_all(self, configs: Sequence[Config]) -> NDArray[np.float32]:
        return stacked([self.encode(config) for config in configs], len(self.feature_names))

    def _group(self, config: Config) -> _Group:
        self.validate(config)
        return self._groups[config.template or ""]


class _Group:
    """The recorded configs of one template, as rows of numbers that lie as far apart as they are steps apart."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self.configs = configs
        names = [knob for knob in configs[0] if knob != TEMPLATE]
        self._knobs = [Choice(knob, _sorted({config[knob] for config in configs})) for knob in names]
        self.movable = [knob for knob in self._knobs if len(knob.values) > 1]
        self._places = {knob.name: _places(knob.values) for knob in self._knobs}
        self._numbers = {config: number for number, config in enumerate(configs)}
        self._rows = np.stack([self._row(config) for config in configs])

    def around(self, config: Config, fewest: int) -> list[Config]:
        """The configs one step away; when they are fewer than wanted, the nearest ones."""
        distances = np.abs(self._rows - self._rows[self._numbers[config]]).sum(axis=1)
        distances[self._numbers[config]] = np.inf
        near = np.flatnonzero(distances <= 1 + 1e-9)
        if len(near) < fewest:
            near = np.argsort(distances, kind="stable")[: min(fewest, len(self.configs) - 1)]
        return [self.configs[int(number)] for number in near]

    def nearest(self, values: Mapping[str, KnobValue], other_than: Config | None) -> Config | None:
        """None when a value is of a kind that the template does not have."""
        closest = {knob.name: knob.closest(values[knob.name]) for knob in self._knobs}
        known = {name: value for name, value in closest.items() if value is not None}
        if len(known) < len(closest):
            return None
        distances = np.abs(self._rows - self._row(known)).sum(axis=1)
        if other_than is not None:
            distances[self._numbers[other_than]] = np.inf
        return self.configs[int(np.argmin(distances))]

    def _row(self, values: Mapping[str, KnobValue]) -> Array:
        parts = [self._places[knob.name][values[knob.name]] for knob in self._knobs]
        return np.concatenate(parts) if parts else np.zeros(0)


def _sorted(values: set[KnobValue]) -> tuple[KnobValue, ...]:
    return tuple(sorted(values, key=lambda value: (str(type(value)), value)))


def _places(values: Sequence[KnobValue]) -> dict[KnobValue, Array]:
    """A point for each value of a knob; the sum of absolute differences between two is their steps."""
    if all(type(value) is int for value in values):
        return {value: np.array([float(rank)]) for rank, value in enumerate(values)}
    tuples = [value for value in values if isinstance(value, tuple)]
    if not tuples:
        return {value: np.eye(len(values))[rank] / 2 for rank, value in enumerate(values)}
    if len({tuple(sorted(value)) for value in tuples}) == 1:  # orders: an exchange changes two places
        width = {part: rank for rank, part in enumerate(sorted(set(tuples[0])))}
        return {value: np.concatenate([np.eye(len(width))[width[part]] for part in value]) / 4 for value in tuples}
    ranks = [
        {size: rank for rank, size in enumerate(sorted(set(column)))} for column in zip(*tuples, strict=True)
    ]  # fmt: skip
    # A factor of a split moves from one part to another: two ranks change, and it is one step.
    weight = 0.5 if len({int(np.prod(value)) for value in tuples}) == 1 else 1.0
    return {value: np.array([weight * rank[size] for rank, size in zip(ranks, value, strict=True)]) for value in tuples}
