"""What a product reads: how a read moves through its tensor, and how that lies in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.schedule.state import StageState, State
from autotune.search_spaces.library.access import stride
from autotune.tensor.expr import Const, Expr, Read, Var, walk
from autotune.tensor.layout import Layout
from autotune.tensor.linear import Div, Linear, Ranges, to_linear


@dataclass(frozen=True, slots=True)
class Factor:
    """One read of the product.

    Attributes:
        tensor: what is read; `constant`: a weight, packed once and for all.
        bytes: of an element.
        shape: of the tensor.
        steps: per dimension, how far one turn of each axis moves in it (1 for a plain index).
        strides: per axis that it moves along, elements between neighbours in memory; None where it jumps.
        plain: every index is one axis, or parts of a reduce axis and what is in them, each axis once, or the only one:
            the tensor can be packed along any of them.
        guarded: dimensions of which part of what is asked for lies outside and counts as zero.
        starts: per dimension, where the first term of the first element lies; negative in padding.
        rooms: per axis, how many turns of it find memory, whatever the other axes do; of those that jump none.
        runs: per axis, its turns in groups of which none is torn apart by a blocked layout; 0 where no group is.
        even: the axes along which all neighbours lie as far apart as the first two, and in memory.
    """

    tensor: str
    constant: bool
    bytes: int
    shape: tuple[int, ...]
    steps: tuple[tuple[tuple[str, int], ...], ...]
    strides: tuple[tuple[str, int | None], ...]
    plain: bool
    guarded: tuple[int, ...]
    starts: tuple[int, ...]
    rooms: tuple[tuple[str, int], ...]
    runs: tuple[tuple[str, int], ...]
    even: frozenset[str]

    def axes(self) -> frozenset[str]:
        """The axes along which it moves."""
        return frozenset(name for name, _ in self.strides)

    def dimension(self, axis: str) -> int | None:
        """The dimension that an axis moves along, None when there is none or several."""
        found = [d for d, parts in enumerate(self.steps) if any(name == axis for name, _ in parts)]
        return found[0] if len(found) == 1 else None

    def alone(self, axis: str) -> bool:
        """No other axis moves in the dimension that it moves along."""
        return all(len(parts) == 1 for parts in self.steps if axis in dict(parts))

    def stride(self, axis: str) -> int | None:
        """Elements between neighbours along an axis; 0 when it stays in place, None where it jumps."""
        for name, step in self.strides:
            if name == axis:
                return step
        return 0

    def room(self, axis: str) -> int:
        """How many turns of an axis that it moves along find memory."""
        return dict(self.rooms)[axis]


def factor_of(state: State, s: StageState, read: Read, periods: dict[str, int]) -> Factor | None:
    """What a read moves along; None where that is no matter of steps. Jumps are noted in `periods`."""
    ranges = {a.name: (0, max(a.extent - 1, 0)) for a in s.stage.all_axes}
    steps, moving, jumping, guarded, starts, ends = [], set[str](), set[str](), [], [], []
    constant = any(t.name == read.tensor.name and t.constant for t in state.inputs)
    for d, (index, size) in enumerate(zip(read.indices, read.tensor.shape)):
        form = to_linear(index, ranges)
        parts: dict[str, int] = {}
        for term, c in form.terms.items():
            if isinstance(term, str):
                parts[term] = parts.get(term, 0) + c
            elif isinstance(term, Div) and (axis := _one_axis(term.arg)) is not None:
                periods[axis] = math.gcd(periods[axis], term.divisor)
                jumping.add(axis)
            elif constant and isinstance(term, Expr) and (axis := _picking(term, s, ranges)) is not None:
                periods[axis] = 1  # each turn is somewhere else
                parts[axis] = parts.get(axis, 0) + c
            else:
                return None
        steps.append(tuple(parts.items()))
        moving |= set(parts)
        starts.append(form.const)
        low, high = form.range(ranges)
        ends.append(high)
        zero = isinstance(read.otherwise, Const) and read.otherwise.value == 0
        guarded += [d] if read.when is not None and zero and (low < 0 or high >= size) else []
    each = [name for parts in steps for name, _ in parts]
    free = [parts for parts, size in zip(steps, read.tensor.shape) if parts or size > 1]
    dense = all(_dense(s, parts) for parts in free) and len(set(each)) == len(each)
    plain = dense and not jumping and not any(starts) and read.when is None
    # Between its jumps, what jumps stays in place.
    strides = tuple((x, stride(state, s, read, x) if x in moving else 0) for x in sorted(moving | jumping))
    t = read.tensor
    shape = (t.name, constant, t.dtype.bytes, t.shape)
    laid = state.layout(t)
    runs = tuple(
        (x, math.gcd(*(_run(i, ranges, laid.block(d), x) for d, i in enumerate(read.indices)))) for x, _ in strides
    )
    rooms = tuple((x, _room(steps, ends, ranges, state.layout(t).allocated(t.shape), x)) for x, _ in strides)
    blocked = {name for d, parts in enumerate(steps) for name, _ in parts if laid.block(d) > 1}
    even = frozenset(name for name, step in strides if step is not None) - jumping - blocked
    if read.when is not None and not lies_in_memory(read, ranges, laid):
        even -= {v.name for v in walk(read.when) if isinstance(v, Var)}  # along others all or none is there
    return Factor(*shape, tuple(steps), strides, plain, tuple(guarded), tuple(starts), rooms, runs, even)


def lies_in_memory(read: Read, ranges: Ranges, laid: Layout) -> bool:
    """Whether memory has all that is read, with the zeros around it: nothing needs to be asked for each element."""
    spans = [to_linear(index, ranges).range(ranges) for index in read.indices]
    inside = all(low >= 0 and high < size for (low, high), size in zip(spans, read.tensor.shape))
    zero = isinstance(read.otherwise, Const) and read.otherwise.value == 0
    rooms = laid.allocated(read.tensor.shape)
    return inside or (zero and all(low >= lo and high < hi for (low, high), (lo, hi) in zip(spans, rooms)))


def _run(index: Expr, ranges: Ranges, block: int, axis: str) -> int:
    """Neighbours along an axis that one block of a dimension holds, wherever the other axes are; 0 for any number."""
    form = to_linear(index, ranges)
    if block == 1 or axis not in form.terms:
        return 0
    return math.gcd(block, form.const, *(c for term, c in form.terms.items() if term != axis))


def _room(
    steps: list[tuple[tuple[str, int], ...]],
    ends: list[int],
    ranges: Ranges,
    allocated: tuple[tuple[int, int], ...],
    axis: str,
) -> int:
    """Turns of an axis that find memory when all other axes are at their ends (`ends`: with its own last turn)."""
    found, last = [], ranges[axis][1]
    for parts, end, (_, room) in zip(steps, ends, allocated):
        own = sum(step for name, step in parts if name == axis)
        found += [last + 1 + (room - 1 - end) // own] if own > 0 else [last + 1] if own else []
    return min(found, default=0)


def _dense(s: StageState, parts: tuple[tuple[str, int], ...]) -> bool:
    """An index is one axis, or position in a part of a reduce axis behind the parts before it."""
    if len(parts) != 2:
        return len(parts) == 1 and parts[0][1] == 1
    (inner, one), (_, step) = sorted(parts, key=lambda part: part[1])
    return one == 1 and any(a.name == inner and a.extent == step for a in s.stage.reduce_axes)


def _one_axis(form: Linear) -> str | None:
    names = list(form.terms)
    return names[0] if len(names) == 1 and isinstance(names[0], str) and form.const == 0 else None


def _picking(index: Expr, s: StageState, ranges: Ranges) -> str | None:
    """The one axis, which is not summed along, with which an index that is itself read moves; None where others do."""
    moving = {e.name for e in walk(index) if isinstance(e, Var) and ranges[e.name][1] > 0}
    return next(iter(moving)) if len(moving) == 1 and moving <= {a.name for a in s.stage.axes} else None
