"""Interface: the physical form of a kernel's operands, one Layout each, inputs first, then outputs."""

from __future__ import annotations

import json
from dataclasses import dataclass

from autotune.errors import ConfigError
from autotune.tensor.layout import Layout


@dataclass(frozen=True, slots=True)
class Interface:
    """Where no interface is given (None), the template chooses its own layouts."""

    layouts: tuple[Layout, ...]

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces."""
        return json.dumps([layout.to_json() for layout in self.layouts], sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Interface:
        try:
            return Interface(tuple(Layout.from_json(item) for item in json.loads(text)))
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(f"not an interface (a JSON list of layouts): {text[:80]!r} ({error})") from None

    def __repr__(self) -> str:
        return f"<Interface {self}>"

    def __str__(self) -> str:
        return " ".join(str(layout) for layout in self.layouts)
