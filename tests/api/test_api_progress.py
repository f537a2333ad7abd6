"""What the progress of a tuning run says, from events that are made up."""

from __future__ import annotations

import io
import sys
from types import ModuleType

import pytest
from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from autotune.api.pace import Pace
from autotune.api.phase import Phase
from autotune.api.progress import TuneProgress, _Notebook, showing
from autotune.ops import parse_workload
from autotune.search import FinalistsChosen, FinalistsCompared, FinalistsLeft, TrialFinished, TuningTask
from autotune.search.trial import Trial
from autotune.search_spaces import Config
from autotune.target import Target

TARGET = Target.parse("x86 -mcpu=haswell -num-cores=1")
TASKS = tuple(
    TuningTask.of(parse_workload(f"relu data={size}"), TARGET, weight=weight, ideal_seconds=1e-3)
    for size, weight in ((64, 2.0), (128, 1.0))
)


def finished(task: TuningTask, best: float | None, elapsed: float, failure: str | None = None) -> TrialFinished:
    """A trial, after which the task's best takes so many seconds; its default took 4 ms."""
    trial = Trial(Config.of(), seconds=best if failure is None else None, failure=failure)
    return TrialFinished(task, trial, "", 7, 3, best, 4e-3, 12.0, elapsed, 60.0 - elapsed)


def progress_of(width: int = 80) -> TuneProgress:
    found = TuneProgress(Console(file=io.StringIO(), width=width, force_terminal=True))
    found(Phase("tuning", TASKS, 100.0))
    return found


def test_it_says_how_the_model_stands_and_what_may_come() -> None:
    progress = progress_of()
    progress(finished(TASKS[0], 4e-3, 5.0))
    assert not any("all kernels" in line for line in progress.lines()), "one kernel has no time yet"
    progress(finished(TASKS[1], 4e-3, 10.0))
    progress(finished(TASKS[0], 3e-3, 20.0))
    first, model, gain, name, task = progress.lines()
    assert first == "tuning: 0:20 gone, 0:40 to go, 7 trials, 0.1/s"
    assert model == "  all kernels of the model: 10.000 ms, untuned 12.000 ms (1.20× by single trials), limit 3.000 ms"
    assert gain == "  still to gain at this pace: 3.170 ms, 31.7 %"  # 2 ms in the last doubling, log2(3) more of them
    assert name.strip() == TASKS[0].name and "best 3.000 ms, untuned 4.000 ms, 12 GFLOP/s, 33.3 % of its limit" in task
    assert progress.share() == pytest.approx(1 / 3)
    progress(finished(TASKS[0], 5e-4, 20.0))
    assert progress.lines()[-1].endswith("200.0 % of its limit: in doubt")
    progress(FinalistsChosen(TASKS))
    assert progress.lines()[0] == "timing the best schedules again in turn with the defaults: 0 of 2 tasks"
    assert progress.share() == 0.0
    progress(FinalistsCompared(TASKS[0], ()))
    assert "1 of 2 tasks" in progress.lines()[0]
    assert progress.share() == 0.5


def test_failures_are_told_by_kind() -> None:
    progress = progress_of()
    for kind in ("compile", "incorrect", "compile", "spills"):
        progress(finished(TASKS[0], None, 5.0, kind))
    assert progress.lines()[0].endswith(", failed: 2 compile, 1 incorrect, not run: 1")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_what_is_drawn_fits(width: int) -> None:
    progress = progress_of(width)
    for elapsed in (10.0, 20.0):
        for task in TASKS:
            progress(finished(task, 4e-3 / elapsed, elapsed))
    with progress.console.capture() as shown:
        progress.console.print(progress._drawn())
    lines = Text.from_ansi(shown.get()).plain.splitlines()
    assert "━" in lines[1] and all(cell_len(line) <= width for line in lines)
    words = " ".join(lines).split()
    assert all(word in words for line in progress.lines() for word in line.split()), "nothing is cut"


def test_a_long_operator_has_one_line() -> None:
    task = TuningTask.of(parse_workload(f"matmul a={'1,' * 20}8,8 b=8,8"), TARGET, ideal_seconds=1e-3)
    progress = TuneProgress(Console(file=io.StringIO(), width=40, force_terminal=True))
    progress(Phase("tuning", (task,), 100.0))
    progress(finished(task, 1e-3, 5.0))
    with progress.console.capture() as shown:
        progress.console.print(progress._drawn())
    lines = Text.from_ansi(shown.get()).plain.splitlines()
    (name,) = (line for line in lines if "matmul" in line)
    assert name.rstrip().endswith("…") and name.startswith("  matmul") and cell_len(name.rstrip()) == 40


def test_a_phase_that_stays_in_place_is_no_note() -> None:
    """What is said for good would stand above the same words in place."""
    console = Console(file=io.StringIO(), width=40, force_terminal=True)
    progress = TuneProgress(console)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        progress.stays = live
        progress(Phase("tuning", TASKS))
        with console.capture() as shown:
            progress(Phase("timing the model"))
            progress(FinalistsChosen(TASKS))
            progress(FinalistsLeft(TASKS[1:]))
    assert "timing the model\n" not in shown.get()
    said = Text.from_ansi(shown.get()).plain
    assert "the time is spent: the finalists of 1 of" in said and all(len(line) <= 40 for line in said.splitlines())


def test_nobody_looks_at_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with showing(None) as silent, showing(False) as unwanted, showing(True) as wanted:
        assert silent is None and unwanted is None and wanted is not None
        wanted(Phase("reading the model"))
        wanted(Phase("tuning", TASKS))
    assert capsys.readouterr().err == "tuning: 2 tasks\n"


def test_a_pace_needs_twice_the_time() -> None:
    pace = Pace()
    assert pace.expected_gain(10.0) is None
    pace.add(10.0, 5.0)
    assert pace.expected_gain(10.0) is None
    pace.add(20.0, 4.0)
    assert pace.expected_gain(20.0) == pytest.approx(1.0)


def test_a_notebook_has_one_output_for_a_whole_run(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            shown.append(data["text/plain"])

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        assert not shown, "one output"
        return Handle()

    found = ModuleType("IPython.display")
    vars(found)["display"] = display
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", found)
    elsewhere = io.StringIO()
    notebook = _Notebook(Console(file=elsewhere, width=60))
    notebook.console.print("a note")
    notebook.update(Group(Text("here")))
    notebook.update(Group(Text("there")))
    assert shown == ["a note\nhere\n", "a note\nthere\n"]
    notebook.console.print("the last")
    notebook.end()
    assert shown[-1] == "a note\nthe last\n", "what stood in place has gone"
    assert elsewhere.getvalue() == ""
