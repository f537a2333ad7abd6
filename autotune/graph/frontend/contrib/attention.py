"""Attention, MultiHeadAttention and RotaryEmbedding of ONNX Runtime. Heads are read in place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
def attention(node: OnnxNode) -> tuple[str, str]:
    """(result, present): the latter, like the past, is (2, batch, heads, positions, features), keys before values.

    The projections to q, k and v are one product; so are their heads one tensor, if they are alike.
    """
    shared = node.attr_flag("past_present_share_buffer")
    refuse(node, 7 if shared else 6, "past_sequence_length", "do_rotary", "rotary_embedding_dim")
    if shared and not (node.given(4) and node.given(6)):
        raise ModelError(f"{node.label}: past_present_share_buffer=1 needs a past and past_sequence_length")
    heads = head_count(node)
    projected = product(node, node.input(0), node.input(1))
    if node.given(2):
        projected = node.emit("add", projected, node.input(2))
    return attend_projected(node, projected, hidden_sizes(node, projected, heads), heads)


def attend_projected(node: OnnxNode, projected: str, sizes: tuple[int, ...], heads: int) -> tuple[str, str]:
    """The same behind the projection: (batch, positions, features of all heads of q, k and v, behind each other).

    Args:
        node: mask, past and what follows are inputs at the positions of Attention.
        sizes: how many features q, k and v have.
    """
    (batch, length, _), shared = node.shape(), node.attr_flag("past_present_share_buffer")
    present, keys, begin = "", length, None
    if len(set(sizes)) == 1:
        together = node.reshaped(projected, (batch, length, 3 * heads, sizes[0] // heads))
        operands = [Heads(together, first=n * heads) for n in range(3)]
        if shared:
            begin = Begin.of(node, 6, node.shape(4)[-2], length)
        if node.given(4) or node.wanted(1):
            present = _behind(node, 4, _keys_before_values(node, together, heads), begin)
        if node.given(4):
            operands[1:], keys = apart(node, present), node.builder.values[present].shape[3]
    elif node.given(4) or node.wanted(1):
        raise ModelError(f"{node.label}: hidden sizes {sizes} must be alike where there is a past or present")
    else:
        begins = (0, sizes[0], sizes[0] + sizes[1])
        parts = [node.sliced(projected, (range(batch), range(length), range(b, b + n))) for b, n in zip(begins, sizes)]
        operands = [Heads(split_heads(node, part, heads)) for part in parts]
    if begin is not None:
        return begin.attended(node, operands, heads, (3, 5)), present
    return _attend(node, operands, heads, added_mask(node, 3, 5, keys), keys - length), present


def hidden_sizes(node: OnnxNode, projected: str, heads: int) -> tuple[int, ...]:
    """How many features of a projection are those of q, k and v."""
    whole = node.builder.values[projected].shape[-1]
    sizes = node.attr_ints("qkv_hidden_sizes") or (whole // 3,) * 3
    if len(sizes) != 3 or sum(sizes) != whole or any(size < 1 or size % heads for size in sizes):
        raise ModelError(f"{node.label}: hidden sizes {sizes} of {heads} heads do not fit a projection to {whole}")
    return sizes


@contributed("MultiHeadAttention", inputs=10)
def multi_head_attention(node: OnnxNode) -> tuple[str, ...]:
    """(result, key, value, scores): keys and values behind the past, heads before positions; scores after the mask.

    Where it is told how long the past is, that has room to spare, and the new rows go there.
    """
    refuse(node, 9, "cache_indirection")
    heads = head_count(node)
    operands = _operands(node, heads)
    if node.given(6) != node.given(7) or (node.given(6) and operands[1].order == "bhsd"):
        raise ModelError(f"{node.label}: past_key and past_value go together, with keys and values of three dimensions")
    past, begin = 0, None
    if node.given(8):
        if not node.given(6) or node.wanted(3):
            raise UnsupportedError(f"{node.label}: past_sequence_length without a past, or with scores as a result, "
                                   "is not supported")  # fmt: skip
        begin = Begin.of(node, 8, node.shape(6)[2], node.shape(0)[1])
    if node.given(6):
        operands[1:] = [Heads(_behind(node, 5 + n, _heads_first(node, operands[n]), begin), "bhsd") for n in (1, 2)]
        past = node.shape(6)[2]
    presents = [_heads_first(node, operands[n]) if node.wanted(n) else "" for n in (1, 2)]
    if begin is not None:
        return begin.attended(node, operands, heads, (4, 5)), *presents, ""
    keys = node.builder.values[operands[1].name].shape[operands[1].order.index("s")]
    mask = added_mask(node, 4, 5, keys)
    result = _attend(node, operands, heads, mask, past)
    return result, *presents, _attend(node, operands, heads, mask, past, scores=True) if node.wanted(3) else ""


@contributed("DecoderMaskedMultiHeadAttention", inputs=11)
def decoder_attention(node: OnnxNode) -> tuple[str, ...]:
    """MultiHeadAttention of one token, whose inputs come in another order."""
    refuse(node, 8, "beam_width")
    refuse(node, 9, "cache_indirection")
    if node.shape()[1] != 1:
        raise ModelError(f"{node.label}: it takes one token, not {node.shape()[1]}")
    shared = node.attr_flag("past_present_share_buffer")
    if node.attr_flag("output_qk") != node.wanted(3) or shared != node.given(7):
        raise ModelError(f"{node.label}: output_qk=1 goes with a fourth result, past_present_share_buffer=1 with "
                         "past_sequence_length")  # fmt: skip
    order = (0, 1, 2, 10, 3, 4, 5, 6, 7)
    given = tuple(node.inputs[n] if n < len(node.inputs) else None for n in order)
    return multi_head_attention(replace(node, inputs=given))


@contributed("RotaryEmbedding", inputs=4)
def rotary_embedding(node: OnnxNode) -> str:
    """Pairs of features turned by the angles of their positions, which are given, or count from one that is."""
    refuse(node, 4, "more", "is_packed_batching")
    x, shape, rank = node.input(0), node.shape(), node.rank()
    node.attr_float("scale", 1.0)  # of tables that a runtime would make longer: those given are used as they are
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


def head_count(node: OnnxNode) -> int:
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
    biases = _biases(node, heads)
    names = [_plus(node, node.input(0), biases[0])]
    if node.rank(1) == 4:  # they have had their biases
        return [Heads(split_heads(node, names[0], heads)), *(Heads(node.input(n), "bhsd") for n in (1, 2))]
    names += [_plus(node, node.input(n), biases[n]) for n in (1, 2)]
    return [Heads(split_heads(node, name, heads)) for name in names]


def _keys_before_values(node: OnnxNode, together: str, heads: int) -> str:
    """(2, batch, heads, positions, features) of (batch, positions, 3·heads, features), which is q, k and v."""
    batch, length, _, features = node.builder.values[together].shape
    rows = node.sliced(together, (range(batch), range(length), range(heads, 3 * heads), range(features)))
    return node.transposed(node.reshaped(rows, (batch, length, 2, heads, features)), (2, 0, 3, 1, 4))


def _behind(node: OnnxNode, position: int, rows: str, begin: Begin | None) -> str:
    """(..., positions, features): the past at an input position, if it is given, and `rows` behind it, or in it."""
    if not node.given(position):
        return rows
    shape, past = node.builder.values[rows].shape, node.shape(position)
    if len(past) != len(shape) or (*past[:-2], past[-1]) != (*shape[:-2], shape[-1]):
        raise ModelError(f"{node.label}: input {position}, a past of shape {past}, has no room for rows of {shape}")
    if begin is not None:
        places = node.expanded(begin.place, shape[:1])
        return node.emit("tensor_scatter", node.input(position), rows, places, axis=len(shape) - 2, mode="linear")
    return node.emit("concat", node.input(position), rows, axis=len(shape) - 2) if past[-2] else rows


def apart(node: OnnxNode, present: str) -> list[Heads]:
    """Keys and values of (2, batch, heads, positions, features)."""
    _, batch, heads, length, features = node.builder.values[present].shape
    if batch == 1:  # heads of one tensor, read where they are
        together = node.reshaped(present, (1, 2 * heads, length, features))
        return [Heads(together, "bhsd"), Heads(together, "bhsd", heads)]
    whole = (range(batch), range(heads), range(length), range(features))
    parts = [node.sliced(present, (range(n, n + 1), *whole)) for n in range(2)]
    return [Heads(node.reshaped(part, (batch, heads, length, features)), "bhsd") for part in parts]


class Begin(NamedTuple):
    """Where new rows begin in a past that has room for them.

    Attributes:
        place: i64 of one element. `room`: rows of the past. `rows`: new ones.
    """

    place: str
    room: int
    rows: int

    @staticmethod
    def of(node: OnnxNode, position: int, room: int, rows: int) -> Begin:
        """That which an input says."""
        if math.prod(node.shape(position)) != 1:
            raise ModelError(f"{node.label}: past_sequence_length of shape {node.shape(position)} is not one number")
        if rows > room:
            raise ModelError(f"{node.label}: a past of {room} rows has no room for {rows} new ones")
        place = node.converted(node.reshaped(node.input(position), (1,)), DType.i64)
        node.must_lie(place, (0,), (room - rows + 1,), "past_sequence_length")
        return Begin(place, room, rows)

    def attended(self, node: OnnxNode, operands: Sequence[Heads], heads: int, masks: tuple[int, int]) -> str:
        """Attention to the old and new rows. A mask and a bias, inputs at positions `masks`, are as long as these."""
        widths = {node.shape(n)[-1] for n in masks if node.given(n) and node.rank(n) > 1}
        keys = max(widths, default=self.room)
        length = node.emit("add", self.place, node.new_constant(np.asarray(self.rows)))
        if widths:
            node.refuse_outside(length, (keys,), (keys + 1,), f"{node.label}: a mask or bias of {keys} keys is not as "
                                "long as past_sequence_length and the new rows")  # fmt: skip
        mask = added_mask(node, *masks, keys)
        extras = {} if mask is None else {"mask": mask}
        extras["lengths"] = node.expanded(length, node.shape()[:1])
        causal = node.attr_flag("unidirectional")
        return attend(node, operands, extras, (heads, heads), causal=causal)


def _picked(node: OnnxNode, position: int, number: int) -> str:
    """One of the operands that are packed along the fourth dimension of another."""
    shape = node.shape(position)
    ranges = [range(extent) for extent in shape]
    ranges[3] = range(number, number + 1)
    return node.reshaped(node.sliced(node.input(position), ranges), (*shape[:3], shape[4]))


def _biases(node: OnnxNode, heads: int) -> tuple[str, str, str]:
    """Those of q, k and v, which come behind each other in one vector; "" without."""
    if not node.given(3):
        return "", "", ""
    widths = [node.shape(n)[-1] * (heads if node.rank(n) == 4 else 1) for n in range(3)]
    if node.shape(3) != (sum(widths),):
        raise ModelError(f"{node.label}: a bias of shape {node.shape(3)} for operands of widths {tuple(widths)}")
    begins = (0, widths[0], widths[0] + widths[1])
    q, k, v = (node.sliced(node.input(3), (range(b, b + n),)) for b, n in zip(begins, widths))
    return q, k, v


def _plus(node: OnnxNode, name: str, bias: str) -> str:
    return node.emit("add", name, bias) if bias else name


def added_mask(node: OnnxNode, position: int, bias: int, keys: int) -> str | None:
    """What is added to the scores: the filter value for keys that do not count, and the bias given."""
    added = node.input(bias) if node.given(bias) else None
    if added and (node.rank(bias) != 4 or node.shape(bias)[3] != keys):
        raise ModelError(f"{node.label}: input {bias}, a bias of shape {node.shape(bias)} for scores of {keys} keys")
    filtered = node.attr_float("mask_filter_value", -10000.0)
    if not node.given(position):
        return added
    mask, batch = node.input(position), node.shape()[0]
    shape = node.shape(position)
    if shape in ((batch,), (2 * batch,), (3 * batch + 2,)):  # where keys end; then begin; or where all of them lie
        places = node.new_constant(np.arange(keys, dtype=DType(node.value(position).dtype).numpy))
        counts = node.emit("less", places, _column(node, mask, 0, batch))
        if shape == (2 * batch,):
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


def _attend(
    node: OnnxNode, operands: Sequence[Heads], heads: int, mask: str | None, past: int, *, scores: bool = False
) -> str:
    extras = {} if mask is None else {"mask": mask}
    causal = node.attr_flag("unidirectional")
    return attend(node, operands, extras, (heads, heads), causal=causal, offset=past, scores=scores)


def attend(
    node: OnnxNode, operands: Sequence[Heads], extras: Mapping[str, str], heads: tuple[int, int],
    *, causal: bool, offset: int = 0, softcap: float = 0.0, window: tuple[int, int] = (-1, -1),
    scores: bool = False,
) -> str:  # fmt: skip
    """(batch, positions, heads·features) of q, k, v; or, for `scores`, what goes into softmax.

    Args:
        heads: how many of queries, and of keys.
        offset: the position of the first query.
        scores: (batch, heads, queries, keys), -inf where a key is hidden for good.
    """
    q, k, v = operands
    features = node.builder.values[q.name].shape[-1]
    result = node.emit(
        "attention", q.name, k.name, v.name, *extras.values(),
        extras=",".join(extras), q_heads=heads[0], kv_heads=heads[1], first=(q.first, k.first, v.first),
        order=",".join((q.order, k.order, v.order, "bshd")), empty_zero=True, fill=-math.inf,
        scale=node.attr_float("scale", 0.0) or 1 / math.sqrt(features), softcap=softcap,
        causal=causal, offset=offset, window=window, precision="", result=3 if scores else 0,
    )  # fmt: skip
    if scores:
        return result
    batch, length, count, width = node.builder.values[result].shape
    return node.reshaped(result, (batch, length, count * width))


def _heads_first(node: OnnxNode, operand: Heads) -> str:
    return operand.name if operand.order == "bhsd" else node.transposed(operand.name, (0, 2, 1, 3))
