"""The layouts that a contraction gives its operands where nobody asks for others."""

from __future__ import annotations

from autotune.ops.conv import CONVOLUTIONS
from autotune.ops.workload import Workload
from autotune.search_spaces.operators.conv2d_shape import blocked_activations, halo, operand_layouts, sizes
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.layout import Layout


def usual_layouts(workload: Workload, target: Target) -> dict[str, Layout]:
    """Channels of a convolution in blocks of one vector, the image with a border as wide as windows reach beyond it.

    Everything else is row-major.
    """
    anchor = workload.anchor
    if anchor is None or anchor.op not in CONVOLUTIONS or max(anchor.inputs) >= len(workload.inputs):
        return {}
    p, lanes = sizes(workload), target.lanes(DType.f32.bytes)
    layouts = operand_layouts(workload, lanes, p.k)
    layouts[f"in{anchor.inputs[0]}"] = blocked_activations(p.c, lanes, p.rank + 2).with_halo(halo(p))
    return layouts
