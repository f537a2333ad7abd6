"""What a loop's next turn reads, asked for a little at a time while this turn reads its own part again and again.

Panels of weights are read once from memory and then, tile after tile, from a cache. Asked for just before their use,
the first tile waits for memory, which is slower than it multiplies, while memory rests during all others. So requests
for the next panels are spread over all turns that work on these, and go through several parts of them at a time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from autotune.core import LINE
from autotune.lower.ir import Buffer, For, Load, Prefetch, Stmt, Store, body_of, expressions, statements, with_body
from autotune.tensor.linear import Linear

STREAMS = range(4, 9)
"""Places that a turn asks for lines at, where it asks for so many: a core fetches ahead at each of them, but only so
far, which of one alone is less than memory gives."""

READ_AGAIN = 2
"""How often a turn must read its part, on the whole: what is read once is asked for by who reads it."""


@dataclass(frozen=True, slots=True)
class _Asking:
    """A request for what comes, and the loops around it within the one whose next turn reads it, outermost first.

    Attributes:
        once: elements that are read behind the request each time.
        place: of the element that it asks for, from the start of its buffer: everything else is asked of that.
    """

    request: Prefetch
    loops: tuple[For, ...]
    once: int
    place: Linear

    @property
    def turns(self) -> int:
        return math.prod(loop.extent for loop in self.loops)

    @property
    def moving(self) -> tuple[For, ...]:
        """The loops that go from element to element."""
        return tuple(loop for loop in self.loops if loop.extent > 1 and self.step(loop.var))

    @property
    def part(self) -> int:
        """Elements that the turns read, each once; those that lie apart and are read behind one request, too."""
        each = max(min((abs(self.step(loop.var)) for loop in self.moving), default=0), self.once)
        return each * math.prod(loop.extent for loop in self.moving)

    @property
    def read(self) -> int:
        """The same, each as often as it is read."""
        return self.part * self.turns // math.prod(loop.extent for loop in self.moving)

    @property
    def start(self) -> Linear:
        """The element that the loops begin with."""
        start = self.place
        for loop in self.loops:
            start = start + (Linear.var(loop.var) * -1 + loop.begin) * self.step(loop.var)
        return start

    def step(self, variable: str) -> int:
        """How far the element moves in a turn of a loop; 0 if not at all, or not evenly."""
        return self.place.terms.get(variable, 0)

    def spread(self, start: Linear, part: int, before: int, each: int) -> tuple[Stmt, ...]:
        """The requests of a turn: from several places on, of which each goes on where it was in the turn before.

        Args:
            start: the first element of all that is asked for; `part`: how many these are.
            before: turns of other loops that come first; `each`: elements that are asked for in a turn.
        """
        here, size = Linear(before), 1
        for loop in reversed(self.loops):
            here = here + (Linear.var(loop.var) - loop.begin) * size
            size *= loop.extent
        line = LINE // self.request.buffer.dtype.bytes
        many = -(-each // line)
        streams = min((n for n in STREAMS if n <= many), key=lambda n: -many % n, default=many)
        lines, apart = -(-many // streams), -(-part // (streams * line)) * line
        first = start + here * (lines * line if streams > 1 else each)
        made = replace(self.request, coming=0, early=True)
        return tuple(made.at(first + n * apart + m * line) for m in range(lines) for n in range(streams))


def onward(now: Prefetch, then: Prefetch, loops: Iterable[tuple[str, int]], distance: int) -> Prefetch:
    """The request for what a loop reads `distance` turns later: `then`, or where memory goes on from its last turn to
    what the loop around it reads next, what lies so much farther on.

    A loop of few turns that skipped those around it would ask for what they come to much later.

    Args:
        now: for what it reads now. `then`: for what it reads when only its own variable is so much larger.
        loops: variable and turns of the loop, and of those around it, innermost first.
    """
    moving = [(now.place.terms.get(variable, 0), turns) for variable, turns in loops if turns > 1]
    if len(moving) < 2:
        return then
    (step, turns), (around, _) = moving[:2]
    place = now.place + step * distance
    return now.at(place) if step and around == step * turns and place != then.place else then


def spread(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The nest with requests for what comes spread over the turns of the loop whose turns read parts again and again,
    one behind the other; without those for which there is no such loop.

    Of several such loops it is the outermost whose parts stay near, since what others come to has been read before;
    where no part does, the innermost. What is far ahead is gone from a cache that is full before it is read.
    """
    if not any(isinstance(stmt, Prefetch) and stmt.coming for stmt in statements(body)):
        return body
    return tuple(_replaced([_visit(stmt) for stmt in body], lambda _: ()))


def _visit(stmt: Stmt) -> Stmt:
    near = _each_settled(stmt, near=True)
    return _each_settled(with_body(near, tuple(map(_visit, body_of(near)))), near=False)


def _each_settled(stmt: Stmt, *, near: bool) -> Stmt:
    if isinstance(stmt, For):
        asking = list(_asking(stmt.body, ()))
        for name in dict.fromkeys(one.request.buffer.name for one in asking):
            stmt = _settled(stmt, [one for one in asking if one.request.buffer.name == name], near)
    return stmt


def _settled(loop: For, asking: Sequence[_Asking], near: bool) -> For:
    """With the requests for one buffer, if turns of this loop read parts of it one by one, only such as stay near or
    any.

    Where a part is longer than the way to the next, loops inside go through memory in larger steps than this one: what
    lies between their steps is read in other turns of this loop, and would be asked for in each of them.
    """
    steps, starts = {one.step(loop.var) for one in asking}, {str(one.start): one.part for one in reversed(asking)}
    part = sum(starts.values())  # those that begin elsewhere read another piece of it
    if not 0 < part <= min(steps) or len(steps) > 1 or sum(one.read for one in asking) < READ_AGAIN * part:
        return loop
    if near and part * asking[0].request.buffer.dtype.bytes > asking[0].request.coming:
        return loop
    each = -(-part // sum(one.turns for one in asking))
    made, before = list[tuple[Stmt, ...]](), 0
    for one in asking:
        made.append(one.spread(asking[0].start + min(steps), part, before, each))
        before += one.turns
    left, buffer = iter(made), asking[0].request.buffer
    body = _replaced(loop.body, lambda request: next(left) if request.buffer == buffer else (request,))
    return loop.around(tuple(body))


def _asking(body: Sequence[Stmt], loops: tuple[For, ...]) -> Iterator[_Asking]:
    for n, stmt in enumerate(body):
        if isinstance(stmt, Prefetch) and stmt.coming:
            own = itertools.takewhile(lambda other: not isinstance(other, Prefetch) or not other.coming, body[n + 1 :])
            yield _Asking(stmt, loops, max((_read(other, stmt.buffer, ()) for other in own), default=0), stmt.place)
        yield from _asking(body_of(stmt), (*loops, stmt) if isinstance(stmt, For) else loops)


def _read(stmt: Stmt, buffer: Buffer, loops: tuple[For, ...]) -> int:
    """Elements of a buffer that a statement reads at most, by its own loops."""
    if isinstance(stmt, Store):
        loads = (e for e in expressions(stmt) if isinstance(e, Load) and e.buffer == buffer)
        terms = (buffer.place(load.indices).terms for load in loads)
        return max((math.prod(loop.extent for loop in loops if moved.get(loop.var)) for moved in terms), default=0)
    around = (*loops, stmt) if isinstance(stmt, For) else loops
    return max((_read(inner, buffer, around) for inner in body_of(stmt)), default=0)


def _replaced(body: Sequence[Stmt], by: Callable[[Prefetch], Sequence[Stmt]]) -> Iterator[Stmt]:
    """Statements, with others for each request for what comes, in the order of `_asking`."""
    for stmt in body:
        if isinstance(stmt, Prefetch) and stmt.coming:
            yield from by(stmt)
        else:
            yield with_body(stmt, tuple(_replaced(body_of(stmt), by)))
