"""Networks that are classes in a file, each listed where it is defined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from benchmarks.breadth.architecture import Architecture, Axes, Sample

Inputs = Mapping[str, Tensor]


class Handmade:
    """The networks of a file."""

    def __init__(self) -> None:
        self._nets: list[Architecture] = []

    def net(
        self, inputs: Callable[[], Inputs], axes: Axes | None = None
    ) -> Callable[[type[nn.Module]], type[nn.Module]]:
        """Add the class below, with example inputs and the axes that may be open."""

        def added(kind: type[nn.Module]) -> type[nn.Module]:
            self._nets.append(Architecture(f"odd/{kind.__name__}", lambda: Sample(kind(), inputs(), axes or {})))
            return kind

        return added

    def architectures(self) -> Iterator[Architecture]:
        """All of them."""
        yield from self._nets


def words(length: int = 12, count: int = 100, batch: int = 1) -> Tensor:
    """Random words, (batch, length)."""
    return torch.randint(0, count, (batch, length))
