"""Operators that are reshapes and transposes in another guise: depth to space and back, tile."""

from __future__ import annotations

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.tensor.extents import check_shape


@converts("DepthToSpace")
def depth_to_space(node: OnnxNode) -> str:
    """Blocks of channels become blocks of pixels; the channels' order is (block, depth) or, in CRD, (depth, block)."""
    n, c, h, w, block = _blocks(node)
    if c % block**2:
        raise ModelError(f"{node.label}: {c} channels are no multiple of the block's {block**2}")
    depth = c // block**2
    if _mode(node) == "DCR":
        split, perm = (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2)
    else:
        split, perm = (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3)
    moved = node.transposed(node.reshaped(node.input(0), split), perm)
    return node.reshaped(moved, (n, depth, h * block, w * block))


@converts("SpaceToDepth")
def space_to_depth(node: OnnxNode) -> str:
    """The inverse of DepthToSpace."""
    n, c, h, w, block = _blocks(node)
    if h % block or w % block:
        raise ModelError(f"{node.label}: {h}x{w} pixels are no multiple of blocks of {block}x{block}")
    split = (n, c, h // block, block, w // block, block)
    perm = (0, 3, 5, 1, 2, 4) if _mode(node) == "DCR" else (0, 1, 3, 5, 2, 4)
    moved = node.transposed(node.reshaped(node.input(0), split), perm)
    return node.reshaped(moved, (n, c * block**2, h // block, w // block))


def _blocks(node: OnnxNode) -> tuple[int, int, int, int, int]:
    """(batch, channels, height, width, block size) of a node on images."""
    block = node.attr_int("blocksize", 0)
    if node.rank() != 4 or block < 1:
        raise ModelError(f"{node.label}: needs images and a positive block, got {node.shape()} and blocksize={block}")
    n, c, h, w = node.shape()
    return n, c, h, w, block


def _mode(node: OnnxNode) -> str:
    mode = node.attr_string("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise ModelError(f"{node.label}: mode '{mode}' is neither DCR nor CRD")
    return mode


@converts("Tile")
def tile(node: OnnxNode) -> str:
    """Repetition along each axis: a new axis before it, expanded. One repetition of one axis before opset 6."""
    shape = node.shape()
    repeats = list(node.constant_ints(1, "the repeats")) if node.opset >= 6 else _old_repeats(node)
    if len(repeats) != len(shape) or min(repeats, default=0) < 0:
        raise ModelError(f"{node.label}: repeats {tuple(repeats)} for a tensor of shape {shape}")
    result = check_shape([n * extent for n, extent in zip(repeats, shape)], "the result")
    pairs = [pair for n, extent in zip(repeats, shape) for pair in ((n, extent) if n != 1 else (extent,))]
    apart = [pair for n, extent in zip(repeats, shape) for pair in ((1, extent) if n != 1 else (extent,))]
    if pairs == apart:
        return node.input(0)
    return node.reshaped(node.expanded(node.reshaped(node.input(0), apart), tuple(pairs)), result)


def _old_repeats(node: OnnxNode) -> list[int]:
    """Opset 1: a number of tiles and the axis along which they are laid."""
    (tiles, axis) = (node.constant_number(n, what) for n, what in ((1, "the tiles"), (2, "the axis")))
    repeats = [1] * node.rank()
    repeats[node.axis(int(axis), node.rank())] = int(tiles)
    return repeats
