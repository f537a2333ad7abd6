"""TfIdfVectorizer: how often each n-gram of a pool occurs in sequences of integers or strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

import numpy as np

from autotune.errors import ModelError
from autotune.graph.host.node import HostNode, described, on_host
from autotune.graph.ir import Array

Item = Union[int, str]
MAX_COUNTERS = 2**28  # an index in the model must not take all memory


@on_host("TfIdfVectorizer")
def tf_idf_vectorizer(node: HostNode) -> tuple[Array]:
    """f32 [counters] or [rows, counters]: counts (TF), weights of what occurs (IDF), or their product (TFIDF)."""
    x, items = node.array(0), _items(node)
    if x.ndim not in (1, 2) or x.dtype.kind not in ("O" if isinstance(items[0], str) else "iu"):
        kind = "strings" if isinstance(items[0], str) else "integers"
        raise ModelError(f"{node.label}: the input must be one or several rows of {kind}, not {described(x)}")
    places = np.asarray(node.attr_ints("ngram_indexes") or (), np.int64)
    given = node.attr_floats("weights")
    weights = np.ones(len(places), np.float32) if given is None else np.asarray(given, np.float32)
    pool, mode = _pool(node, items), node.attr_string("mode", "")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ModelError(f"{node.label}: the mode is '{mode}', not TF, IDF or TFIDF")
    fits = len(pool) == len(places) == len(weights) and len(places) and places.min() >= 0
    if not fits or places.max() >= MAX_COUNTERS:
        raise ModelError(f"{node.label}: {len(pool)} n-grams, {len(places)} indexes, {len(weights)} weights do not fit")
    rows = x.reshape(-1, x.shape[-1]) if x.size else x.reshape(x.shape[0] if x.ndim == 2 else 1, 0)
    counts = np.zeros((len(rows), len(pool)), np.int64)
    for row, counted in zip(rows.tolist(), counts):
        _count(node, row, pool, counted)
    seen = counts if mode != "IDF" else (counts > 0)
    found = seen * (weights if mode != "TF" else np.ones_like(weights))
    result = np.zeros((len(rows), int(places.max()) + 1), np.float32)
    for number, place in enumerate(places):
        result[:, place] += found[:, number]
    return (result.reshape(*x.shape[:-1], -1),)


def _items(node: HostNode) -> Sequence[Item]:
    """The pool: what its n-grams are made of, one after the other."""
    texts, numbers = node.attr_strings("pool_strings") or (), node.attr_ints("pool_int64s") or ()
    if bool(texts) == bool(numbers):
        raise ModelError(f"{node.label}: it needs pool_strings or pool_int64s, and not both")
    return texts or numbers


def _pool(node: HostNode, items: Sequence[Item]) -> dict[tuple[Item, ...], int]:
    """The n-grams in order, each with its number; `ngram_counts` says where those of each length begin."""
    starts = node.attr_ints("ngram_counts") or ()
    ends = (*starts[1:], len(items))
    pool: dict[tuple[Item, ...], int] = {}
    for length, (start, end) in enumerate(zip(starts, ends), 1):
        if not 0 <= start <= end <= len(items) or (end - start) % length:
            raise ModelError(f"{node.label}: ngram_counts {starts} do not divide a pool of {len(items)}")
        for begin in range(start, end, length):
            pool.setdefault(tuple(items[begin : begin + length]), len(pool))
    return pool


def _count(node: HostNode, row: list[Item], pool: dict[tuple[Item, ...], int], counted: Array) -> None:
    """Count the n-grams whose elements lie 1, 2, ... apart, as far as `max_skip_count` allows."""
    least, most = node.attr_int("min_gram_length", 1), node.attr_int("max_gram_length", 1)
    for length in range(max(least, 1), min(most, len(row)) + 1):
        furthest = 1 if length == 1 else min(node.attr_int("max_skip_count", 0) + 1, (len(row) - 1) // (length - 1))
        for distance in range(1, furthest + 1):
            for start in range(len(row) - (length - 1) * distance):
                number = pool.get(tuple(row[start : start + (length - 1) * distance + 1 : distance]))
                if number is not None:
                    counted[number] += 1
