"""What a model says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """The texts of an ONNX model that no computation needs, as ONNX Runtime names them.

    Attributes:
        version: `model_version` of the file.
        custom_metadata_map: `metadata_props` of the file.
    """

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A plain JSON value; `from_json` is its inverse."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ModelMetadata:
        """Raises AttributeError, TypeError or ValueError when the data is none."""
        custom = {str(key): str(text) for key, text in data.get("custom_metadata_map", {}).items()}
        texts = ("producer_name", "graph_name", "domain", "description", "graph_description")
        return ModelMetadata(
            **{name: str(data.get(name, "")) for name in texts},
            version=int(data.get("version", 0)),
            custom_metadata_map=custom,
        )
