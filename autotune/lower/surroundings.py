"""What lies around the data of outputs: halo and block padding, which readers use instead of testing for edges."""

from __future__ import annotations

from autotune.lower.ir import Buffer, For, Operand, Stmt, Store
from autotune.schedule.state import PARALLEL
from autotune.tensor.expr import Const
from autotune.tensor.linear import Linear

SURROUNDINGS = "halo."
"""Loop variables of these nests start so; they touch nothing that the stages write."""

_WIDEST_VECTOR = 32
"""Elements at the end of a row that are written as one vector, at most."""


def surroundings(o: Operand, buffer: Buffer, covered: frozenset[int] = frozenset()) -> list[Stmt]:
    """One nest per slab: before and after each dimension's data, and the rest of each last block.

    Slabs that meet overlap nowhere outside the corner of two block paddings. The stage itself writes the blocks of
    dimensions in `covered` to the end.
    """
    out: list[Stmt] = []
    interior = [_interior(o, n) for n in range(len(buffer.shape))]
    for n, ((d, block), extent) in enumerate(zip(o.layout.order, buffer.shape)):
        first, count = interior[n]
        for start, width in ((0, first), (first + count, extent - first - count)):
            if width and not block:
                # Dimensions before this one need only their interior: their own slabs hold the rest.
                spans = [interior[m] if m < n else (0, buffer.shape[m]) for m in range(len(buffer.shape))]
                spans[n] = (start, width)
                out.append(_fill(o, buffer, spans, n, len(out), o.layout.fill))
        used = o.shape[d] % block if block and d not in covered else 0
        if used:
            spans = list(interior)
            spans[n] = (used, block - used)
            outer = o.layout.order.index((d, 0))
            spans[outer] = (o.shape[d] // block, 1)
            out.append(_fill(o, buffer, spans, n, len(out), 0))
    return out


def _interior(o: Operand, n: int) -> tuple[int, int]:
    """(first, count) of the positions of physical dimension n that hold data."""
    d, block = o.layout.order[n]
    if block:
        return 0, block
    inner = o.layout.block(d)
    return o.layout.halo[d][0], -(-o.shape[d] // inner)


def _fill(o: Operand, buffer: Buffer, spans: list[tuple[int, int]], place: int, number: int, value: int) -> Stmt:
    """Write a value into the box `spans`, one (first, count) per physical dimension."""
    variables = [f"{SURROUNDINGS}{o.name}.{number}.{n}" for n in range(len(spans))]
    indices = tuple(Linear(first, {var: 1}) for var, (first, _) in zip(variables, spans))
    written = Const(float(value) if o.dtype.is_float else value, o.dtype)
    stmt: Stmt = Store(((buffer, indices),), (written,))
    # The longest loop outside of the slab's own dimension is shared among threads (the order does not matter).
    candidates = [n for n in range(len(spans)) if n < max(place, 1)] or [0]
    shared = max(candidates, key=lambda n: spans[n][1])
    for n in reversed(range(len(spans))):
        count = spans[n][1]
        if n != shared:
            vector = n == len(spans) - 1 and 1 < count <= _WIDEST_VECTOR
            stmt = For(variables[n], 0, count, "vectorize" if vector else "", (stmt,))
    return For(variables[shared], 0, spans[shared][1], PARALLEL, (stmt,))
