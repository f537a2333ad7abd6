"""Traffic: the bytes that a cache lacks while nests run one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from autotune.core import LINE
from autotune.lower.ir import For, Stmt, Store, body_of, loop_ranges
from autotune.lower.regions import Places, Region, touched
from autotune.schedule.state import UNROLL, VECTORIZE
from autotune.tensor.linear import Range, Ranges


class Traffic:
    """What comes from behind a cache, by the usual analysis of nests: what fits stays until it is used again; of what
    does not, all comes again with every turn outside.

    Args:
        body: of one thread.
        nests: its statements, by nest; what is touched by several is to the account of the first.

    Attributes:
        touches: all that the body touches, by buffer.
    """

    def __init__(self, body: Sequence[Stmt], nests: Sequence[Sequence[Stmt]]) -> None:
        self._body, self._count = body, len(nests)
        self._nest = {id(stmt): n for n, stmts in enumerate(nests) for stmt in stmts}
        self._turns: dict[int, int] = {}
        self._places: dict[int, Places] = {}
        self._known: dict[tuple[int, tuple[tuple[str, Range], ...]], dict[str, Region]] = {}
        self.touches = touched(body, {}, self._places)

    def missed(self, size: int, cold: Collection[str]) -> list[float]:
        """Bytes that a cache of so many lacks, by nest.

        Args:
            cold: buffers that it does not hold when they are first touched; the others it does, where there is room for
                all.
        """
        out = [0.0] * self._count
        if _bytes(self.touches) > size:
            self._visit(self._body, {}, 1.0, size, out, None)
        else:
            self._once(self._body, {}, 1.0, out, {}, None, cold)
        return out

    def _visit(
        self, body: Iterable[Stmt], ranges: Ranges, times: float, size: int, out: list[float], nest: int | None
    ) -> None:
        for stmt in body:
            own = self._nest.get(id(stmt), nest)
            if isinstance(stmt, For) and not self._fits(stmt, ranges, size):
                first = {**ranges, stmt.var: (stmt.begin, stmt.begin)}
                self._visit(stmt.body, first, times * stmt.extent, size, out, own)
            elif isinstance(stmt, (For, Store)):
                self._once((stmt,), ranges, times, out, {}, own, None)
            else:
                self._visit(body_of(stmt), ranges, times, size, out, own)

    def _fits(self, loop: For, ranges: Ranges, size: int) -> bool:
        """Whether what one turn needs is there in the next."""
        if loop.mark in (UNROLL, VECTORIZE):
            return True
        if id(loop) not in self._turns:
            first = {**ranges, loop.var: (loop.begin, loop.begin)}
            self._turns[id(loop)] = _bytes(touched(loop.body, first, self._places))
        return self._turns[id(loop)] <= size

    def _once(
        self,
        body: Iterable[Stmt],
        ranges: Ranges,
        times: float,
        out: list[float],
        seen: dict[str, Region],
        nest: int | None,
        only: Collection[str] | None,
    ) -> None:
        """Everything that statements touch comes once."""
        for stmt in body:
            own = self._nest.get(id(stmt), nest)
            if own is None:
                inside = loop_ranges(stmt, ranges) if isinstance(stmt, For) else ranges
                self._once(body_of(stmt), inside, times, out, seen, own, only)
                continue
            for name, region in self._touched(stmt, ranges).items():
                if only is None or name in only:
                    before = seen.get(name)
                    seen[name] = region.joined(before)
                    out[own] += times * (seen[name].lines(LINE) - (before.lines(LINE) if before else 0))

    def _touched(self, stmt: Stmt, ranges: Ranges) -> dict[str, Region]:
        """What a statement touches: every cache is asked about the same statements, in the same turns."""
        key = id(stmt), tuple(ranges.items())
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = touched((stmt,), ranges, self._places)
        return found


def _bytes(regions: Mapping[str, Region]) -> int:
    return sum(region.lines(LINE) for region in regions.values())
