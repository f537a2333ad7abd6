"""Guided search: evolution to explore, descent to finish, chance to stay honest; whoever finds more proposes more."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune.cost_model.model import CostModel
from autotune.search.strategies.descent import Descent
from autotune.search.strategies.evolution import Evolution
from autotune.search.strategies.ranking import Ranking
from autotune.search.strategy import Unseen
from autotune.search.trial import Trial, best_trial
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.space import Space


class Source(Protocol):
    """Where proposals come from."""

    def configs(self) -> Iterator[Config]:
        """Configs, the most promising first, seen ones perhaps among them; none when it has nothing to say yet."""


@dataclass(frozen=True, slots=True)
class GuidedOptions:
    """
    Attributes:
        sources: the names of those that propose: "evolution", "descent".
        warmup: trials, the defaults included, before a model that knows nothing is asked; they are random.
        epsilon: share of proposals that are random, so that the model hears of regions it has never seen.
        memory: how much of what a source found still counts one trial later.
    """

    sources: tuple[str, ...] = ("evolution", "descent")
    warmup: int = 8
    epsilon: float = 0.1
    memory: float = 0.95


class Guided:
    """Search guided by a cost model and by what was measured (see `Strategy`).

    Args:
        model: see `Ranking`. One that is ready proposes from the first batch; there is no warm-up then.
    """

    def __init__(
        self, space: Space, model: CostModel, rng: random.Random, options: GuidedOptions | None = None
    ) -> None:
        self._space = space
        self._rng = rng
        self._options = options or GuidedOptions()
        self._unseen = Unseen(space)
        self._warmup = 0 if model.ready else self._options.warmup
        self._ranking = Ranking(space, model, self._options.warmup)
        known: Mapping[str, Source] = {
            "evolution": Evolution(space, self._ranking, rng, self._unseen),
            "descent": Descent(space, self._ranking, rng, self._unseen),
        }
        self._sources = {name: known[name] for name in self._options.sources}
        self._credit = Credit(tuple(self._sources), self._options.memory)
        self._from: dict[Config, str] = {}
        self._proposed_blindly = 0
        self._best: Trial | None = None
        self.predicted: dict[Config, float] = {}

    def propose(self, count: int) -> list[Config]:
        proposals = self._unseen.take(self._space.defaults(), count)
        blind = max(len(self._ranking.trials), self._proposed_blindly + len(proposals))
        proposals += self._unseen.sample(min(count - len(proposals), max(0, self._warmup - blind)), self._rng)
        self._proposed_blindly += len(proposals)
        # Chance decides about the fraction, so that proposing one by one explores as much as in batches.
        explored = sum(self._rng.random() < self._options.epsilon for _ in range(count - len(proposals)))
        proposals += self._from_sources(count - len(proposals) - explored)
        proposals += self._unseen.sample(count - len(proposals), self._rng)
        # The random ones too: among those that the model liked its order is hardest to get right.
        self.predicted |= self._ranking.seconds(proposals)
        return proposals

    def observe(self, trial: Trial) -> None:
        self._unseen.mark(trial.config)
        self._ranking.observe(trial)
        before, self._best = self._best, best_trial([*filter(None, [self._best]), trial])
        self._credit.count(self._from.pop(trial.config, None), self._best is not before)

    def _from_sources(self, count: int) -> list[Config]:
        """Each of them from the source that chance and credit choose; fewer when none has anything more."""
        streams = {name: source.configs() for name, source in self._sources.items()}
        taken: list[Config] = []
        while len(taken) < count and streams:
            name = self._credit.choose(tuple(streams), self._rng)
            found = self._unseen.take(streams[name], 1)
            if not found:
                del streams[name]
            for config in found:
                self._from[config] = name
            taken += found
        return taken


class Credit:
    """How often each source improved on the best lately; the rest is forgotten, trial by trial."""

    def __init__(self, names: Sequence[str], memory: float) -> None:
        self._memory = memory
        self._gains = dict.fromkeys(names, 0.0)
        self._misses = dict.fromkeys(names, 0.0)

    def count(self, name: str | None, gained: bool) -> None:
        for tally in (self._gains, self._misses):
            for source in tally:
                tally[source] *= self._memory
        if name is not None:
            (self._gains if gained else self._misses)[name] += 1

    def choose(self, names: Sequence[str], rng: random.Random) -> str:
        """By Thompson's rule: a draw from what each one's rate of gains may be, and the largest wins."""
        return max(names, key=lambda name: rng.betavariate(1 + self._gains[name], 1 + self._misses[name]))
