"""ONNX Runtime as the reference for integers: the same sums on every CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray


def exactly(model: bytes, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """What ONNX Runtime computes where its sums of products of bytes are exact.

    Left to itself it adds two products of u8 and i8 in 16 bits where the CPU has no VNNI, and what does not fit there
    saturates: 255 * 127 + 255 * 127 becomes 32767. Its mode for precision makes constant factors u8, of which it has
    exact products. That is an optimisation of the graph, so these are on; and it breaks on data of i8, of which sums
    are exact anyway.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    if all(array.dtype != np.int8 for array in feeds.values()):
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))
