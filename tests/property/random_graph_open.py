"""Shapes that only a run knows: sizes, positions and counts that are inputs, or follow from values."""

from __future__ import annotations

import numpy as np

from tests.property.random_graph import Array, Model, step


def _given(m: Model, *numbers: int) -> str:
    """Numbers known at run time only, as an input or out of one."""
    m.loose = True
    wanted: Array = np.array(numbers, np.int64)
    if m.rng.random() < 0.5:
        return m.input(wanted)
    shift = m.rng.randint(1, 3)
    return m.one("Sub", m.input(wanted + shift), m.ints(shift), keeps=True)


@step(0.4)
def sized_at_run_time(m: Model) -> None:
    x = m.need()
    shape, rank = m.shape(x), m.values[x].ndim
    if not rank or 0 in shape:
        return
    axis = m.rng.randrange(rank)
    kind = m.rng.choice(("Reshape", "Slice", "Tile", "Expand", "Pad", "TopK", "ReduceSum"))
    if kind == "Reshape":
        m.one(kind, x, _given(m, shape[0], -1), keeps=True)
    elif kind == "Slice":
        start = m.rng.randint(0, shape[axis] - 1)
        m.one(kind, x, _given(m, start), _given(m, m.rng.randint(start + 1, shape[axis])), m.ints(axis), m.ints(1),
              keeps=True)  # fmt: skip
    elif kind == "Tile":
        m.one(kind, x, _given(m, *(m.rng.choice((1, 2)) for _ in shape)), keeps=True)
    elif kind == "Expand":
        m.one(kind, x, _given(m, *(n if n > 1 else m.rng.choice((1, 3)) for n in shape)), keeps=True)
    elif kind == "Pad":
        m.one(kind, x, _given(m, *(m.rng.choice((0, 0, 2)) for _ in (*shape, *shape))), keeps=True)
    elif kind == "TopK" and x in m.exact:
        m.add(kind, x, _given(m, m.rng.randint(1, shape[axis])), outputs=2, axis=axis, keeps=True)
    elif kind == "ReduceSum":
        m.one(kind, x, _given(m, axis), keepdims=m.rng.randint(0, 1))


@step(0.4)
def counted(m: Model) -> None:
    """As many elements as some condition has."""
    x = m.need(exact=True)
    rank = m.values[x].ndim
    if not rank:
        return
    m.loose = True
    positive = m.one("Greater", x, m.number(0.0), keeps=True)
    kind = m.rng.choice(("NonZero", "Compress", "chosen", "Range"))
    if kind == "Compress":
        rows = np.random.default_rng(m.rng.getrandbits(32)).random(m.shape(x)[0]) < 0.5
        m.one("Compress", x, m.input(rows), axis=0, keeps=True)
        return
    if kind == "Range":
        count = m.one("Gather", m.one("Shape", x, keeps=True), _given(m, 0), keeps=True)
        limit = m.one("Squeeze", count, m.ints(0), keeps=True)
        zero, one = m.constant(np.array(0)), m.constant(np.array(1))
        y = m.one("Range", zero, limit, one, keeps=True)
        m.one("Cast", y, to=m.float_code, keeps=True)
        return
    if kind == "chosen" and m.rng.random() < 0.5:  # slices, by a mask of the first axes
        extents = m.shape(x)[: m.rng.randint(1, rank)]
        mask = np.random.default_rng(m.rng.getrandbits(32)).random(extents) < 0.5
        positive = m.input(mask) if m.rng.random() < 0.5 else m.constant(mask)
    places = m.one("NonZero", positive, keeps=True)
    if kind == "chosen":
        y = m.one("GatherND", x, m.one("Transpose", places, perm=[1, 0], keeps=True), keeps=True)
        m.one("Relu", y, keeps=True)
