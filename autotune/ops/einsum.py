"""Einstein summation over any number of operands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import numeric, require, same_dtype
from autotune.ops.precision import rounded, sum_dtype
from autotune.ops.registry import Needed, operator
from autotune.tensor.expr import Expr, cast
from autotune.tensor.stage import Body, Tensor, compute, reduce_axis, sum_


@operator("einsum", operands="data*", equation=Needed.name)
def einsum(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Products of elements, summed over the letters that the result has not: `ij,jk->ik` is a matrix product.

    The equation is explicit, one letter per dimension. A letter may occur twice in an operand (its diagonal), and
    dimensions of extent 1 broadcast. 16-bit floats are summed in f32.
    """
    equation = str(attrs["equation"])
    require(re.fullmatch(r"[A-Za-z]*(,[A-Za-z]*)*->[A-Za-z]*", equation) is not None,
            f"einsum: equation={equation!r} is not explicit, like ij,jk->ik")  # fmt: skip
    operands, result = equation.split("->")
    terms = operands.split(",")
    require(len(terms) == len(inputs), f"einsum: equation={equation} has {len(terms)} operands, got {len(inputs)}")
    dtype = same_dtype("einsum", inputs)
    numeric("einsum", inputs[0])
    extents = _extents(equation, terms, inputs)
    require(len(set(result)) == len(result), f"einsum: equation={equation} names a dimension of the result twice")
    missing = [letter for letter in result if letter not in extents]
    require(not missing, f"einsum: equation={equation}: no operand has {', '.join(missing)}")
    total = sum_dtype(dtype)
    folded = [reduce_axis(extents[letter], letter) for letter in sorted(set(extents) - set(result))]

    def body(*indices: Expr) -> Body:
        at = dict(zip(result, indices, strict=True)) | {axis.name: axis.var for axis in folded}
        product: Expr | None = None
        for term, t in zip(terms, inputs, strict=True):
            own = tuple(at[letter] if n == extents[letter] else 0 for letter, n in zip(term, t.shape, strict=True))
            factor = cast(total, t[own])
            product = factor if product is None else product * factor
        assert product is not None  # there is at least one operand
        return sum_(product, folded) if folded else product

    out = compute([extents[letter] for letter in result], body, "einsum", list(result))
    return rounded(out, inputs[0], "einsum")


def _extents(equation: str, terms: Sequence[str], inputs: Sequence[Tensor]) -> dict[str, int]:
    """Extent of every letter."""
    found: dict[str, int] = {}
    for term, t in zip(terms, inputs, strict=True):
        require(len(term) == len(t.shape), f"einsum: equation={equation}: `{term}` for an operand of shape {t.shape}")
        for letter, n in zip(term, t.shape, strict=True):
            known = found.get(letter, 1)
            require(1 in (n, known) or n == known, f"einsum: equation={equation}: {letter} is {known} and {n}")
            found[letter] = n if known == 1 else known
    return found
