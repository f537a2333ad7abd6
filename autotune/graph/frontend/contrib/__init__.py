"""Operators of ONNX Runtime's own (com.microsoft), which its optimiser and exporters write. One file per family."""

from autotune.graph.frontend.contrib import activation, attention, normalization, products, quantization

FAMILIES = (activation, attention, normalization, products, quantization)  # importing a family registers its converters

__all__ = ["FAMILIES"]
