"""Which process this is: threads do not survive a fork, and whoever holds some has to notice."""

from __future__ import annotations

import os

_number = os.getpid()


def process_number() -> int:
    """`os.getpid()` without asking the system, which takes a run of a small model a twentieth of its time."""
    return _number


def _forked() -> None:
    global _number
    _number = os.getpid()


os.register_at_fork(after_in_child=_forked)
