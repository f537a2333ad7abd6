"""What tests of loops share."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.compiler.fixed_loop import FixedLoop
from autotune.compiler.native_steps import Taken


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Taken]:
    """What native code has come to."""
    found: list[Taken] = []
    run = FixedLoop.run

    def told(self: FixedLoop, *args: Any) -> Taken:
        found.append(run(self, *args))
        return found[-1]

    monkeypatch.setattr(FixedLoop, "run", told)
    return found
