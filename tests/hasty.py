"""Tuning that waits for no quiet moment: in this process, or as `python -m tests.hasty tune ...` in one of its own.

Beside other tests no moment is quiet and no verdict clear: what is waited for either passes in full, in every test that
tunes. What is about these times is tested with those that users get.
"""

from __future__ import annotations

from collections.abc import Callable

from autotune.__main__ import main
from autotune.api import allowance, tuning, verdict
from autotune.measure import peaks


def be_hasty(change: Callable[[object, str, object], None] = setattr) -> None:
    """By `change`, which may take it back."""
    change(tuning, "PEAK_SECONDS", 0.0)
    change(allowance, "MODEL_ROUNDS", (8, 8))  # with fewer there is no interval
    change(verdict, "MOST_LOOKS", 1)
    change(peaks, "_SETTLE_SECONDS", 0.0)


if __name__ == "__main__":
    be_hasty()
    main()
