"""Attention, MultiHeadAttention (without a past) and RotaryEmbedding of ONNX Runtime. Heads are read in place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.matrix import product
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.tensor import DType


class Heads(NamedTuple):
    """A 4-D operand, what its dimensions are, and its first head."""

    name: str
    order: str = "bshd"
    first: int = 0


@contributed("Attention", inputs=7)
def attention(node: OnnxNode) -> str:
    """The projections to q, k and v are one product; so are their heads one tensor, if they are alike."""
    refuse(node, 4, "past", "do_rotary", "rotary_embedding_dim", "past_present_share_buffer")
    heads, (batch, length, _) = _head_count(node), node.shape()
    projected = product(node, node.input(0), node.input(1))
    if node.given(2):
        projected = node.emit("add", projected, node.input(2))
    whole = node.builder.values[projected].shape[-1]
    sizes = node.attr_ints("qkv_hidden_sizes") or (whole // 3,) * 3
    if len(sizes) != 3 or sum(sizes) != whole or any(size < 1 or size % heads for size in sizes):
        raise ModelError(f"{node.label}: hidden sizes {sizes} of {heads} heads do not fit a projection to {whole}")
    if len(set(sizes)) == 1:
        together = node.reshaped(projected, (batch, length, 3 * heads, sizes[0] // heads))
        operands = [Heads(together, first=n * heads) for n in range(3)]
    else:
        begins = (0, sizes[0], sizes[0] + sizes[1])
        parts = [node.sliced(projected, (range(batch), range(length), range(b, b + n))) for b, n in zip(begins, sizes)]
        operands = [Heads(split_heads(node, part, heads)) for part in parts]
    return _attend(node, operands, heads, _mask(node, 3, 5, length))


@contributed("MultiHeadAttention", inputs=8)
def multi_head_attention(node: OnnxNode) -> tuple[str, ...]:
    """(result, key, value): the latter two with their heads before their positions, as a next step's past."""
    for position in (6, 7):
        refuse(node, position, "past")
    heads = _head_count(node)
    operands = _operands(node, heads)
    keys = node.builder.values[operands[1].name].shape[operands[1].order.index("s")]
    result = _attend(node, operands, heads, _mask(node, 4, 5, keys))
    return result, *(_heads_first(node, operands[n]) if node.wanted(n) else "" for n in (1, 2))


@contributed("RotaryEmbedding", inputs=4)
def rotary_embedding(node: OnnxNode) -> str:
    """Pairs of features turned by the angles of their positions, which are given, or count from one that is."""
    refuse(node, 4, "more", "is_packed_batching")
    x, shape, rank = node.input(0), node.shape(), node.rank()
    if node.attr_float("scale", 1.0) != 1.0:
        raise UnsupportedError(f"{node.label}: the attribute 'scale' is not 1")
    dim, heads = node.attr_int("rotary_embedding_dim", 0), node.attr_int("num_heads", 0)
    if rank == 3:
        x = split_heads(node, x, heads or shape[2] // max(1, dim or 2 * node.shape(2)[-1]) or 1)
    elif rank != 4:
        raise ModelError(f"{node.label}: input of shape {shape} must be 3-D or 4-D")
    batch, length = shape[0], shape[1 if rank == 3 else 2]
    positions, rows = node.input(1), node.shape(2)[0]
    if node.shape(1) == (1,):
        places = node.emit("add", positions, node.new_constant(np.arange(length)))
        positions = node.expanded(node.reshaped(places, (1, length)), (batch, length))
    node.must_lie(positions, (0,), (rows,), "a position")
    turned = node.emit(
        "rotary", x, node.input(2), node.input(3), positions, order="bshd" if rank == 3 else "bhsd",
        dim=dim or node.builder.values[x].shape[-1], interleaved=node.attr_flag("interleaved"),
    )  # fmt: skip
    return node.reshaped(turned, shape)


def refuse(node: OnnxNode, position: int, what: str, *attributes: str) -> None:
    if node.given(position):
        raise UnsupportedError(f"{node.label}: input {position} ({what}) is not supported")
    for name in attributes:
        if node.attr_int(name, 0):
            raise UnsupportedError(f"{node.label}: the attribute '{name}' is not supported")


def _head_count(node: OnnxNode) -> int:
    heads = node.attr_int("num_heads", 0)
    if heads < 1 or (node.rank() != 3 and node.op == "Attention"):
        raise ModelError(f"{node.label}: num_heads={heads} of data of shape {node.shape()}")
    return heads


def split_heads(node: OnnxNode, name: str, heads: int) -> str:
    """(batch, positions, heads·features) as (batch, positions, heads, features)."""
    shape = node.builder.values[name].shape
    if len(shape) != 3 or shape[2] % heads:
        raise ModelError(f"{node.label}: an operand of shape {shape} has no {heads} heads")
    return node.reshaped(name, (*shape[:2], heads, shape[2] // heads))


def _operands(node: OnnxNode, heads: int) -> list[Heads]:
    """q, k, v in any of the forms: apart, k and v with their heads first, k and v packed, all three packed."""
    together = {0: 3, 1: 2}
    for position, count in together.items():
        if node.given(position) and node.rank(position) == 5:  # (batch, positions, heads, count, features)
            if node.shape(position)[2:4] != (heads, count) or node.given(position + 1) or node.given(3):
                raise ModelError(f"{node.label}: packed operand of shape {node.shape(position)} for {heads} heads, "
                                 "and nothing beside it")  # fmt: skip
            parts = [Heads(_picked(node, position, n)) for n in range(count)]
            return parts if position == 0 else [Heads(split_heads(node, node.input(0), heads)), *parts]
    biases = _biases(node)
    names = [_plus(node, node.input(0), biases[0])]
    if node.rank(1) == 4:
        if biases[1]:
            raise UnsupportedError(f"{node.label}: input 3 (bias) with keys of four dimensions is not supported")
        return [Heads(split_heads(node, names[0], heads)), *(Heads(node.input(n), "bhsd") for n in (1, 2))]
    names += [_plus(node, node.input(n), biases[n]) for n in (1, 2)]
    return [Heads(split_heads(node, name, heads)) for name in names]


def _picked(node: OnnxNode, position: int, number: int) -> str:
    """One of the operands that are packed along the fourth dimension of another."""
    shape = node.shape(position)
    ranges = [range(extent) for extent in shape]
    ranges[3] = range(number, number + 1)
    return node.reshaped(node.sliced(node.input(position), ranges), (*shape[:3], shape[4]))


def _biases(node: OnnxNode) -> tuple[str, str, str]:
    """Those of q, k and v, which come behind each other in one vector; "" without."""
    if not node.given(3):
        return "", "", ""
    widths = [node.shape(n)[-1] for n in range(3)]
    if node.shape(3) != (sum(widths),):
        raise ModelError(f"{node.label}: a bias of shape {node.shape(3)} for operands of widths {tuple(widths)}")
    begins = (0, widths[0], widths[0] + widths[1])
    q, k, v = (node.sliced(node.input(3), (range(b, b + n),)) for b, n in zip(begins, widths))
    return q, k, v


def _plus(node: OnnxNode, name: str, bias: str) -> str:
    return node.emit("add", name, bias) if bias else name


def _mask(node: OnnxNode, position: int, bias: int, keys: int) -> str | None:
    """What is added to the scores: the filter value for keys that do not count, and the bias given."""
    added = node.input(bias) if node.given(bias) else None
    filtered = node.attr_float("mask_filter_value", -10000.0)
    if not node.given(position):
        return added
    mask, batch = node.input(position), node.shape()[0]
    shape = node.shape(position)
    if len(shape) == 1 and shape in ((batch,), (2 * batch,)):
        places = node.new_constant(np.arange(keys, dtype=DType(node.value(position).dtype).numpy))
        counts = node.emit("less", places, _column(node, mask, 0, batch))
        if shape != (batch,):  # ends, then begins
            begun = node.emit("greater_or_equal", places, _column(node, mask, batch, 2 * batch))
            counts = node.emit("and", counts, begun)
    elif shape == (batch, keys) or (len(shape) == 3 and shape[::2] == (batch, keys)):
        counts = node.emit("greater", mask, node.scalar(0, mask))
        counts = node.reshaped(counts, (batch, 1, 1 if len(shape) == 2 else shape[1], keys))
    else:
        raise UnsupportedError(f"{node.label}: input {position}, a mask of shape {shape} for {keys} keys, "
                               "is not supported")  # fmt: skip
    like = node.input(0)
    mask = node.emit("where", counts, node.scalar(0.0, like), node.scalar(filtered, like))
    return mask if added is None else node.emit("add", mask, added)


def _column(node: OnnxNode, name: str, begin: int, end: int) -> str:
    """Some entries of a vector, one for each batch of scores."""
    return node.reshaped(node.sliced(name, (range(begin, end),)), (end - begin, 1, 1, 1))


def _attend(node: OnnxNode, operands: Sequence[Heads], heads: int, mask: str | None) -> str:
    extras = {} if mask is None else {"mask": mask}
    return attend(node, operands, extras, (heads, heads), causal=node.attr_flag("unidirectional"))


def attend(
    node: OnnxNode, operands: Sequence[Heads], extras: Mapping[str, str], heads: tuple[int, int],
    *, causal: bool, softcap: float = 0.0, window: tuple[int, int] = (-1, -1),
) -> str:  # fmt: skip
    """(batch, positions, heads·features): q, k, v with as many heads of queries and of keys."""
    q, k, v = operands
    features = node.builder.values[q.name].shape[-1]
    result = node.emit(
        "attention", q.name, k.name, v.name, *extras.values(),
        extras=",".join(extras), q_heads=heads[0], kv_heads=heads[1], first=(q.first, k.first, v.first),
        order=",".join((q.order, k.order, v.order, "bshd")), empty_zero=True, fill=-math.inf,
        scale=node.attr_float("scale", 0.0) or 1 / math.sqrt(features), softcap=softcap,
        causal=causal, offset=0, window=window, precision="", result=0,
    )  # fmt: skip
    batch, length, count, width = node.builder.values[result].shape
    return node.reshaped(result, (batch, length, count * width))


def _heads_first(node: OnnxNode, operand: Heads) -> str:
    return operand.name if operand.order == "bhsd" else node.transposed(operand.name, (0, 2, 1, 3))
