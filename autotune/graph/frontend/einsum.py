"""Einsum: pairs of operands become batched matrix products, what is left one sum over products."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.tensor import DType

_PRODUCTS = (DType.f64, DType.f32, DType.f16, DType.bf16, DType.i32, DType.i64, DType.u32, DType.u64)


@dataclass(frozen=True)
class _Term:
    """A value with one letter per dimension."""

    name: str
    letters: str


@converts("Einsum")
def einsum(node: OnnxNode) -> str:
    terms, result = _parse(node)
    while len(terms) > 1 and DType(node.value().dtype) in _PRODUCTS:
        # From left to right: what neither the result nor another operand needs is summed on the way.
        wanted = set(result).union(*(t.letters for t in terms[2:]))
        kept = "".join(x for x in dict.fromkeys(terms[0].letters + terms[1].letters) if x in wanted)
        kept = result if len(terms) == 2 else kept
        terms = [_product(node, terms[0], terms[1], kept), *terms[2:]]
    return _general(node, terms, result).name


def _parse(node: OnnxNode) -> tuple[list[_Term], str]:
    """Operands and result with one letter per dimension: dimensions under an ellipsis get letters of their own."""
    equation = node.attr_string("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    words = left.split(",")
    if not re.fullmatch(r"[A-Za-z.,]*(->[A-Za-z.]*)?", equation) or len(words) != len(node.inputs):
        raise ModelError(f"{node.label}: equation '{equation}' for {len(node.inputs)} operands")
    free = [x for x in string.ascii_uppercase + string.ascii_lowercase if x not in equation]
    longest = 0
    for place, word in enumerate(words):
        plain = word.replace("...", "", 1)
        covered = node.rank(place) - len(plain)
        if "." in plain or covered < 0 or (covered and plain == word):
            raise ModelError(f"{node.label}: '{word}' does not fit an operand of shape {node.shape(place)}")
        longest = max(longest, covered if plain != word else 0)
    if longest > len(free):
        raise ModelError(f"{node.label}: more dimensions than letters")
    spread = "".join(free[:longest])
    if not arrow:
        counted = left.replace("...", "")
        right = "..." * ("..." in left) + "".join(sorted(x for x in set(counted) - {","} if counted.count(x) == 1))
    if "." in right.replace("...", "", 1):
        raise ModelError(f"{node.label}: the result '{right}' is malformed")
    terms = []
    for place, word in enumerate(words):
        covered = node.rank(place) - len(word.replace("...", "", 1))
        terms.append(_Term(node.input(place), word.replace("...", spread[longest - covered :])))
    return terms, right.replace("...", spread)


def _product(node: OnnxNode, a: _Term, b: _Term, kept: str) -> _Term:
    """Two operands as one: a batched matrix product where something is summed over both, else the plain definition."""
    a, b = (_narrowed(node, t, other, kept) for t, other in ((a, b), (b, a)))
    shared = [x for x in a.letters if x in b.letters]
    batch = [x for x in shared if x in kept]
    summed = [x for x in shared if x not in kept]
    rows, columns = ([x for x in t.letters if x not in shared] for t in (a, b))
    if not summed or set(kept) != {*batch, *rows, *columns}:
        return _general(node, [a, b], kept)
    extent = _extents(node, (a, b))
    left = _arranged(node, a, (batch, rows, summed), extent)
    right = _arranged(node, b, (batch, summed, columns), extent)
    result = node.emit("matmul", left, right, trans_a=False, trans_b=False)
    order = "".join((*batch, *rows, *columns))
    return _transposed(node, _Term(node.reshaped(result, [extent[x] for x in order]), order), kept)


def _narrowed(node: OnnxNode, term: _Term, other: _Term, kept: str) -> _Term:
    """The operand with its diagonals taken, its own sums done, and dimensions that broadcast left out."""
    shape = node.builder.values[term.name].shape
    wide = _extents(node, (term, other))
    own = dict.fromkeys(x for x in term.letters if x in kept or x in other.letters)
    if len(own) < len(term.letters):
        term = _general(node, [term], "".join(own))
        shape = node.builder.values[term.name].shape
    stays = [(x, n) for x, n in zip(term.letters, shape) if n == wide[x] or x not in other.letters]
    if len(stays) == len(shape):
        return term
    return _Term(node.reshaped(term.name, [n for _, n in stays]), "".join(x for x, _ in stays))


def _extents(node: OnnxNode, terms: Sequence[_Term]) -> dict[str, int]:
    """Extent of each letter, 1 only where nothing is larger."""
    found: dict[str, int] = {}
    for term in terms:
        for x, n in zip(term.letters, node.builder.values[term.name].shape):
            found[x] = n if found.get(x, 1) == 1 else found[x]
    return found


def _arranged(node: OnnxNode, term: _Term, groups: Sequence[Sequence[str]], extent: dict[str, int]) -> str:
    """The operand with its dimensions in groups, each but the first one dimension."""
    moved = _transposed(node, term, "".join(x for group in groups for x in group))
    first, *others = groups
    return node.reshaped(
        moved.name, (*(extent[x] for x in first), *(math.prod(extent[x] for x in group) for group in others))
    )


def _transposed(node: OnnxNode, term: _Term, order: str) -> _Term:
    return _Term(node.transposed(term.name, [term.letters.index(x) for x in order]), order)


def _general(node: OnnxNode, terms: Sequence[_Term], result: str) -> _Term:
    """Operands as one, by a plain sum over products."""
    if len(terms) == 1 and sorted(terms[0].letters) == sorted(result):
        return _transposed(node, terms[0], result)
    equation = f"{','.join(t.letters for t in terms)}->{result}"
    return _Term(node.emit("einsum", *(t.name for t in terms), equation=equation), result)
