"""TaskScheduler: which task to spend the next trial on.

First every task's default, then, for part of a budget at most, a warm-up for each, a batch of proposals after the other
(breeding one takes as long as several trials, which would wait while every task is bred for at once), then by expected
gain for the whole model, as in Ansor (Zheng et al., OSDI'20, section 6): weight × (what recent trials gained, and an
optimistic guess), for each second that a trial of the task takes: one convolution's trial may cost as much as twenty of
a small product. Its state is the trials themselves, so a resumed run decides as the interrupted one would have, once it
knows what trials cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.search.task import TaskSearch

RECENT = 0.2
WINDOW = 16
LEAST_SECONDS = 1e-3
"""Of a trial: a clock that stood still makes none free."""


class TaskScheduler:
    """
    Args:
        searches: one per task.
        warmup: trials that every task gets before gains are compared.
    """

    def __init__(self, searches: Sequence[TaskSearch], warmup: int = 16) -> None:
        self._searches = searches
        self._warmup = warmup

    def next(self, warm: bool = True) -> TaskSearch | None:
        """The task to serve next; None when all have stopped.

        Args:
            warm: whether there is time for a warm-up still; a default is measured in any case.
        """
        open_ = [search for search in self._searches if search.stopped is None]
        if not open_:
            return None
        warming = [search for search in open_ if search.started < (self._warmup if warm else 1)]
        if warming:
            return min(warming, key=_turn)
        costs = [cost for search in self._searches if (cost := search.trial_seconds) is not None]
        usual = sum(costs) / len(costs) if costs else 1.0
        return max(open_, key=lambda search: expected_gain(search) / trial_seconds(search, usual))


def _turn(search: TaskSearch) -> tuple[bool, bool, int, float]:
    """Whose turn it is during the warm-up: the least comes first."""
    return search.started > 0, not search.has_proposals, search.started, -model_seconds(search)


def trial_seconds(search: TaskSearch, usual: float) -> float:
    """What a trial of the task costs; where nobody knows yet, the usual."""
    own = search.trial_seconds
    return max(usual if own is None else own, LEAST_SECONDS)


def model_seconds(search: TaskSearch) -> float:
    """What the task costs per inference as far as known; its weight before the first result."""
    return search.task.weight * (search.best.cost if search.best else 1.0)


def expected_gain(search: TaskSearch) -> float:
    """Seconds per inference that the next trial may gain.

    The optimistic guess is that twice the trials would bring the task down to its ideal time; it falls as
    trials are spent, so no task is starved and none is beaten to death.
    """
    if search.best is None:
        return 0.0
    headroom = max(0.0, search.best.cost - search.task.ideal_seconds)
    optimistic = headroom / search.started
    return search.task.weight * (RECENT * search.recent_gain(WINDOW) + (1 - RECENT) * optimistic)
