"""Rotary embeddings in primitive nodes: every way of writing them becomes one operator, and few kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autotune.graph import Graph, partition
from tests.graph.graph_models import Array, random
from tests.graph.test_graph_recognition import Writer, integers, ops

BATCH, HEADS, LENGTH, SIZE = 2, 3, 5, 8
SHAPE = (BATCH, HEADS, LENGTH, SIZE)


def angles(pairs: int, length: int = LENGTH) -> Array:
    return np.asarray(np.outer(np.arange(length), 0.3 ** np.arange(pairs)), np.float32)


def cut(w: Writer, x: str, begin: int, end: int, step: int = 1) -> str:
    return w("Slice", x, integers(begin), integers(end), integers(3), integers(step))


def by_halves(w: Writer, x: str, cos: str | Array, sin: str | Array, size: int) -> str:
    swapped = w("Concat", w("Neg", cut(w, x, size // 2, size)), cut(w, x, 0, size // 2), axis=-1)
    return w("Add", w("Mul", x, cos), w("Mul", swapped, sin))


def tables(size: int, *, interleaved: bool = False) -> tuple[Array, Array]:
    half = angles(size // 2)
    both = np.repeat(half, 2, axis=1) if interleaved else np.concatenate([half, half], axis=1)
    return np.cos(both), np.sin(both)


def whole(w: Writer) -> str:
    return by_halves(w, "x", *tables(SIZE), SIZE)


def other_order(w: Writer) -> str:
    cos, sin = tables(SIZE)
    swapped = w("Concat", w("Neg", cut(w, "x", SIZE // 2, SIZE)), cut(w, "x", 0, SIZE // 2), axis=3)
    return w("Add", w("Mul", sin[None, None], swapped), w("Mul", cos[None, None], "x"))


def tables_for_each_feature(w: Writer) -> str:
    """Values that differ between the features of a pair are not a rotation, and computed all the same."""
    return by_halves(w, "x", random(LENGTH, SIZE, seed=1), random(LENGTH, SIZE, seed=2), SIZE)


def computed_tables(w: Writer) -> str:
    both = w("Concat", "angles", "angles", axis=-1)
    cos, sin = (w("Unsqueeze", w(op, both), integers(1)) for op in ("Cos", "Sin"))
    return by_halves(w, "x", cos, sin, SIZE)


def first_features(w: Writer) -> str:
    turned = by_halves(w, cut(w, "x", 0, 4), *tables(4), 4)
    return w("Concat", turned, cut(w, "x", 4, SIZE), axis=-1)


def pair_by_pair(w: Writer) -> str:
    """`[a cos - b sin, b cos + a sin]`."""
    cos, sin = w.constant(np.cos(angles(SIZE // 2))), w.constant(np.sin(angles(SIZE // 2)))
    a, b = cut(w, "x", 0, SIZE // 2), cut(w, "x", SIZE // 2, SIZE)
    left = w("Sub", w("Mul", a, cos), w("Mul", b, sin))
    return w("Concat", left, w("Add", w("Mul", b, cos), w("Mul", a, sin)), axis=-1)


def neighbours(w: Writer) -> str:
    """Pairs side by side, as GPT-J writes it."""
    odd = w("Unsqueeze", w("Neg", cut(w, "x", 1, SIZE, 2)), integers(4))
    even = w("Unsqueeze", cut(w, "x", 0, SIZE, 2), integers(4))
    swapped = w("Reshape", w("Concat", odd, even, axis=-1), integers(*SHAPE))
    cos, sin = tables(SIZE, interleaved=True)
    return w("Add", w("Mul", "x", cos), w("Mul", swapped, sin))


FORMS = [whole, other_order, tables_for_each_feature, computed_tables, first_features, pair_by_pair, neighbours]


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: Callable[[Writer], str]) -> None:
    w, feeds = Writer(), {"x": random(*SHAPE)}
    if form is computed_tables:
        feeds["angles"] = random(BATCH, LENGTH, SIZE // 2, seed=3)
    graph = w.optimized(form(w), **feeds)
    turned = [node for node in graph.nodes if node.op == "rotary"]
    assert len(turned) == 1
    assert turned[0].attr("interleaved") == (form is neighbours)
    assert len(partition(graph)) == (4 if form is computed_tables else 1)


@pytest.mark.parametrize("why", ["sign", "halves", "head", "other"])
def test_what_is_no_rotation(why: str) -> None:
    w = Writer()
    cos, sin = (np.broadcast_to(t, (HEADS, *t.shape)) if why == "head" else t for t in tables(SIZE))
    first, second = cut(w, "x", 0, SIZE // 2), cut(w, "x", SIZE // 2, SIZE)
    if why == "halves":
        first, second = second, first
    other = w("Exp", "x") if why == "other" else "x"
    negated = (first, w("Neg", second)) if why == "sign" else (w("Neg", second), first)
    y = w("Add", w("Mul", other, np.ascontiguousarray(cos)),
          w("Mul", w("Concat", *negated, axis=-1), np.ascontiguousarray(sin)))  # fmt: skip
    assert "rotary" not in ops(w.optimized(y, x=random(*SHAPE)))


def attention(w: Writer, q: str, k: str, v: str) -> str:
    scores = w("Mul", w("MatMul", q, w("Transpose", k, perm=[0, 1, 3, 2])), SIZE**-0.5)
    causal = np.triu(np.full((LENGTH, LENGTH), -1e9, np.float32), 1)
    mixed = w("MatMul", w("Softmax", w("Add", scores, causal), axis=-1), v)
    return w("Reshape", w("Transpose", mixed, perm=[0, 2, 1, 3]), integers(BATCH, LENGTH, HEADS * SIZE))


def kernels(graph: Graph) -> list[str]:
    return ["+".join(node.op for node in g.workload.nodes) for g in partition(graph) if not g.is_view]


def test_attention_as_llama_writes_it() -> None:
    w, width = Writer(), HEADS * SIZE

    def heads(seed: int) -> str:
        flat = w("MatMul", "x", random(width, width, seed=seed, low=-0.3, high=0.3))
        return w("Transpose", w("Reshape", flat, integers(0, 0, HEADS, SIZE)), perm=[0, 2, 1, 3])

    q, k = (by_halves(w, heads(seed), *tables(SIZE), SIZE) for seed in (1, 2))
    graph = w.optimized(attention(w, q, k, heads(3)), x=random(BATCH, LENGTH, width))
    assert sorted(kernels(graph)) == ["attention", *["matmul"] * 3, *["rotary"] * 2]


@pytest.mark.parametrize("turned", [SIZE, SIZE // 2])
def test_attention_as_gpt_neox_writes_it(turned: int) -> None:
    """Queries, keys and values of a head side by side in one product; a part of each head is turned."""
    w, width = Writer(), HEADS * SIZE
    flat = w("MatMul", "x", random(width, 3 * width, seed=1, low=-0.3, high=0.3))
    apart = w("Transpose", w("Reshape", flat, integers(0, 0, HEADS, 3 * SIZE)), perm=[0, 2, 1, 3])
    q, k, v = (cut(w, apart, n * SIZE, (n + 1) * SIZE) for n in range(3))
    if turned == SIZE:
        q, k = (by_halves(w, x, *tables(SIZE), SIZE) for x in (q, k))
    else:
        q, k = (
            w("Concat", by_halves(w, cut(w, x, 0, turned), *tables(turned), turned), cut(w, x, turned, SIZE), axis=-1)
            for x in (q, k)
        )
    graph = w.optimized(attention(w, q, k, v), x=random(BATCH, LENGTH, width))
    assert sorted(kernels(graph)) == ["attention", "matmul", "slice", *["slice+rotary"] * 2]
