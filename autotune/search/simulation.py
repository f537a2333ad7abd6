"""Simulation: replays recorded trials, so that strategies and models are compared in seconds and exactly.

No kernel is built or run. What a config takes comes from a table, of a space enumerated once or of the
records of a real search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from autotune.errors import MeasureError
from autotune.search.strategy import Strategy
from autotune.search.trial import Trial
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.space import Space


@dataclass(frozen=True, slots=True)
class Simulation:
    """Trials by config key."""

    table: Mapping[str, Trial]

    @staticmethod
    def of_trials(trials: Iterable[Trial]) -> Simulation:
        return Simulation({trial.config.key: trial for trial in trials})

    @staticmethod
    def of_space(space: Space, measure: Callable[[Config], Trial]) -> Simulation:
        """Enumerates the space once."""
        return Simulation.of_trials(measure(config) for config in space.enumerate())

    def run(self, config: Config) -> Trial:
        """MeasureError when the table has no such config: a simulation must not invent results."""
        trial = self.table.get(config.key)
        if trial is None:
            raise MeasureError(
                f"the simulation has no result for {config.to_json()} (key {config.key}) among {len(self.table)}; "
                "record the whole space, for example with the grid strategy"
            )
        return trial

    @property
    def best(self) -> float:
        """Seconds of the fastest config in the table; infinity when all failed."""
        return min(trial.cost for trial in self.table.values())


def simulate(strategy: Strategy, simulation: Simulation, trials: int, batch: int = 8) -> list[Trial]:
    """Searches for that many trials, observing after each batch, as a pipeline of builds would."""
    done: list[Trial] = []
    while len(done) < trials:
        proposals = strategy.propose(min(batch, trials - len(done)))
        if not proposals:
            break
        for config in proposals:
            trial = simulation.run(config)
            strategy.observe(trial)
            done.append(trial)
    return done
