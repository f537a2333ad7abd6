"""What the knobs of a contraction's space stand for: which loops there are, and how sizes are cut to what there is."""

from __future__ import annotations

import functools
import itertools
import math
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from autotune.schedule.dot_products import DotProduct
from autotune.search_spaces.library.afar import comes_from_afar
from autotune.search_spaces.sketch.contraction import Axis, Contraction, Term
from autotune.search_spaces.sketch.factor import Factor
from autotune.search_spaces.sketch.folding import Folding
from autotune.target import Target

MOST_BODY = 512
"""Multiply-adds in the code of a tile with all its variants: what the instruction cache holds, and LLVM's patience."""


Count = TypeVar("Count", int, NDArray[np.int64])
Flag: TypeAlias = "bool | NDArray[np.bool_]"


def too_many(
    size: Count,
    shared: Count,
    dot: DotProduct | None,
    registers: int,
    widens: bool = False,
    turned: Count | None = None,
) -> Count:
    """By how many vector registers a tile needs more than there are; at most 0 where it fits.

    A few too many are no harm where what is multiplied may come from memory. Where another instruction adds, products
    need a register, too; so does what is widened one by one, and bytes of which pairs are made are two vectors each.

    Args:
        size: accumulators. `shared`: vectors of a factor that stay in registers for several.
        widens: whether some of what is multiplied is `narrow`.
        turned: 1 where what an instruction folds lies in rows that are interleaved in registers (`interleaved`): these
            rows and what they become take some, and none may be too many, or LLVM moves nearly all others once in each
            turn. Measured of instructions that add, and counted for no others.
    """
    needed = size + (shared + 1) * (2 if dot is not None and dot.widened else 1)
    if not dot.adds if dot is not None else widens:
        return needed + 1 - registers
    spare = registers // 8
    if dot is None or turned is None:
        return needed - registers - spare
    return needed - registers - spare + turned * (spare + dot.extent + 1)


def narrow(c: Contraction, target: Target) -> list[Factor]:
    """What is multiplied and lies in memory in fewer bytes than it is added up in."""
    return [f for f in c.reads if c.product and f.bytes * c.lanes * 8 < target.vector_bits]


def interleaved(c: Contraction, folding: Folding, f: Factor, lanes: Count) -> Flag:
    """Whether vectors of a factor that lies in no panels are made of several rows of memory, since an instruction folds
    elements that are not side by side."""
    step = f.stride(c.reduce[folding.axis].name)
    found: Flag = (lanes != step) & (step != 1)
    return found


FACTOR_TILES = 2
"""Tile registers for what is multiplied, at least: one for either factor, and another where rows are left over."""


@functools.lru_cache(maxsize=4096)
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


LEAST_DEPTH = 128
"""Elements of a partial sum, at least: loading and storing what it is added to takes little beside."""
DEPTHS = tuple(LEAST_DEPTH << n for n in range(4))


def depths(c: Contraction) -> tuple[int, ...]:
    """Lengths of the parts of a sum along its longest axis, all of whole vectors and blocks; 0 is all of it."""
    if not c.product:
        return (0,)
    a = c.reduce[c.deep]
    unit = math.lcm(c.lanes, max(a.block, 1))
    whole = [n for n in range(unit, a.extent, unit) if a.extent % n == 0 and (a.period or n) % n == 0]
    near = (max((n for n in whole if most // 2 < n <= most), default=0) for most in DEPTHS)
    return tuple(dict.fromkeys((0, *(n for n in near if n >= LEAST_DEPTH))))


UNROLL = (1, 2, 4, 8)
ALL = 0


def unrolls(c: Contraction) -> tuple[int, ...]:
    """How many turns of the innermost loop of the sum may be written out; `ALL`: all turns of all its loops."""
    return (*UNROLL, ALL) if c.lanewise else UNROLL


def from_afar(c: Contraction, target: Target) -> bool:
    """Whether panels come from behind the core's own caches, which also hold what is multiplied with them.

    However little that is beside the work as a whole: each panel is waited for when it is first read.
    """
    return comes_from_afar(sum(math.prod(f.shape) * f.bytes for f in c.streamed), target)


def read_once(c: Contraction) -> bool:
    """Whether the largest factor is no weight, and each of its elements in one sum: to turn it for vectors of results
    may take longer than vectors of terms do, whose lanes are added up at the end."""
    largest = max(c.factors, key=lambda f: math.prod(f.shape) * f.bytes)
    return largest.plain and not largest.constant and all(a.extent == 1 or a.name in largest.axes() for a in c.spatial)


def term_orders(c: Contraction) -> tuple[tuple[int, ...], ...]:
    """Orders of the loops of the sum: those of one turn first, what is in a block inside the loop over the blocks."""
    terms = c.terms()
    still = [n for n, x in enumerate(terms) if x.extent == 1]
    moving = [n for n, x in enumerate(terms) if x.extent > 1]
    orders = [(*still, *order) for order in itertools.permutations(moving)]
    nested = [(n, n + 1) for n, x in enumerate(terms) if x.part == "outer"]
    return tuple(o for o in orders if all(b not in o or a not in o or o.index(a) < o.index(b) for a, b in nested))


def foldable(c: Contraction, folding: Folding, term: Term) -> bool:
    """Whether an instruction can fold the turns of a loop of the sum: whole blocks, or all of the axis with zeros."""
    if term.axis != folding.axis:
        return False
    if c.reduce[term.axis].extent == folding.extent:
        return term.extent % folding.dot.extent == 0
    return not term.part or term.extent == folding.dot.extent


def remainder(folding: Folding, term: Term) -> int:
    """Terms in the last block of the axis that is folded, where that is not full; those that are added are terms."""
    return folding.extent % term.extent if term.part else 0


def folded(c: Contraction, folding: Folding, term: Term, depth: int = 0) -> int:
    """Of the turns of a loop of the sum, the innermost, those that one instruction folds; 0 where it cannot.

    All do as many: groups of neighbours divide the turns, zeros that are added included.

    Args:
        depth: elements of a part of the sum along its longest axis; 0 where it has none.
    """
    a = c.reduce[term.axis]
    whole = a.block < 2 or a.extent % a.block == 0 or a.block >= a.extent
    if not foldable(c, folding, term) or (folding.dot.tiled and not whole):
        return 0
    turns = term.extent if term.part or a.extent == folding.extent else folding.extent
    turns = depth if depth and term.axis == c.deep and not term.part else turns
    groups = turns // folding.dot.extent
    return folding.dot.extent * max(n for n in range(1, folding.dot.groups + 1) if groups % n == 0)


def long(axes: tuple[Axis, ...]) -> tuple[int, ...]:
    """Numbers of the axes with more than one element."""
    return tuple(n for n, a in enumerate(axes) if a.extent > 1)
