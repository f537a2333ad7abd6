"""What a model's outputs are in float64 arithmetic: what errors of rounding are measured by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from autotune.graph import load_model
from autotune.graph.evaluate import evaluate_graph
from autotune.runtime.executor import Array
from autotune.tensor.dtype import DType

if TYPE_CHECKING:
    from autotune.graph.frontend import ModelSource


def exact_outputs(
    model: ModelSource, feeds: Mapping[str, Array], shapes: Mapping[str, Sequence[int]] | None = None
) -> list[Array]:
    """Outputs in order, every float computed in float64.

    Raises:
        ModelError, UnsupportedError: the model is damaged, or is not one program because shapes depend on values.
    """
    return list(evaluate_graph(load_model(model, shapes), feeds, DType.f64).values())
