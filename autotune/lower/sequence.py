"""Nests at the top of a kernel, one after the other: where threads have to meet between them."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.lower.ir import Barrier, For, Once, Stmt
from autotune.lower.surroundings import SURROUNDINGS


def joined(body: Sequence[Stmt], nest: Sequence[Stmt]) -> list[Stmt]:
    """The statements so far and those of the next stage. One thread alone waits for nobody."""
    last, first = next(iter(body[-1:]), None), next(iter(nest), None)
    if isinstance(last, Once) and isinstance(first, Once):
        return [*body[:-1], Once((*last.body, *first.body)), *nest[1:]]
    staged = any(not isinstance(x, For) or not x.var.startswith(SURROUNDINGS) for x in body)
    meets = isinstance(last, For) and last.body[-1:] == (Barrier(),)
    return [*body, *([Barrier()] if staged and not meets else []), *nest]
