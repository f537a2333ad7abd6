"""What the knobs of a contraction's space stand for: which loops there are, and how sizes are cut to what there is."""

from __future__ import annotations

import itertools

from autotune.search_spaces.sketch.contraction import Axis, Contraction

MOST_BODY = 512
"""Multiply-adds in the code of a tile with all its variants: what the instruction cache holds, and LLVM's patience."""


def block_size(count: int, wanted: int, whole: bool) -> int:
    """Tiles in a block when `wanted` are asked for, 0 for all; with `whole`, no block is smaller than the others."""
    most = min(wanted or count, count)
    return _dividing(count, most) if whole else _evenly(count, most)


def _dividing(total: int, most: int) -> int:
    """The largest divisor of `total` that is at most `most`: panels end where the last block does."""
    return max(d for d in range(1, most + 1) if total % d == 0)


def _evenly(total: int, most: int) -> int:
    """The size of pieces, at most `most`, that cut `total` into the fewest pieces, all about as long."""
    return -(-total // -(-total // most))


def term_orders(c: Contraction) -> tuple[tuple[int, ...], ...]:
    """Orders of the loops of the sum: those of one turn first, what is in a block inside the loop over the blocks."""
    terms = c.terms()
    still = [n for n, x in enumerate(terms) if x.extent == 1]
    moving = [n for n, x in enumerate(terms) if x.extent > 1]
    orders = [(*still, *order) for order in itertools.permutations(moving)]
    nested = [(n, n + 1) for n, x in enumerate(terms) if x.part == "outer"]
    return tuple(o for o in orders if all(b not in o or a not in o or o.index(a) < o.index(b) for a, b in nested))


def long(axes: tuple[Axis, ...]) -> tuple[int, ...]:
    """Numbers of the axes with more than one element."""
    return tuple(n for n, a in enumerate(axes) if a.extent > 1)
