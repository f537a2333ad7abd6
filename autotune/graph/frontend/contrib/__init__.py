"""Operators of ONNX Runtime's own (com.microsoft), which its optimiser and exporters write. One file per family."""

from autotune.graph.frontend.contrib import (
    activation,
    attention,
    cached_attention,
    channels_last,
    gates,
    gather,
    grouped_attention,
    images,
    linear_attention,
    mixtures,
    normalization,
    products,
    quantization,
    quantized_attention,
    quantized_mixtures,
    recurrent,
    relative_positions,
    rotary,
    routers,
    search,
    standard,
    tensors,
)

# Importing a family registers its converters.
FAMILIES = (
    activation,
    attention,
    cached_attention,
    channels_last,
    gather,
    grouped_attention,
    gates,
    images,
    linear_attention,
    mixtures,
    normalization,
    products,
    quantization,
    quantized_attention,
    quantized_mixtures,
    recurrent,
    relative_positions,
    rotary,
    routers,
    search,
    standard,
    tensors,
)

__all__ = ["FAMILIES"]
