"""What moves data, or keeps its order, works on bytes: `dequantize` goes behind it, `quantize` before it.

Reshapes, transposes, slices, pads, joins, nearest neighbours, largest values and lower bounds give on a grid what they
give of the real numbers. All of it is exact.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.graph.ir import Node
from autotune.graph.passes.integer.values import BYTES, Dequantized, Grid, dequantized, plain, plain_target
from autotune.graph.passes.match import made_by
from autotune.graph.passes.sweep import Sweep
from autotune.ops.workload import AttrValue

_MOVING = frozenset({"expand", "gather", "reshape", "slice", "transpose"})
_ORDERED = frozenset({"max_pool", "reduce_max", "reduce_min"})
BEFORE = frozenset({"concat", "max_pool", "reshape", "transpose"})
"""What a `quantize` may go before: nothing is quantised twice."""


def moved(sweep: Sweep, node: Node) -> str | None:
    """`f(dequantize(q))` --> `dequantize(f(q))`."""
    if node.op == "concat":
        return _joined(sweep, node)
    source = dequantized(sweep, node.inputs[0]) if node.inputs else None
    if source is None or source.grid.dtype.value not in BYTES:
        return None
    if node.op == "transpose" and not source.grid.is_plain:
        return _transposed(sweep, node, source)
    if not source.grid.is_plain:
        return None
    if node.op in _MOVING | _ORDERED or (node.op == "resize" and _is_nearest(node)):
        made = sweep.emit(node, node.op, (source.value, *node.inputs[1:]), **_attributes(node))
        return _real(sweep, node, made, source)
    if node.op == "pad":
        border = _exactly(source.grid, node.number("value"))
        if border is None:
            return None
        made = sweep.emit(node, "pad", (source.value,), pads=node.attr("pads"), value=border)
        return _real(sweep, node, made, source)
    if node.op == "relu":
        return _real(sweep, node, _at_least(sweep, node, source.value, source.grid, source.grid.origin), source)
    return None


def quantized_before(sweep: Sweep, node: Node) -> str | None:
    """`quantize(f(x))` --> `f(quantize(x))`, and of bounds: `quantize(clip(x))` --> bounds of the quantised value."""
    grid = plain_target(sweep, node)
    if grid is None:
        return None
    source = plain(sweep, node.inputs[0])
    if source is not None and source.grid.same(grid):
        return source.value
    inner = made_by(sweep, node.inputs[0], "relu", "clip", *BEFORE)
    if inner is None or not sweep.sole_use(inner.name):
        return None
    if inner.op == "relu":
        low, high = 0.0, math.inf
    elif inner.op == "clip":
        low, high = inner.number("min"), inner.number("max")
        if not low <= high:
            return None
    elif inner.op == "max_pool" and not sweep.sole_use(inner.inputs[0]):
        return None
    else:
        quantised = [sweep.emit(node, "quantize", (x, *node.inputs[1:]), to=grid.dtype.value) for x in inner.inputs]
        return sweep.emit(node, inner.op, quantised, **_attributes(inner))
    made = sweep.emit(node, "quantize", (inner.inputs[0], *node.inputs[1:]), to=grid.dtype.value)
    made = _at_least(sweep, node, made, grid, grid.nearest(low))
    return _at_most(sweep, node, made, grid, grid.nearest(high))


def _joined(sweep: Sweep, node: Node) -> str | None:
    sources = [source for source in (plain(sweep, name) for name in node.inputs) if source is not None]
    if len(sources) < len(node.inputs) or not all(source.grid.same(sources[0].grid) for source in sources):
        return None
    made = sweep.emit(node, "concat", [source.value for source in sources], **_attributes(node))
    return _real(sweep, node, made, sources[0])


def _transposed(sweep: Sweep, node: Node, source: Dequantized) -> str | None:
    """Of parameters that differ along an axis: they turn, too."""
    perm = node.int_tuple("perm")
    if any(array.ndim not in (0, len(perm)) for array in (source.grid.scale, source.grid.zero)):
        return None
    parameters = [
        sweep.constant(array.transpose(perm) if array.ndim else array, name)
        for array, name in zip((source.grid.scale, source.grid.zero), source.node.inputs[1:], strict=True)
    ]
    made = sweep.emit(node, "transpose", (source.value,), perm=perm)
    return sweep.emit(node, "dequantize", (made, *parameters), to="f32")


def _real(sweep: Sweep, node: Node, value: str, source: Dequantized) -> str:
    return sweep.emit(node, "dequantize", (value, *source.node.inputs[1:]), to="f32")


def _is_nearest(node: Node) -> bool:
    """Whether a `resize` gives elements of its operand and nothing else."""
    return node.attr("mode") == "nearest" and node.attr("coordinates") != "tf_crop_and_resize"


def _exactly(grid: Grid, real: float) -> int | None:
    """The integer that stands for exactly this number."""
    if not math.isfinite(real):
        return None
    place = grid.nearest(real)
    return place if np.float32(place - grid.origin) * np.float32(grid.step) == np.float32(real) else None


def _at_least(sweep: Sweep, node: Node, value: str, grid: Grid, bound: int) -> str:
    if bound <= grid.least:
        return value
    return sweep.emit(node, "max", (value, sweep.constant(np.asarray(bound, grid.dtype.numpy), node.name)))


def _at_most(sweep: Sweep, node: Node, value: str, grid: Grid, bound: int) -> str:
    if bound >= grid.most:
        return value
    return sweep.emit(node, "min", (value, sweep.constant(np.asarray(bound, grid.dtype.numpy), node.name)))


def _attributes(node: Node) -> dict[str, AttrValue]:
    return dict(node.attrs)
