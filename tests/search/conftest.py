"""A synthetic task: a register-tiled kernel whose time follows what real ones do (latency, spills, tails, order)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.measure.failure import Failure
from autotune.measure.types import MeasureInput
from autotune.records import Database
from autotune.search.simulation import Simulation
from autotune.search.trial import Trial
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.knobs import Choice, flag, tile
from autotune.search_spaces.space.space import ConfigSpace, Constraint, Derived


def accumulators(config: Config) -> int:
    return config.get_int("ow") * config.get_int("oh") * config.get_int("oc")


def synthetic_trial(config: Config) -> Trial:
    ow, oh, oc = config.get_int("ow"), config.get_int("oh"), config.get_int("oc")
    tiles = accumulators(config)
    seconds = max(1.0, 8 / tiles) * (1 + (oc + ow * oh) / tiles / 2)  # latency; loads per multiply
    seconds *= 1 + max(0, tiles + oc - 31) * 0.05  # spills
    seconds *= math.ceil(56 / ow) * ow / 56 * math.ceil(56 / oh) * oh / 56  # tails
    seconds *= 1 + abs(math.log2(config.get_int("chunk")) - 4) / 30
    seconds *= {"a": 1.0, "b": 1.15, "c": 1.4}[config.get_str("order")] * (1.0 if config.get_bool("pack") else 1.1)
    if config.get_int("chunk") == 64 and oh > 6:
        return Trial(config, failure="timeout")
    return Trial(config, seconds=seconds * 1e-3)


def landscape(candidate: MeasureInput) -> float | Failure:
    """What a simulated pipeline makes of it."""
    trial = synthetic_trial(candidate.config)
    return trial.seconds if trial.seconds is not None else Failure("timeout", "took more than 30 s")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(tmp_path / "tuning.db") as opened:
        yield opened


@pytest.fixture(scope="session")
def space() -> ConfigSpace:
    return ConfigSpace(
        (
            tile("ow", 56, default=7),
            tile("oh", 56, limit=8),
            Choice("oc", (1, 2, 4)),
            Choice("chunk", (1, 2, 4, 8, 16, 32, 64)),
            Choice("order", ("b", "a", "c")),
            flag("pack"),
        ),
        (Constraint("registers", lambda config: accumulators(config) <= 64, "at most 64 accumulators"),),
        (Derived("accumulators", accumulators),),
    )


@pytest.fixture(scope="session")
def simulation(space: ConfigSpace) -> Simulation:
    return Simulation.of_space(space, synthetic_trial)
