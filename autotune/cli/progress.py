"""The progress of a tuning run on stderr: lines that stay in place on a terminal, lines now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from autotune.api.tune import Phase
from autotune.cli.text import clock, duration, percent
from autotune.search import (
    Event,
    FinalistsCompared,
    FinalistsLeft,
    RecordsOutdated,
    TaskResumed,
    TaskStopped,
    TrialFinished,
    TuningTask,
)

_PLAIN_SECONDS = 5.0
_EXHAUSTED = "every config of its space was tried"


@dataclass(slots=True)
class _Best:
    """Seconds of a task: the best so far, and of its default; `weight` is how often the model runs it."""

    weight: float
    seconds: float | None = None
    default: float | None = None


class TuneProgress:
    """Takes events, knows where the run stands, and says so in lines."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live: Live | None = None
        self._phase = "starting"
        self._best: dict[tuple[object, ...], _Best] = {}
        self._last: TrialFinished | None = None
        self._new = 0
        self._failed = 0
        self._resumed = 0
        self._compared = 0
        self._peak = 0.0
        self._said = time.monotonic()

    def __call__(self, event: Event | Phase) -> None:
        match event:
            case Phase():
                self._phase, self._peak = event.name, event.peak_gflops
                self._best.update((_key(task), _Best(task.weight)) for task in event.tasks)
                self._last, self._new, self._compared = None, 0, 0
                self._note(f"{event.name}{f': {len(event.tasks)} tasks' if event.tasks else ''}")
            case TrialFinished():
                self._last = event
                self._new += 1
                self._failed += event.trial.seconds is None
                self._best[_key(event.task)] = _Best(event.task.weight, event.incumbent_seconds, event.default_seconds)
            case TaskResumed():
                self._resumed += event.trials
                self._best[_key(event.task)].seconds = event.incumbent_seconds
                return
            case RecordsOutdated():
                name, kept = event.task.name, "" if event.kept_seconds is None else "; the best one is kept"
                self._note(f"{event.trials} earlier trials of {name} do not count: their code has changed{kept}")
                self._best[_key(event.task)].seconds = event.kept_seconds
            case TaskStopped():
                if event.reason != _EXHAUSTED:
                    self._note(f"{event.task.name}: stopped: {event.reason}")
            case FinalistsCompared():
                self._compared += 1
                if event.problem:
                    self._note(f"{event.task.name}: finalists not compared: {event.problem}")
            case FinalistsLeft():
                left = f"{len(event.tasks)} of {len(self._best)} tasks"
                self._note(f"the time is spent: the finalists of {left} keep the times of their trials")
        self._show()

    def lines(self) -> list[str]:
        """Where the run stands."""
        last = self._last
        if last is None:
            return [f"{self._phase} ..."]
        if self._compared:
            best = f"best schedules timed again in turn with the defaults: {self._compared} of {len(self._best)} tasks"
            return [best, *self._of_model()]
        rate = self._new / last.elapsed if last.elapsed > 0 else 0.0
        earlier = f" ({self._resumed} from before)" if self._resumed else ""
        failed = f", {self._failed} failed" if self._failed else ""
        first = (
            f"{self._phase}: {last.number} trials{earlier}{failed}, {rate:.1f}/s, "
            f"{clock(last.elapsed)} gone, {clock(last.eta)} to go"
        )
        return [first, *self._of_model(), *self._of_task(last)]

    def _of_model(self) -> Iterator[str]:
        """All kernels together, once each has a time."""
        known = [(best.weight, best.seconds, best.default) for best in self._best.values()]
        if len(known) > 1 and all(seconds and default for _, seconds, default in known):
            now = sum(weight * (seconds or 0.0) for weight, seconds, _ in known)
            before = sum(weight * (default or 0.0) for weight, _, default in known)
            yield f"  all kernels of the model: {duration(now)}, untuned {duration(before)}"

    def _of_task(self, last: TrialFinished) -> Iterator[str]:
        yield f"  {last.task.name}"
        found = f"  trial {last.task_number}: best {duration(last.incumbent_seconds)}"
        if last.default_seconds is not None:
            found += f", untuned {duration(last.default_seconds)}"
        if last.gflops:
            found += f", {last.gflops:.0f} GFLOP/s"
            if self._peak:
                found += f", {percent(last.gflops / self._peak)} of peak"
        yield found

    def _note(self, text: str) -> None:
        (self.live.console if self.live else self.console).print(Text(text), soft_wrap=True)

    def _show(self) -> None:
        if self.live is not None:
            self.live.update(Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in self.lines())))
        elif time.monotonic() - self._said >= _PLAIN_SECONDS:
            self._said = time.monotonic()
            for line in self.lines():
                self.console.print(Text(line), soft_wrap=True)


def _key(task: TuningTask) -> tuple[object, ...]:
    return task.workload.key, task.interface


@contextmanager
def showing(quiet: bool = False) -> Iterator[TuneProgress]:
    """Progress on stderr while the context lasts."""
    console = Console(stderr=True, highlight=False, quiet=quiet)
    progress = TuneProgress(console)
    if quiet or not console.is_terminal:
        yield progress
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        progress.live = live
        yield progress
