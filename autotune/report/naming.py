"""Which layer? Kernels by the names of the ONNX nodes that they compute."""

from __future__ import annotations

from collections.abc import Sequence


def kernel_name(origins: Sequence[str]) -> str:
    """The anchor's node, and how many more the kernel computes: "conv1 (+2)"; empty where none is known."""
    if not origins:
        return ""
    return origins[0] if len(origins) == 1 else f"{origins[0]} (+{len(origins) - 1})"


def task_name(kernels: Sequence[Sequence[str]]) -> str:
    """The first kernel of a task, and how many the model has of its kind: "conv1 (+2) ×4"."""
    named = [kernel for kernel in kernels if kernel]
    if not named:
        return ""
    first = kernel_name(named[0])
    return first if len(named) == 1 else f"{first} ×{len(named)}"
