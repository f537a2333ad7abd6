"""MRotaryEmbedding: features turned by angles of three positions each, of time, height and width."""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.contrib.attention import refuse, split_heads
from autotune.graph.frontend.node import OnnxNode, contributed


@contributed("MRotaryEmbedding", inputs=4)
def multimodal_rotary_embedding(node: OnnxNode) -> str:
    """RotaryEmbedding with tables that are put together for each token, some angles of each of its positions."""
    refuse(node, 4, "more", "is_packed_batching")
    x, shape, rank = node.input(0), node.shape(), node.rank()
    node.attr_float("scale", 1.0)  # of tables that a runtime would make longer: those given are used as they are
    dim, heads = node.attr_int("rotary_embedding_dim", 0), node.attr_int("num_heads", 0)
    rows, half = node.shape(2)
    if rank == 3:
        x = split_heads(node, x, heads or shape[2] // max(1, dim or 2 * half) or 1)
    elif rank != 4:
        raise ModelError(f"{node.label}: input of shape {shape} must be 3-D or 4-D")
    tokens = (shape[0], shape[1 if rank == 3 else 2])
    if node.shape(1) != (3, *tokens):
        raise ModelError(f"{node.label}: positions of shape {node.shape(1)}, {(3, *tokens)} are needed")
    node.must_lie(node.input(1), (0,), (rows,), "a position")
    parts = sections(node, half)
    places = [node.sliced(node.input(1), (range(n, n + 1), *map(range, tokens))) for n in range(3)]
    tables = [_table(node, position, [node.reshaped(one, tokens) for one in places], parts) for position in (2, 3)]
    turned = node.emit(
        "rotary", x, *tables, order="bshd" if rank == 3 else "bhsd", dim=dim or node.builder.values[x].shape[-1],
        interleaved=node.attr_flag("interleaved"),
    )  # fmt: skip
    return node.reshaped(turned, shape)


def sections(node: OnnxNode, half: int) -> tuple[tuple[int, ...], ...]:
    """The angles of each of the three positions: side by side, or in turns as far as the last two have some."""
    counts, layout = node.attr_ints("mrope_section") or (), node.attr_int("mrope_layout", 0)
    if len(counts) != 3 or min(counts) < 0 or sum(counts) != half or layout not in (0, 1):
        raise ModelError(f"{node.label}: mrope_section={counts} and mrope_layout={layout} of {half} angles")
    if layout == 0:
        first, second = counts[0], counts[0] + counts[1]
        return tuple(range(first)), tuple(range(first, second)), tuple(range(second, half))
    height, width = (tuple(range(n, min(3 * counts[n], half), 3)) for n in (1, 2))
    return tuple(sorted(set(range(half)).difference(height, width))), height, width


def _table(node: OnnxNode, position: int, places: list[str], parts: tuple[tuple[int, ...], ...]) -> str:
    """(batch, tokens, angles) of a table (positions, angles)."""
    table, found = node.input(position), list[str]()
    for place, part in zip(places, parts, strict=True):
        if part:
            columns = node.emit("gather", table, node.new_constant(np.asarray(part)), axis=1)
            found.append(node.emit("gather", columns, place, axis=0))
    joined = node.emit("concat", *found, axis=2) if len(found) > 1 else found[0]
    order = np.argsort(np.concatenate(parts).astype(np.int64))
    in_place = (order == np.arange(len(order))).all()
    return joined if in_place else node.emit("gather", joined, node.new_constant(order), axis=2)
