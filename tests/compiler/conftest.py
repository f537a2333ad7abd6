"""What tests of loops share, and what has been compiled."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.codegen.object_cache import ObjectCache
from autotune.compiler.compile import compile_graph
from autotune.compiler.fixed_loop import FixedLoop
from autotune.compiler.native_steps import Taken
from autotune.compiler.precise import in_precision


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> ObjectCache:
    """Of this run: what an earlier one has left would hide what is wrong now."""
    return ObjectCache(tmp_path_factory.mktemp("objects"))


@pytest.fixture
def kept(objects: ObjectCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """What some test has compiled is not compiled again, where no cache, or None, is asked for."""
    for function in (compile_graph, in_precision):
        assert function.__defaults__ == (None, None), "a database and a cache, and nothing else by position"
        monkeypatch.setattr(function, "__defaults__", (None, objects))


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
