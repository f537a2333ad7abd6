"""Which stages of a kernel are computed where: inlined, inside another's loops, or on their own.

The loops of the stages that are on their own ("roots") carry all others. An axis of a root is a row axis
when every stage below it runs along it in step; one turn of the row loops then needs just one row of each stage.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from autotune.schedule import Schedule
from autotune.schedule.state import StageState, State
from autotune.search_spaces.library.access import CHEAP, EXPENSIVE, innermost, values
from autotune.tensor.expr import Binary, Expr, Read, Unary, Var, walk

MAX_BODY = 400  # nodes of an expression that inlining may make
MAX_LOADS = 4  # of an element that is mixed of mixtures, each of them computed again for every reader


def inline_cheap(schedule: Schedule) -> Schedule:
    """Inline elementwise stages, except where something expensive would be computed more often than once."""
    for name in [s.name for s in schedule.state.stages]:
        state = schedule.state
        s = state.stage(name)
        if s.stage.reducer or s.stage.scan_axis or s.stage.extern or len(s.stage.outputs) > 1 or name in state.outputs:
            continue
        size = sum(1 for _ in values(s.stage.body[0]))
        readers = state.consumers(s)
        if any(c.stage.extern for c in readers):
            continue  # an extern stage reads whole rows of memory
        reads = [r for c in readers for r in c.reads() if r.tensor.name == name]
        longest = max(sum(1 for b in c.stage.body for _ in values(b)) for c in readers)
        again = sum(points(c) for c in readers) > points(s) or len(reads) > 1
        if longest + size * len(reads) <= MAX_BODY and not (again and (costly(s) or _mixed_again(state, s, readers))):
            schedule = schedule.inline(name)
    return schedule


def _mixed_again(state: State, s: StageState, readers: list[StageState]) -> bool:
    """Whether a reader mixes elements that are mixtures themselves, as a resize along two axes does: too many loads, or
    loads that are not of whole vectors."""
    loads = len({(r.tensor.name, r.indices) for r in s.reads()})
    for c in readers if loads > 1 else ():
        reads = {r.indices for r in reads_of(c, s.name)}
        d = innermost(state.layout(c.stage.outputs[-1]), c.stage.outputs[-1].shape)
        if len(reads) > 1 and d is not None:
            moved = [i for indices in reads for i in indices if not isinstance(i, Var)]
            apart = any(isinstance(x, Var) and x.name == c.stage.axes[d].name for i in moved for x in walk(i))
            if apart or loads * len(reads) > MAX_LOADS:
                return True
    return False


def points(s: StageState) -> int:
    """Iterations of all loops of a stage together."""
    return math.prod(a.extent for a in s.stage.all_axes)


def costly(s: StageState) -> bool:
    """Whether an element takes more than a few additions and multiplications."""
    for body in s.stage.body:
        for e in values(body):
            if isinstance(e, Unary) and e.op not in CHEAP:
                return True
            if isinstance(e, Binary) and e.op in EXPENSIVE:
                return True
    return False


@dataclass(frozen=True, slots=True)
class Cone:
    """A root and the stages computed inside its loops, which are in topological order.

    Attributes:
        root: name of the stage with the loops.
        below: names of the stages inside.
        rows: axes of the root along which all of them run in step.
        maps: per stage, its axes that are axes of the root.
    """

    root: str
    below: tuple[str, ...]
    rows: frozenset[str]
    maps: dict[str, dict[str, str]]


def cones(state: State, deep: frozenset[str] = frozenset()) -> list[Cone]:
    """All roots of a kernel, in topological order, each with what it carries.

    Args:
        state: after inlining, before any loop is changed.
        deep: stages that do not restrict the row axes, as they are computed inside all loops of their reader.
    """
    roots = set(state.outputs) & {s.name for s in state.stages}
    for s in state.stages:  # a stage with an output among several
        if any(t.name in state.outputs for t in s.stage.outputs):
            roots.add(s.name)
        if s.stage.extern:  # it reads and writes whole rows, which are in memory
            roots |= {s.name} | {x.name for x in state.stages if s in state.consumers(x)}
    while True:
        owner = _owners(state, roots)
        shared = {name for name, found in owner.items() if len(found) > 1}
        if shared:
            # The last of the shared stages: those that only it reads may still go below it.
            roots.add([s.name for s in state.stages if s.name in shared][-1])
            continue
        found = [_cone(state, s.name, owner, deep) for s in state.stages if s.name in roots]
        homeless = {p for c in found for p in _misplaced(state, c, deep)}
        if not homeless:
            return found
        roots |= homeless


def _owners(state: State, roots: set[str]) -> dict[str, set[str]]:
    """The roots in whose loops each stage would have to be."""
    owner: dict[str, set[str]] = {}
    for s in reversed(state.stages):
        readers = state.consumers(s)
        owner[s.name] = {s.name} if s.name in roots else {o for c in readers for o in owner.get(c.name, set())}
    return owner


def _cone(state: State, root: str, owner: dict[str, set[str]], deep: frozenset[str]) -> Cone:
    below = tuple(s.name for s in state.stages if owner[s.name] == {root} and s.name != root)
    own = state.stage(root).stage
    maps: dict[str, dict[str, str]] = {root: {a.name: a.name for a in own.axes}}
    spoiled: set[str] = set()
    for name in reversed(below):
        s = state.stage(name)
        written = {t.name for t in s.stage.outputs}
        seen: list[set[str | None]] = [set() for _ in s.stage.axes]
        for c in state.consumers(s):
            for r in c.reads():
                if r.tensor.name in written:
                    for d, e in enumerate(r.indices):
                        seen[d].add(maps[c.name].get(e.name) if isinstance(e, Var) else None)
        maps[name] = {}
        for axis, sources in zip(s.stage.axes, seen, strict=True):
            if len(sources) == 1 and None not in sources and axis.name != s.stage.scan_axis:
                maps[name][axis.name] = str(next(iter(sources)))
            else:
                spoiled |= {x for x in sources if x is not None}
    rows = {a.name for a in own.axes if a.name != own.scan_axis} - spoiled
    for name in below:
        if name not in deep:
            mapped = list(maps[name].values())
            rows = {x for x in rows if mapped.count(x) == 1}
    return Cone(root, below, frozenset(rows), maps)


def _misplaced(state: State, cone: Cone, deep: frozenset[str]) -> Iterator[str]:
    """Stages that are better computed on their own than inside the cone's root."""
    root = state.stage(cone.root)
    extents = {a.name: a.extent for a in root.stage.axes}
    turns = math.prod(extents[x] for x in cone.rows)
    few: set[str] = set()  # cheap enough to be done beforehand, once
    for name in cone.below:
        s = state.stage(name)
        lacks = [x for x in extents if extents[x] > 1 and x not in cone.maps[name].values()]
        ready = all(r.tensor.name in few or r.tensor.name not in cone.below for r in s.reads())
        small = points(s) * 8 <= points(root) and lacks and ready
        few |= {name} if small else set()
        alone = not root.stage.axes or (not cone.rows and name not in deep)
        # One thread would compute all of a large stage.
        serial = turns == 1 and name not in deep and points(s) > 1 << 17
        if small or alone or serial:
            yield name


def reads_of(s: StageState, tensor: str) -> list[Read]:
    return [r for r in s.reads() if r.tensor.name == tensor]


def same_point(state: State, reader: str, producer: str) -> bool:
    """`reader` reads `producer` only at its own position, and nobody else reads it."""
    p, c = state.stage(producer), state.stage(reader)
    if [x.name for x in state.consumers(p)] != [reader] or c.stage.reducer or c.stage.scan_axis:
        return False
    own: list[Expr] = [a.var for a in c.stage.axes]
    return all(list(r.indices) == own for t in p.stage.outputs for r in reads_of(c, t.name))
