"""The ONNX frontend: from a file or bytes to a Graph with static shapes. One file per operator family."""

from autotune.graph.frontend.convert import convert_model
from autotune.graph.frontend.source import ModelSource, read_model

__all__ = ["ModelSource", "convert_model", "read_model"]
