"""Engine: a model loaded into something that runs it. One thread count, one way to call, for ours and the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    # Not at run time: a process that holds another engine imports nothing of ours that would count as its memory.
    from autotune.compiler.compile import CompiledModel
    from autotune.compiler.staged import StagedModel
    from autotune.runtime.compiled_file import Loaded

Array = npt.NDArray[Any]
Feeds = Mapping[str, npt.NDArray[np.generic]]


class Engine(Protocol):
    """A loaded model. `name` is unique in a comparison; `version` is the engine's own."""

    name: str
    version: str

    def run(self, feeds: Feeds) -> Sequence[Array]:
        """The outputs in the model's order."""


class Ours:
    """A compiled model of this package, or one that is compiled while it runs."""

    def __init__(self, executor: Loaded | CompiledModel | StagedModel, name: str = "autotune") -> None:
        self.name = name
        self.version = installed("autotune-compiler")
        self._executor = executor

    def run(self, feeds: Feeds) -> Sequence[Array]:
        return self._executor.run(feeds)


def installed(distribution: str) -> str:
    """Its version; "" where it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
