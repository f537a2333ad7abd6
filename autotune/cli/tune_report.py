"""What a tuning run brought, for people and as JSON: the outcome first, then the tasks that take longest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.cli.text import cell, percents, print_prose, print_table, table
from autotune.report.naming import task_name
from autotune.report.text import counted, duration, percent
from autotune.search.outcome import MOVED

if TYPE_CHECKING:
    from autotune.api.tuning import TuneReport
    from autotune.api.verdict import ModelVerdict
    from autotune.search import TaskOutcome, TuneOutcome

HEAVIEST = 10
OWN_TIME = {"search": "choosing", "model": "cost model", "record": "storing", "wait": "waiting for the workers"}


def show_report(report: TuneReport, subject: str, following: str | None, every: bool) -> None:
    """
    Args:
        subject: the model or operator.
        following: the command to go on with; None where the caller goes on itself.
        every: list all tasks, not only the heaviest.
    """
    found = report.search
    for line in _outcome(report, subject):
        print_prose(line)
    if following is not None and not report.interrupted:
        print(f"next: {following}")
    print()
    tasks = sorted(found.tasks, key=_model_seconds, reverse=True)
    listed = tasks if every else tasks[:HEAVIEST]
    _show_tasks(report, listed)
    if len(listed) < len(tasks):
        print(f"and {len(tasks) - len(listed)} more (--all shows them)")
    print()
    print_prose(
        f"{found.new_trials} trials in {found.seconds:.1f} s ({found.trials_per_second:.1f}/s), "
        f"{sum(task.trials for task in tasks)} in {report.database}; FMA peak {report.peak.gflops:.0f} GFLOP/s"
        + (f", in doubt: {report.peak.doubt}" if report.peak.doubt else "")
    )
    if skipped := sum(task.skipped for task in tasks):
        print_prose(
            f"not run, because their registers spill: {counted(skipped, 'kernel')} (`autotune db show` counts them)"
        )
    if disturbed := sum(map(_disturbed, tasks)):
        beside = f"{counted(disturbed, 'kernel')} are from beside other programs; tune again to be sure"
        print_prose(f"disturbed: the times, untuned or tuned, of {beside}")
    if alone := sum(map(_alone, tasks)):
        print_prose(
            f"in doubt: the best of {counted(alone, 'kernel')} was not timed in turn with the untuned one: "
            "what it gains is by a single trial; tune again to be sure"
        )
    if report.model is not None and (moved := sum(map(_doubtful, tasks))):
        kernels = counted(moved, "kernel")
        rough = f"moved by over {percent(MOVED - 1)} from one timing to the next: `faster` is rough there"
        print_prose(f"in doubt: the untuned times of {kernels} {rough}")
    print_prose(_time(found))
    if found.foresight is not None:
        seen = found.foresight
        print_prose(
            f"cost model: in {seen.trials} trials that it chose, off by {percent(seen.error)} (median); "
            f"{percent(seen.order)} of pairs in the right order, where chance is 50 %"
        )


def _outcome(report: TuneReport, subject: str) -> list[str]:
    """Before and after, in a line or two."""
    verdict = report.model
    if verdict is None:
        known = [task for task in report.search.tasks if task.best is not None and task.default_seconds is not None]
        before = sum(task.task.weight * (task.default_seconds or 0.0) for task in known)
        after = sum(map(_model_seconds, known))
        if not known:
            return [f"{subject}: nothing was timed"]
        what = "" if len(report.search.tasks) == 1 else f", the sum of {len(known)} kinds of kernels"
        doubt = ", in doubt: other programs ran beside it" if any(map(_disturbed, known)) else ""
        change = _change(before, after, before / after)
        if after > before:  # the untuned one was disturbed, and what was timed in quiet counts more
            doubt += "; they were not timed in turn yet: the same command goes on"
        return [f"{subject}: {change}{what}{doubt}", *map(_doubt, filter(_doubtful, known))]
    threads = "1 thread" if report.target.num_threads == 1 else f"{report.target.num_threads} threads"
    if verdict.same:
        found = f"{duration(verdict.untuned_seconds)} (median of {counted(verdict.rounds, 'round')} on {threads})"
        tried = any(task.trials for task in report.search.tasks)
        why = "nothing faster was found" if tried else "no time was left to try anything"
        lines = [f"{subject}: {found}; {why}: the tuned program is the untuned one"]
        return [*lines, *_beside(report, verdict)]
    medians = f"{duration(verdict.untuned_seconds)} untuned, {duration(verdict.tuned_seconds)} tuned (medians)"
    times = f"in turn {verdict.speedup:.2f}× as fast"
    if verdict.interval is not None:
        times += f" ({verdict.interval[0]:.2f} to {verdict.interval[1]:.2f})"
    line = f"{subject}: {medians}, {times}, {counted(verdict.rounds, 'round')} on {threads}"
    return [line, *_beside(report, verdict), *_decision(report, verdict)]


def _disturbed(task: TaskOutcome) -> bool:
    return task.best is not None and (task.best.disturbed or bool(task.default_disturbed))


def _alone(task: TaskOutcome) -> bool:
    """Whether what seems faster than the default was never timed in turn with it."""
    faster = task.best is not None and task.best.cost < (task.default_seconds or 0.0)
    return faster and task.best is not None and not task.best.compared


def _doubtful(task: TaskOutcome) -> bool:
    return task.best is not None and task.best.seconds != task.default_seconds and task.moved


def _doubt(task: TaskOutcome) -> str:
    """What an operator's gain is worth whose untuned time moved."""
    alone, times = duration(task.default_alone), f"{task.speedup_alone or 0.0:.2f}× as fast"
    return f"in doubt: in a trial of its own the untuned kernel took {alone}, so {times}; tune again to be sure"


def _beside(report: TuneReport, verdict: ModelVerdict) -> list[str]:
    """What else is to be known of a verdict."""
    lines = []
    if verdict.disturbance:
        lines.append(f"the model was timed beside others: {cell(verdict.disturbance)}")
    if verdict.repeated:
        lines.append("nothing has changed since that was measured: the verdict stands (--verdict again measures anew)")
    if report.untimed:
        left = counted(report.untimed, "further program")
        lines.append(f"no time was left to compare {left}: the same command goes on")
    return lines


def _decision(report: TuneReport, verdict: ModelVerdict) -> list[str]:
    """What the model runs with, where that is not simply the tuned program."""
    now = "tuned" if verdict.tuned else "untuned"
    if len(report.programs) > 1:
        kept = sum(program.tuned for program in report.programs)
        return [f"{len(report.programs)} programs, each timed for itself: {kept} tuned, the others stay untuned"]
    if verdict.asked_for:
        return [f"the model runs {now}, as asked for"]
    if not verdict.decided:
        what = "the gains of its kernels are used" if verdict.tuned else "the model stays untuned"
        return [f"the rounds cannot tell which is faster: {what}"]
    if not verdict.tuned:
        return ["the tuned program is not better as a whole: the model stays untuned; more time may change it"]
    return []


def _change(before: float, after: float, times: float) -> str:
    return f"{duration(before)} untuned, {duration(after)} tuned: {times:.2f}× as fast"


def _show_tasks(report: TuneReport, tasks: list[TaskOutcome]) -> None:
    numbers = ("untuned", "tuned", "faster", "of limit", "GFLOP/s", "uses", "trials", "failed")
    named = any(task.task.origins for task in tasks)
    shown = table(
        *numbers, *(["node"] if named else []), "operator", "template",
        right=numbers, long=("operator", "node") if named else ("operator",), ends=("node",) if named else (),
        spare=("failed", "GFLOP/s", "trials", "uses", "template", "of limit", "untuned"),
    )  # fmt: skip
    for task in tasks:
        shown.add_row(
            duration(task.default_seconds),
            duration(task.best.seconds if task.best else None),
            f"{task.speedup:.2f}×" if task.speedup else "-",
            percent(task.of_limit) if task.of_limit and report.peak_gflops else "-",
            f"{task.gflops:.1f}" if task.gflops else "-",
            f"{task.task.weight:g}",
            str(task.trials),
            str(task.failed),
            *([cell(task_name(task.task.origins))] if named else []),
            task.task.name,
            (task.best.config.template or "-") if task.best else "-",
        )
    print_table(shown)


def _time(found: TuneOutcome) -> str:
    """Where the run's time went; what the workers did passes beside it."""
    shares = found.shares()
    parts = {name: shares[part] for part, name in OWN_TIME.items()}
    parts["other"] = max(0.0, 1.0 - sum(parts.values()))
    own = ", ".join(f"{name} {share}" for name, share in zip(parts, percents(list(parts.values()))))
    return f"time: {own}; the workers built for {found.time['build']:.1f} s and ran for {found.time['run']:.1f} s"


def _model_seconds(task: TaskOutcome) -> float:
    return task.task.weight * (task.best.cost if task.best is not None else 0.0)
