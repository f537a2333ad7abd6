"""TuningTask: a workload to tune for a target. TaskSearch: how far the search for it has come."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from autotune.measure.types import MeasureInput
from autotune.ops.workload import Workload
from autotune.search.strategy import Strategy
from autotune.search.trial import Trial, best_trial
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.interface import Interface
from autotune.search_spaces.space.registry import task_space
from autotune.search_spaces.space.replay import Recorded
from autotune.search_spaces.space.space import Space
from autotune.target import Target

GAIN = 0.01
"""An improvement counts as a gain when it is larger than this share: smaller ones are noise."""
PRICED = 16
"""Trials by which the cost of the next one is told."""


@dataclass(frozen=True, slots=True)
class TuningTask:
    """
    Attributes:
        weight: how often the model runs the kernel per inference.
        interface: the layouts wanted; None leaves them to the template.
        residency: where the weights are in the model (L2, L3, DRAM); part of the records' identity.
        ideal_seconds: a time that no kernel can beat, when known (`search_spaces.space.limit`): tasks near it get
            little of the budget.
        strict_fp: only what multiplies as the definition does; the space has nothing else, and records must not.
        origins: for people, and for each use: the names of the ONNX nodes that the kernel computes.
        untuned: the config of a kernel without a record, where it is known; the space may be another than kernels have.
    """

    workload: Workload
    target: Target
    space: Space
    weight: float = 1.0
    interface: Interface | None = None
    residency: str = ""
    ideal_seconds: float = 0.0
    strict_fp: bool = False
    origins: tuple[tuple[str, ...], ...] = ()
    untuned: Config | None = None

    @staticmethod
    def of(
        workload: Workload,
        target: Target,
        *,
        weight: float = 1.0,
        interface: Interface | None = None,
        residency: str = "",
        ideal_seconds: float = 0.0,
        strict_fp: bool = False,
        origins: tuple[tuple[str, ...], ...] = (),
        space: Space | None = None,
        untuned: Config | None = None,
    ) -> TuningTask:
        """The task over the space of all templates that apply and are allowed, unless another space is given;
        WorkloadError when none is."""
        space = space or task_space(workload, target, strict_fp=strict_fp, untuned=untuned)
        where = weight, interface, residency, ideal_seconds
        return TuningTask(workload, target, space, *where, strict_fp, origins, untuned)

    @property
    def name(self) -> str:
        return self.workload.describe()

    def candidate(self, config: Config) -> MeasureInput:
        return MeasureInput(self.workload, config, self.interface, self.target)


class TaskSearch:
    """The trials of one task, what they say, and which config comes next.

    Args:
        batch: how many configs to take from the strategy at a time.
        seeds: valid configs that were good elsewhere; tried right after the default.

    `started`: trials finished or under way; one that is timed again is one.
    `default_alone`: seconds of the default in a trial of its own, once it was timed in turn with others, too.
    """

    def __init__(self, task: TuningTask, strategy: Strategy, *, batch: int = 8, seeds: Iterable[Config] = ()) -> None:
        self.task = task
        self.flops = task.workload.flops
        self.trials: dict[Config, Trial] = {}
        self.best: Trial | None = None
        self.pending: set[Config] = set()
        self.started = 0
        self.stopped: str | None = None
        self.since_gain = 0
        self.default_alone: float | None = None
        self._gain_from = 0.0
        self._fastest = float("inf")
        self._best_after: list[float] = []
        self._recorded: dict[Config, Recorded] = {}
        self._spent: deque[float] = deque(maxlen=PRICED)
        self._strategy = strategy
        self._batch = batch
        self._queue = deque(seeds)
        self._begun = False  # the default, which is found when it is asked for, comes before all others
        self._again = False  # the default was disturbed, and is timed once more before all others

    @functools.cached_property
    def default(self) -> Config:
        """The untuned choice; of a thousand tasks, finding all of them takes half a minute."""
        return self.task.space.default()

    @property
    def has_proposals(self) -> bool:
        """Whether the next config is there already, and need not be bred."""
        return not self._begun or bool(self._queue)

    @property
    def gflops(self) -> float | None:
        """Speed of the best trial in 1e9 operations (of the mathematical definition) per second."""
        return None if self.best is None else self.flops / self.best.cost / 1e9

    @property
    def default_trial(self) -> Trial | None:
        return self.trials.get(self.default) if self.trials else None

    @property
    def in_doubt(self) -> bool:
        """Whether others disturbed the timing of the best trial, or of the default that it is held against; or the two
        were never timed in turn."""
        if self.best is not None and self.best.config != self.default and not self.best.compared:
            return True
        return any(trial is not None and trial.disturbed for trial in (self.best, self.default_trial))

    @property
    def contested(self) -> bool:
        """Whether something seems faster than the default, though others may have disturbed its timing."""
        best = self.best
        return best is not None and (best.config != self.default or self._fastest < best.cost)

    def candidate(self, config: Config) -> MeasureInput:
        """What a config stands for: a point of the space, or a record that is held."""
        return replace(self.task.candidate(config), recorded=self._recorded.get(config))

    def hold(self, trial: Trial, recorded: Recorded) -> None:
        """Keeps an earlier trial whose config the space lacks or gives other code: it may win, and teaches nothing."""
        self._recorded[trial.config] = recorded
        self.started += trial.config not in self.trials
        self._keep(trial)

    def next_config(self) -> Config | None:
        """A config that was never started, or a default that was disturbed; it is pending now. None when the space is
        exhausted."""
        if not self._begun:
            self._begun = True
            self._queue.appendleft(self.default)
        while True:
            if not self._queue:
                self._queue.extend(self._strategy.propose(self._batch))
                if not self._queue:
                    return None
            config = self._queue.popleft()
            trial = self.trials.get(config)
            again = trial is not None and trial.disturbed and config == self.default
            if (trial is None or again) and config not in self.pending:
                self.pending.add(config)
                self.started += trial is None
                return config

    def observe(self, trial: Trial) -> None:
        self.started += trial.config not in self.pending and trial.config not in self.trials
        self.pending.discard(trial.config)
        if trial.spent is not None:
            self._spent.append(trial.spent)
        self._strategy.observe(trial)
        self._keep(trial)
        if trial.disturbed and trial.config == self.default and not self._again:
            self._again = True
            self._queue.appendleft(self.default)

    def _keep(self, trial: Trial) -> None:
        known = trial.config in self.trials
        self.trials[trial.config] = trial
        self._fastest = min(self._fastest, trial.cost)
        self.best = best_trial(self.trials.values() if known or self.best is None else (self.best, trial))
        self.since_gain += 1
        if self.best is not None and (not self._gain_from or self.best.cost < self._gain_from * (1 - GAIN)):
            self._gain_from = self.best.cost
            self.since_gain = 0
        self._best_after.append(self.best.cost if self.best else float("inf"))

    def predicted(self, config: Config) -> float | None:
        """Seconds that the cost model expected when it chose the config, in this run or an earlier one."""
        trial = self.trials.get(config)
        return trial.predicted if trial is not None else self._strategy.predicted.get(config)

    @property
    def trial_seconds(self) -> float | None:
        """What one of the last trials of this run cost on average; None before there is one."""
        return sum(self._spent) / len(self._spent) if self._spent else None

    def replace(self, trial: Trial) -> None:
        """Takes a better measurement of a finished trial instead of the first."""
        if trial.config == self.default and trial.compared and not self.trials[trial.config].compared:
            self.default_alone = self.trials[trial.config].seconds
        self.trials[trial.config] = replace(trial, predicted=self.predicted(trial.config))
        self.best = best_trial(self.trials.values())

    def recent_gain(self, window: int) -> float:
        """Seconds gained per trial over the last `window` trials."""
        if self.best is None:
            return 0.0
        before = self._best_after[-window - 1] if len(self._best_after) > window else self._best_after[0]
        # A best that was measured in quiet may be slower than one before it that was not.
        return max(0.0, before - self.best.cost) / window if before < float("inf") else 0.0
