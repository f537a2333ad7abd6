"""The progress of a tuning run on stderr: lines that stay in place on a terminal or in a notebook, lines now and then
elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.text import Text

from autotune.api.pace import Pace
from autotune.api.phase import Phase
from autotune.report.text import clock, counted, duration, percent
from autotune.search import (
    Event,
    FinalistsChosen,
    FinalistsCompared,
    FinalistsLeft,
    RecordsOutdated,
    TaskResumed,
    TaskStopped,
    TrialFinished,
    TuningTask,
)
from autotune.search.trial import SKIPPED

PLAIN_SECONDS = 5.0
"""Between reports where nothing can stay in place."""
WIDEST_BAR = 60
_EXHAUSTED = "every config of its space was tried"


@dataclass(slots=True)
class _Best:
    """Seconds of a task: the best so far, of its default, and what no kernel can beat; `weight`: the model's uses."""

    weight: float
    limit: float
    seconds: float | None = None
    default: float | None = None


class TuneProgress:
    """Takes events, knows where the run stands, and says so in lines."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.stays: Live | _Notebook | None = None
        self._phase = "starting"
        self._best: dict[tuple[object, ...], _Best] = {}
        self._pace = Pace()
        self._last: TrialFinished | None = None
        self._new = 0
        self._failed: Counter[str] = Counter()
        self._resumed = 0
        self._finalists = 0
        self._compared = 0
        self._peak = 0.0
        self._said = time.monotonic()

    def __call__(self, event: Event | Phase) -> None:
        match event:
            case Phase():
                self._phase, self._peak = event.name, event.peak_gflops
                self._best.update((_key(task), _Best(task.weight, task.ideal_seconds)) for task in event.tasks)
                self._last, self._new, self._finalists, self._compared, self._pace = None, 0, 0, 0, Pace()
                of = f": {counted(len(event.tasks), 'task')}" if event.tasks else ""
                # Before, all may still end in an error, which is then the only line; what stays in place names a phase.
                if event.tasks or (self._best and self.stays is None):
                    self._note(event.name + of)
            case TrialFinished():
                self._last = event
                self._new += 1
                if event.trial.failure is not None:
                    self._failed[event.trial.failure] += 1
                best = self._best[_key(event.task)]
                best.seconds, best.default = event.incumbent_seconds, event.default_seconds
                if (now := self._sum(best.seconds for best in self._best.values())) is not None:
                    self._pace.add(event.elapsed, now)
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
            case FinalistsChosen():
                self._finalists = len(event.tasks)
            case FinalistsCompared():
                self._compared += 1
                if event.problem:
                    self._note(f"{event.task.name}: finalists not compared: {event.problem}")
            case FinalistsLeft():
                left = f"{len(event.tasks)} of {counted(self._finalists, 'task')}"
                self._note(f"the time is spent: the finalists of {left} keep the times of their trials")
        self._show()

    def lines(self) -> list[str]:
        """Where the run stands."""
        last = self._last
        if last is None:
            return [f"{self._phase} ..."]
        if self._finalists:
            of = f"{self._compared} of {counted(self._finalists, 'task')}"
            return [f"timing the best schedules again in turn with the defaults: {of}", *self._of_model()]
        rate = self._new / last.elapsed if last.elapsed > 0 else 0.0
        earlier = f" ({self._resumed} from before)" if self._resumed else ""
        first = (
            f"{self._phase}: {clock(last.elapsed)} gone, {clock(last.eta)} to go, "
            f"{counted(last.number, 'trial')}{earlier}, {rate:.1f}/s{self._failures()}"
        )
        return [first, *self._of_model(last.eta), *self._of_task(last)]

    def share(self) -> float | None:
        """Of what this phase does, what is done; None where nobody knows."""
        last = self._last
        if self._finalists:
            return self._compared / self._finalists
        if last is None or last.eta is None:
            return None
        return last.elapsed / (last.elapsed + last.eta) if last.elapsed else 0.0

    def _failures(self) -> str:
        """By kind, the usual ones first; what was not run for its spills has not failed."""
        kinds = [f"{count} {kind}" for kind, count in self._failed.most_common() if kind != SKIPPED]
        text = f", failed: {', '.join(kinds)}" if kinds else ""
        return text + (f", not run: {self._failed[SKIPPED]}" if self._failed[SKIPPED] else "")

    def _of_model(self, left: float | None = None) -> Iterator[str]:
        """All kernels together, once each has a time.

        Args:
            left: seconds of search.
        """
        every = self._best.values()
        now, before = self._sum(best.seconds for best in every), self._sum(best.default for best in every)
        if now is None or len(self._best) == 1:
            return
        text = f"  all kernels of the model: {duration(now)}"
        if before is not None:
            # Trials at different moments; only what was timed in turn says what was gained.
            sure = "" if self._compared == len(self._best) else " by single trials"
            text += f", untuned {duration(before)} ({before / now:.2f}×{sure})"
        if (least := self._sum(best.limit for best in every)) is not None:
            text += f", limit {duration(least)}"
        yield text
        if left and (gain := self._pace.expected_gain(left)) is not None:
            more = max(0.0, min(gain, now - (least or 0.0)))  # a peak that was in doubt makes a limit too high
            yield f"  still to gain at this pace: {duration(more)}, {percent(more / now)}"

    def _sum(self, seconds: Iterable[float | None]) -> float | None:
        """Of all uses of all tasks; None while one is missing."""
        known = [one * best.weight for one, best in zip(seconds, self._best.values()) if one]
        return sum(known) if known and len(known) == len(self._best) else None

    def _of_task(self, last: TrialFinished) -> Iterator[str]:
        yield f"  {last.task.name}"
        found = f"  trial {last.task_number}: best {duration(last.incumbent_seconds)}"
        if last.default_seconds is not None:
            found += f", untuned {duration(last.default_seconds)}"
        if last.gflops:
            found += f", {last.gflops:.0f} GFLOP/s"
        best, limit = last.incumbent_seconds, last.task.ideal_seconds
        if best and limit and self._peak:  # of the peak Winograd's would be more than all: they multiply less
            found += f", {percent(limit / best)} of its limit" + (": in doubt" if limit > best else "")
        yield found

    def _note(self, text: str) -> None:
        """A line for good. A log keeps it whole; beside lines that stay in place it is broken between words."""
        (self.stays.console if self.stays else self.console).print(Text(text), soft_wrap=self.stays is None)
        self._said = time.monotonic()  # what comes next need not say at once where the run stands

    def _show(self) -> None:
        if self.stays is not None:
            self.stays.update(self._drawn())
        elif time.monotonic() - self._said >= PLAIN_SECONDS:
            self._said = time.monotonic()
            for line in self.lines():
                self.console.print(Text(line), soft_wrap=True)

    def _drawn(self) -> Group:
        """The lines, with a bar below the first. The operator, which may be longer than all the rest, gets one line."""
        name = self._last.task.name if self._last is not None else ""
        first, *others = (_fitting(line, cut=line.strip() == name) for line in self.lines())
        share = self.share()
        bar = ProgressBar(
            total=None if share is None else 1.0, completed=share or 0.0, width=min(WIDEST_BAR, self.console.width),
            complete_style="cyan", pulse_style="cyan",
        )  # fmt: skip
        return Group(first, Padding(bar, 0), *others)  # alone, a bar ends no line


def _fitting(line: str, cut: bool) -> Padding:
    """A line, indented as it begins, that is cut at the width or else broken between words."""
    text = line.lstrip(" ")
    drawn = Text(text, no_wrap=cut, overflow="ellipsis" if cut else "fold")
    return Padding(drawn, (0, 0, 0, len(line) - len(text)), expand=False)


class _Notebook:
    """One output of a cell, written anew; `rich.live` would need a package of widgets there. Of its own console each
    line that is printed would be an output more, and each that is captured an empty one."""

    def __init__(self, console: Console) -> None:
        from IPython.display import display

        self._page = StringIO()
        self._notes = ""
        self.console = Console(file=self._page, width=console.width, highlight=False, force_jupyter=False)
        self._handle = display({"text/plain": ""}, raw=True, display_id=True)

    def update(self, drawn: Group) -> None:
        self._notes += self._taken()  # what was printed since
        self.console.print(drawn)
        self._handle.update({"text/plain": self._notes + self._taken()}, raw=True)

    def end(self) -> None:
        """Leave the notes alone, as a terminal does: a bar that stands still for ever says nothing."""
        self._notes += self._taken()
        self._handle.update({"text/plain": self._notes}, raw=True)

    def _taken(self) -> str:
        text = self._page.getvalue()
        self._page.seek(0)
        self._page.truncate()
        return text


def _key(task: TuningTask) -> tuple[object, ...]:
    return task.workload.key, task.interface


@contextmanager
def showing(wanted: bool | None) -> Iterator[TuneProgress | None]:
    """Progress on stderr while the context lasts.

    Args:
        wanted: whether to say anything; None: where somebody looks, at a terminal or a notebook.
    """
    console = Console(stderr=True, highlight=False)
    looks = console.is_terminal or console.is_jupyter
    if not (looks if wanted is None else wanted):
        yield None
        return
    progress = TuneProgress(console)
    if console.is_jupyter:
        progress.stays = notebook = _Notebook(console)
        try:
            yield progress
        finally:
            notebook.end()
    elif console.is_terminal:
        with Live(Text("starting ..."), console=console, refresh_per_second=4, transient=True) as live:
            progress.stays = live
            yield progress
    else:
        yield progress
