"""The ONNX frontend: from a file or bytes to Graphs with static shapes. One file per operator family."""

from autotune.graph.frontend.convert import convert_model, convert_part, convert_whole
from autotune.graph.frontend.inputs import known_types, require_static
from autotune.graph.frontend.model import OnnxModel, parse_model
from autotune.graph.frontend.part import Part, Stage, whole
from autotune.graph.frontend.source import ModelSource, read_model

__all__ = [
    "ModelSource",
    "OnnxModel",
    "Part",
    "Stage",
    "convert_model",
    "convert_part",
    "convert_whole",
    "known_types",
    "parse_model",
    "read_model",
    "require_static",
    "whole",
]
