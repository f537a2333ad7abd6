"""The number of this process."""

from __future__ import annotations

import os

from autotune.runtime.process import process_number


def test_a_fork_is_another_process() -> None:
    assert process_number() == os.getpid()
    child = os.fork()
    if child == 0:
        os._exit(0 if process_number() == os.getpid() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert process_number() == os.getpid() != child
