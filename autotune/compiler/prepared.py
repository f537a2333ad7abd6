"""A model that runs the shapes that it was prepared for, and refuses others: nothing is compiled while it serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.compiler.compile import CompiledModel
from autotune.compiler.shapes import extents_in
from autotune.compiler.specialisation import Watch
from autotune.compiler.staged import StagedModel
from autotune.errors import InputError
from autotune.runtime.executor import Array
from autotune.runtime.trace import RunTrace


class PreparedModel(StagedModel):
    """`StagedModel`, the takers of which say beforehand what will come. Arguments are the same."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._prepared: list[dict[str, int]] = []

    def prepare(self, extents: Mapping[str, int]) -> CompiledModel | None:
        made = super().prepare(extents)
        self._prepared.append(dict(extents))
        return made

    def foresee(self, exact: Sequence[Mapping[str, int]], ranged: Sequence[Mapping[str, int]] = ()) -> None:
        """Runs of exactly these extents are not refused."""
        self._prepared += map(dict, exact)

    def run(
        self, feeds: Mapping[str, object], watch: Watch | None = None, trace: RunTrace | None = None
    ) -> list[Array]:
        """See `StagedModel.run`. Raises InputError, besides, for a shape that was not prepared."""
        extents = extents_in(self.inputs, self.checked(feeds))
        if extents not in self._prepared:
            given, known = _text(extents), "; ".join(map(_text, self._prepared))
            raise InputError(f"no program was prepared for {given} (on_new_shape='error'); prepared: {known or 'none'}")
        return super().run(feeds, watch, trace)


def _text(extents: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {extent}" for name, extent in extents.items())
