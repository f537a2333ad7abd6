"""The loops that copy an operand into panels: whole vectors, written from end to end."""

from __future__ import annotations

import itertools

from autotune.schedule.editor import Editor
from autotune.search_spaces.library.access import innermost
from autotune.search_spaces.sketch.factor import Factor
from autotune.search_spaces.sketch.folding import Folding
from autotune.tensor.layout import Layout


def of_single_vectors(form: Layout, d: int, lanes: int) -> Layout:
    """Panels of one vector for those of a tile: all that tiles read first, then all that they read second, and so on.

    So a tile reads on at as many places as it has vectors: a core fetches ahead at each of them, but only so far, which
    of one alone is less than memory gives.

    Args:
        d: the dimension that is in blocks of a tile's vectors.
    """
    width, order = form.block(d), list(form.order)
    if width <= lanes:
        return form
    order[order.index((d, width))] = (d, lanes)
    order.insert(order.index((d, 0)), (d, width))
    return Layout(tuple(order), form.halo, form.fill)


def in_order_of_panels(
    edit: Editor, widest: int, folding: Folding | None, factor: Factor, copy: str, form: Layout, d: int
) -> list[str]:
    """Vectors along the innermost dimension of panels, which are written from end to end; the loops around them.

    Read are a few rows at a time then, not a line of each of all rows, which are too many for the nearest cache.

    Args:
        widest: lanes of a vector of sums. `folding`: the instruction that reads the panels, if it folds neighbours.
        copy: the stage. `form`: of the panels; `d`: its innermost dimension.
    """
    s = edit.stage(copy)
    names = [a.name for a in s.stage.axes]
    extents = [s.loop(name).extent for name in names]
    outer, within, ragged = dict(enumerate(names)), dict[int, str](), list[str]()
    for x, block in form.order:
        if block > 1 and x != d:
            outer[x], inside = edit.split(copy, names[x], block)
            within[x] = inside
            ragged += [outer[x]] if extents[x] % block else []
    extent = extents[d]
    lanes = min(widest, form.block(d) if form.block(d) > 1 else widest, 1 << (extent.bit_length() - 1))
    outer[d], lane = edit.split(copy, names[d], lanes)
    ragged += [outer[d]] if extent % lanes else []
    order = [outer[x] for x, block in form.order if not block]
    source = edit.schedule.state.tensor(factor.tensor)
    along = innermost(edit.schedule.state.layout(source), source.shape)
    folds = folding is not None and lanes == folding.dot.extent
    if folds and along in within and edit.extent(copy, within[along]) % widest == 0:
        # What an instruction folds lies in rows of the source: vectors take turns among them.
        within[along], inside = edit.split(copy, within[along], widest)
        edit.order(copy, [*order, *within.values(), inside, lane])
        lane = edit.fuse(copy, [inside, lane])
    elif along is None or along == d or form.block(along) > 1 or extents[along] < lanes:
        edit.order(copy, [*order, *within.values(), lane])
    else:  # rows of the source are loaded whole and turned in registers
        rows, row = edit.split(copy, outer[along], lanes)
        order = [*(x for x in order if x != outer[along]), rows]
        edit.order(copy, [*order, *within.values(), row, lane])
        edit.unroll(copy, [row])
        ragged += [rows] if extents[along] % lanes else []
    edit.unroll(copy, within.values())
    edit.vectorize(copy, lane)
    edit.partition(copy, ragged)
    return order


def share_copy(edit: Editor, copy: str, order: list[str]) -> None:
    """Give threads panels: each reads rows from end to end.

    Args:
        order: the loops around what is copied together, outermost first.
    """
    cut = edit.stage(copy).partitioned
    turning = [x for x in order if edit.extent(copy, x) > 1] or order
    whole = list(itertools.takewhile(lambda x: x not in cut, turning[:-1]))
    edit.order(copy, [*turning, *(x for x in order if x not in turning)])
    edit.parallel(copy, edit.fuse(copy, whole) if whole else turning[0])
