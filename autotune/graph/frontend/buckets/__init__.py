"""Models that may run in larger shapes than those of their inputs: what padding changes is found, masked or refused."""

from autotune.graph.frontend.buckets.analysis import Padding, dimensions_of, elements_of, padding_of
from autotune.graph.frontend.buckets.apart import kept_apart, that_pads
from autotune.graph.frontend.buckets.facts import CannotPad
from autotune.graph.frontend.buckets.padded import padded_model, valid_name
from autotune.graph.frontend.buckets.ranges import counted_from_zero

__all__ = [
    "CannotPad", "Padding", "counted_from_zero", "dimensions_of", "elements_of", "kept_apart", "padded_model",
    "padding_of", "that_pads", "valid_name",
]  # fmt: skip
