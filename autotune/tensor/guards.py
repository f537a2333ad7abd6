"""What an expression reads, and on which conditions."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.tensor.expr import Expr, Read, Select, children
from autotune.tensor.linear import conjunction


def guarded_reads(e: Expr, known: tuple[Expr, ...] = ()) -> Iterator[tuple[Read, tuple[Expr, ...]]]:
    """Every read, with its own conditions and those of the selections around it that choose it."""
    if isinstance(e, Read):
        yield e, known if e.when is None else (*known, *conjunction(e.when))
    if isinstance(e, Select):
        yield from guarded_reads(e.condition, known)
        yield from guarded_reads(e.a, (*known, *conjunction(e.condition)))
        yield from guarded_reads(e.b, known)
    else:
        for below in children(e):
            yield from guarded_reads(below, known)
