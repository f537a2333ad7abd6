"""What the sweep knows of an architecture: its name, and how to make it with random weights and example inputs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Axes = Mapping[str, Mapping[int, str]]


@dataclass(frozen=True)
class Sample:
    """A network ready for export.

    Attributes:
        module: takes the inputs in order and returns tensors in any nesting.
        inputs: example inputs by name.
        axes: which dimensions of which inputs may be left open, and what they are called. Inputs of any extents there
            that are equal where names are equal are valid.
    """

    module: Any
    inputs: Mapping[str, Any]
    axes: Axes = field(default_factory=dict)


@dataclass(frozen=True)
class Architecture:
    """
    Attributes:
        name: "family/network", unique.
        make: builds it; called in a process of its own, after the random generator was seeded.
        by: the exporter of one that is exported by both, with open axes.
    """

    name: str
    make: Callable[[], Sample]
    by: str = ""

    @property
    def dynamo(self) -> bool:
        """Exported by torch.export, else by tracing to TorchScript: about half of all, always the same half."""
        return self.by == "torch.export" if self.by else bool(self._draw & 1)

    @property
    def open(self) -> bool:
        """Exported with open axes, where the sample has any: about half of all, of both exporters."""
        return bool(self.by) or bool(self._draw & 2)

    @property
    def _draw(self) -> int:
        return zlib.crc32(self.name.encode())
