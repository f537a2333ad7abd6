"""Rules of operators that move elements, look them up, write them to caches, or tell extents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from onnx import numpy_helper

from autotune.graph.frontend.buckets.at import SHAPE_ELEMENTS, At, rule
from autotune.graph.frontend.buckets.computed import difference, plus
from autotune.graph.frontend.buckets.facts import ANYTHING, CannotPad, Extent, Fact, Sum, broadcast, reshaped, terms_of

END = 2**31 - 1
"""From here on, the end of a slice is the end of the dimension."""


def _placed(fact: Fact, dims: tuple[Extent, ...], places: dict[int, int]) -> Fact:
    """A fact of moved elements; `places` tells where an axis went."""
    return Fact(dims, fact.bound, frozenset(places[axis] for axis in fact.zeros if axis in places))


@rule("Transpose")
def transpose(at: At) -> list[Fact]:
    dims = at.dims(0)
    order = at.node.attr_ints("perm") or tuple(reversed(range(len(dims))))
    return [_placed(at.fact(0), tuple(dims[n] for n in order), {n: place for place, n in enumerate(order)})]


@rule("Reshape")
def reshape(at: At) -> list[Fact]:
    given, target, dims = at.fact(0), at.fact(1).elements, at.dims(0)
    if given.elements is not None and target is not None and len(target) <= 1:
        return [Fact((len(given.elements),) * len(target), elements=given.elements)]
    found = reshaped(dims, at.shape(1), at.symbol, copies=not at.node.attr_int("allowzero", 0))
    old, new = ([n for n, extent in enumerate(shape) if extent == at.symbol] for shape in (dims, found))
    return [_placed(given, found, dict(zip(old, new)))]


@rule("Flatten")
def flatten(at: At) -> list[Fact]:
    dims = at.dims(0)
    cut = at.axis(at.node.attr_int("axis", 1), len(dims))
    target: list[Extent] = []
    for part in (dims[:cut], dims[cut:]):
        wide = [extent for extent in part if extent != 1]
        if at.symbol in wide and len(wide) > 1:
            raise CannotPad("the open dimension becomes part of another one")
        whole = math.prod(n for n in wide if isinstance(n, int)) if all(isinstance(n, int) for n in wide) else None
        target.append(wide[0] if len(wide) == 1 else whole)
    for n in (0, 1):
        if target[n] == at.symbol and n == 1 and target[0] is None:
            raise CannotPad("the open dimension lies behind an unknown one")
    return [Fact(tuple(target), at.fact(0).bound)]


@rule("Unsqueeze")
def unsqueeze(at: At) -> list[Fact]:
    given, axes = at.fact(0), at.ints(1, "axes")
    dims = at.dims(0)
    if axes is None:
        raise CannotPad("axes are missing")
    rank = len(dims) + len(axes)
    new = {at.axis(axis, rank) for axis in axes}
    kept = [place for place in range(rank) if place not in new]
    found: list[Extent] = [1] * rank
    for place, extent in zip(kept, dims):
        found[place] = extent
    return [replace(_placed(given, tuple(found), dict(enumerate(kept))), elements=given.elements)]


@rule("Squeeze")
def squeeze(at: At) -> list[Fact]:
    given, axes, dims = at.fact(0), at.ints(1, "axes"), at.dims(0)
    if axes is None:
        if not all(isinstance(extent, int) for extent in dims):
            raise CannotPad("which dimensions are 1 depends on the run")
        axes = tuple(n for n, extent in enumerate(dims) if extent == 1)
    gone = {at.axis(axis, len(dims)) for axis in axes}
    if any(dims[n] == at.symbol for n in gone):
        raise CannotPad("the open dimension must be 1")
    kept = [n for n in range(len(dims)) if n not in gone]
    found = _placed(given, tuple(dims[n] for n in kept), {n: place for place, n in enumerate(kept)})
    return [replace(found, elements=given.elements)]


@rule("Expand")
def expand(at: At) -> list[Fact]:
    given, target = at.fact(0), at.shape(1)
    if given.elements is not None and len(given.elements) == 1 and len(target) == 1 and isinstance(target[0], int):
        return [Fact(target, elements=given.elements * target[0])]
    bound = at.largest(0) if at.array(0) is not None or at.fact(0).has(at.symbol) else ANYTHING
    return [Fact(broadcast([at.dims(0), target], at.symbol), bound)]


@rule("Tile")
def tile(at: At) -> list[Fact]:
    given, dims, repeats = at.fact(0), at.dims(0), at.shape(1)
    if len(repeats) != len(dims):
        raise CannotPad("it repeats other dimensions than there are")
    if any(extent == at.symbol and times != 1 for extent, times in zip(dims, repeats)) or at.symbol in repeats:
        raise CannotPad("it repeats the open dimension, or as often as that is long")
    found = [
        extent if times == 1 else extent * times if isinstance(extent, int) and isinstance(times, int) else None
        for extent, times in zip(dims, repeats)
    ]
    return [Fact(tuple(found), given.bound, given.zeros)]


@rule("Concat")
def concat(at: At) -> list[Fact]:
    facts = [fact for fact in at.facts if fact is not None]
    if all(fact.elements is not None for fact in facts):
        elements = tuple(extent for fact in facts for extent in fact.elements or ())
        return [Fact((len(elements),), elements=elements)]
    if len(facts) == 1:
        return facts
    if any(fact.tells(at.symbol) for fact in facts):
        raise CannotPad("it joins the extent of the open dimension to other values")
    shapes = [at.dims(n) for n in range(len(facts))]
    axis = at.axis(at.node.attr_int("axis", 0), len(shapes[0]))
    whole = [n for n, shape in enumerate(shapes) if shape[axis] != 0]  # others are empty: caches before a prompt
    if len(whole) == 1:
        return [facts[whole[0]]]
    more = [shape[axis] for shape in shapes[1:]]
    behind = sum(extent for extent in more if isinstance(extent, int))
    if any(shape[axis] == at.symbol for shape in shapes) and not all(isinstance(extent, int) for extent in more):
        raise CannotPad("it joins parts along the open dimension")
    rest = broadcast([(*shape[:axis], 1, *shape[axis + 1 :]) for shape in shapes], at.symbol)
    if shapes[0][axis] == at.symbol:
        at.mixes = True
        return [Fact((*rest[:axis], at.symbol, *rest[axis + 1 :]), behind=((axis - len(rest), behind),))]
    lengths = [shape[axis] for shape in shapes]
    total = sum(n for n in lengths if isinstance(n, int)) if all(isinstance(n, int) for n in lengths) else None
    return [Fact((*rest[:axis], total, *rest[axis + 1 :]), max(at.largest(n) for n in range(len(facts))))]


@rule("Split")
def split(at: At) -> list[Fact]:
    dims = at.dims(0)
    axis = at.axis(at.node.attr_int("axis", 0), len(dims))
    if dims[axis] == at.symbol or at.fact(0).tells(at.symbol):
        raise CannotPad("it cuts the open dimension")
    sizes = at.ints(1, "split")
    parts: Sequence[Extent] = sizes if sizes is not None else [None] * len(at.node.proto.output)
    if sizes is None and isinstance(extent := dims[axis], int):
        count = len(at.node.proto.output)
        step = -(-extent // count)
        parts = [min(step, extent - n * step) for n in range(count)]
    return [Fact((*dims[:axis], part, *dims[axis + 1 :]), at.fact(0).bound) for part in parts]


@rule("Slice")
def slice_(at: At) -> list[Fact]:
    given, dims = at.fact(0), at.dims(0)
    old = len(at.facts) == 1
    if old:
        starts, ends = at.node.attr_ints("starts"), at.node.attr_ints("ends")
        first: tuple[Extent, ...] | None = starts
        last: tuple[Extent, ...] | None = ends
        axes, steps = at.node.attr_ints("axes"), None
    else:
        first, last = at.fact(1).elements, at.fact(2).elements
        axes, steps = at.ints(3, "axes"), at.ints(4, "steps")
    if first is None or last is None:
        raise CannotPad("the place of a slice is computed")
    if any(isinstance(place, Sum) and at.symbol in terms_of(place) for place in (*first, *last)):
        return [_window(at, first, last, axes, steps)]
    axes = axes if axes is not None else tuple(range(len(first)))
    steps = steps if steps is not None else (1,) * len(first)
    if given.elements is not None and len(first) == len(dims) == 1:
        start, end = first[0], last[0]
        if isinstance(start, int) and isinstance(end, int):
            return [Fact((None,), elements=given.elements[slice(start, end, steps[0])])]
    if given.tells(at.symbol):
        raise CannotPad("it takes the extent of the open dimension out of a list")
    found, behind = list(dims), dict(given.behind)
    for axis, start, end, step in zip(axes, first, last, steps):
        place = at.axis(axis, len(dims))
        whole = start == 0 and step == 1
        if (more := behind.pop(place - len(dims), 0)) and not (whole and end in (-more, at.symbol)):
            raise CannotPad("it takes a part of what lies behind the padding")
        if more:
            at.mixes = True
        elif dims[place] == at.symbol:
            if not whole or not (end == at.symbol or (isinstance(end, int) and end >= END)):
                if len(first) == 1 and step == 1 and isinstance(start, int) and isinstance(end, int):
                    return [_last(at, place, start, end)]
                raise CannotPad("it cuts the open dimension")
        elif end == at.symbol:
            if not whole:
                raise CannotPad("a slice as long as the open dimension does not begin at 0")
            found[place], at.mixes = at.symbol, True
        elif at.symbol in (start, end):
            raise CannotPad("the place of a slice depends on the open dimension")
        else:
            found[place] = None
            if isinstance(start, int) and isinstance(end, int) and isinstance(extent := dims[place], int):
                found[place] = len(range(extent)[slice(start, end, step)])
    longer = found.count(at.symbol) > dims.count(at.symbol)
    bound = ANYTHING if longer and given.has(at.symbol) else at.largest(0)
    return [Fact(tuple(found), bound, behind=tuple(behind.items()))]


def _last(at: At, axis: int, start: int, end: int) -> Fact:
    """A slice of some of the last elements along the open dimension, which every extent has."""
    if at.fact(0).behind or not -at.least <= start < 0 or not (start < end < 0 or end >= END):
        raise CannotPad("it cuts the open dimension")
    places = range(start, min(end, 0))
    at.picked = axis, tuple(plus(at.symbol, n) for n in places), (len(places),)
    at.mixes = True
    dims = at.dims(0)
    return Fact((*dims[:axis], len(places), *dims[axis + 1 :]), at.largest(0))


def _window(
    at: At, first: Sequence[Extent], last: Sequence[Extent], axes: Sequence[int] | None, steps: Sequence[int] | None
) -> Fact:
    """A slice of so many elements, whose place depends on the open dimension: out of a static one, or its own end."""
    dims = at.dims(0)
    axis = at.axis(axes[0] if axes else 0, len(dims))
    extent, end = dims[axis], last[0]
    if extent == at.symbol and isinstance(end, int) and end >= END:
        end = at.symbol
    count = difference(end, first[0])
    begin = difference(first[0], at.symbol)
    counted = not isinstance(begin, int) or begin < -at.least  # from the end: the place may be below 0
    inside = not counted and not at.fact(0).behind and (isinstance(extent, int) or extent == end == at.symbol)
    if len(first) != 1 or (steps or (1,)) != (1,) or not inside or not isinstance(count, int):
        raise CannotPad("the place of a slice is computed")
    if not 0 < count <= SHAPE_ELEMENTS:
        raise CannotPad("a slice at a place of the run is too long")
    at.picked = axis, tuple(plus(first[0], n) for n in range(count)), (count,)
    at.mixes = True
    return Fact((*dims[:axis], count, *dims[axis + 1 :]), at.largest(0))


@rule("Gather")
def gather(at: At) -> list[Fact]:
    given, index, picked = at.fact(0), at.fact(1), at.array(1)
    if given.elements is not None and picked is not None and len(at.dims(0)) == 1:
        chosen = tuple(given.elements[int(n)] for n in picked.reshape(-1))
        return [Fact(picked.shape, elements=chosen)]
    if given.tells(at.symbol) or index.tells(at.symbol):
        raise CannotPad("it looks up with the extent of the open dimension")
    dims, places = at.dims(0), at.dims(1)
    axis = at.axis(at.node.attr_int("axis", 0), len(dims))
    if dims[axis] == at.symbol:
        at.mixes = True
        if picked is not None and not given.behind and 0 < picked.size <= SHAPE_ELEMENTS and np.all(picked < 0):
            if picked.min() < -at.least:
                raise CannotPad("it looks up further before the end than every extent of the open dimension reaches")
            at.picked = axis, tuple(plus(at.symbol, int(n)) for n in picked.reshape(-1)), picked.shape
            return [Fact((*dims[:axis], *places, *dims[axis + 1 :]), at.largest(0))]
        if picked is None or np.any(picked):  # 0 is the first element, which every extent has
            if not at.within(at.names[1], None):
                raise CannotPad("it looks up along the open dimension")
            return [Fact((*dims[:axis], *places, *dims[axis + 1 :]))]
    if index.has(at.symbol) and index.bound != 0.0 and at.counted(at.names[1], None) is None:
        along = tuple(n for n, extent in enumerate(places) if extent == at.symbol)
        at.masks[1] = along, 0.0  # places of the padding may be none of the table's
    table = at.array(0) is not None
    bound = (at.largest(0) if table else ANYTHING) if index.has(at.symbol) else given.bound
    return [Fact((*dims[:axis], *places, *dims[axis + 1 :]), bound)]


@rule("GatherElements")
def gather_elements(at: At) -> list[Fact]:
    """Of each place along the open dimension from the same place of the input."""
    dims, places = at.dims(0), at.dims(1)
    axis = at.axis(at.node.attr_int("axis", 0), len(dims))
    along = [n for n, extent in enumerate(dims) if extent == at.symbol]
    if along != [n for n, extent in enumerate(places) if extent == at.symbol] or axis in along:
        raise CannotPad("it looks up along the open dimension")
    return [Fact(places)]


@rule("ScatterElements")
def scatter_elements(at: At) -> list[Fact]:
    """To each place along the open dimension what comes from the same place."""
    dims = at.dims(0)
    axis = at.axis(at.node.attr_int("axis", 0), len(dims))
    along = [n for n, extent in enumerate(dims) if extent == at.symbol]
    alike = all(along == [n for n, extent in enumerate(at.dims(k)) if extent == at.symbol] for k in (1, 2))
    if not alike or axis in along:
        raise CannotPad("it scatters along the open dimension")
    return [Fact(dims)]


@rule("TopK")
def top_k(at: At) -> list[Fact]:
    dims = at.dims(0)
    axis = at.axis(at.node.attr_int("axis", -1), len(dims))
    if dims[axis] == at.symbol:
        raise CannotPad("it orders what lies along the open dimension")
    count = at.fact(1).elements if at.node.opset >= 10 else (at.node.attr_int("k", 0),)
    if count is None or len(count) != 1 or not isinstance(count[0], int):
        raise CannotPad("how many it gives is computed")
    found = Fact((*dims[:axis], count[0], *dims[axis + 1 :]))
    return [found, found]


@rule("RoiAlign")
def roi_align(at: At) -> list[Fact]:
    """Each region is read out of the same images; padding is the region of all zeros, of the first image."""
    x, regions, images = at.dims(0), at.dims(1), at.dims(2)
    if at.symbol in x or regions[0] != at.symbol or images != (at.symbol,) or at.symbol in regions[1:]:
        raise CannotPad("images and regions do not follow one dimension")
    if at.fact(2).bound != 0.0:
        raise CannotPad("the images of the padding may not be there")
    height, width = (at.node.attr_int(name, 1) for name in ("output_height", "output_width"))
    return [Fact((at.symbol, x[1], height, width))]


@rule("OneHot")
def one_hot(at: At) -> list[Fact]:
    """A row for each index, whatever that is; exporters make a list with one other element of a constant index."""
    index, depth, values = at.array(0), at.fact(1).elements, at.fact(2).elements
    if depth is None or len(depth) != 1 or not isinstance(depth[0], int) or at.node.attr_int("axis", -1) != -1:
        raise CannotPad("the dimension that it adds is computed, or not the last one")
    dims = (*at.dims(0), depth[0])
    known = index is not None and index.size * depth[0] <= SHAPE_ELEMENTS and values is not None and len(values) == 2
    if known and index is not None and values is not None:
        places = [int(n) % depth[0] if -depth[0] <= n < depth[0] else -1 for n in index.reshape(-1)]
        return [Fact(dims, elements=tuple(values[n == place] for place in places for n in range(depth[0])))]
    if at.fact(2).tells(at.symbol):
        raise CannotPad("it makes elements of the extent of the open dimension")
    return [Fact(dims)]


@rule("Trilu")
def trilu(at: At) -> list[Fact]:
    """Places are counted from the front."""
    if len(at.facts) > 1 and at.facts[1] is not None and at.array(1) is None:
        raise CannotPad("the diagonal is no constant")
    if len(at.dims(0)) < 2:
        raise CannotPad("it is no matrix")
    at.mixes = True
    return [Fact(at.dims(0), at.largest(0))]


@rule("GatherND")
def gather_nd(at: At) -> list[Fact]:
    dims, places = at.dims(0), at.dims(1)
    depth = places[-1]
    if at.node.attr_int("batch_dims", 0) or not isinstance(depth, int):
        raise CannotPad("it looks up in parts of its input")
    if not all(at.within(at.names[1], n) for n in range(depth) if dims[n] == at.symbol):
        raise CannotPad("it looks up along the open dimension")
    at.mixes = True
    return [Fact((*places[:-1], *dims[depth:]))]


@rule("ScatterND")
def scatter_nd(at: At) -> list[Fact]:
    """Whose index is its own place along each open dimension writes padding to padding."""
    dims, places = at.dims(0), at.dims(1)
    depth, along = places[-1], [n for n, extent in enumerate(dims) if extent == at.symbol]
    if not isinstance(depth, int) or not all(n < depth for n in along):
        raise CannotPad("it writes along the open dimension")
    counted = [at.counted(at.names[1], n) for n in along]
    if None in counted or set(counted) != {n for n, extent in enumerate(places) if extent == at.symbol}:
        raise CannotPad("it writes along the open dimension")
    at.mixes = True
    return [Fact(dims)]


@rule("TensorScatter")
def tensor_scatter(at: At) -> list[Fact]:
    """New rows at the end of a cache go where its padding begins; zeros go where padding is, which is zeros."""
    dims, update, start = at.dims(0), at.dims(1), at.fact(2)
    axis = at.axis(at.node.attr_int("axis", -2), len(dims))
    rows = update[axis]
    if rows == at.symbol and at.symbol not in dims and at.names[0] in at.roomy:
        at.masks[1] = (axis,), 0.0
        return [Fact(dims)]
    if dims[axis] != at.symbol or rows is None or at.node.attr_string("mode", "linear") != "linear":
        raise CannotPad("it writes to what is no cache")
    if start.elements is None or set(start.elements) != {difference(at.symbol, rows)}:
        raise CannotPad("it writes elsewhere than at the end")
    at.told[2], at.mixes = start, True
    return [Fact(dims, at.fact(0).bound)]


# What tells extents, and what is made of them ------------------------------------------------------------


@rule("Shape")
def shape(at: At) -> list[Fact]:
    dims = at.dims(0)
    end = at.node.attr_int("end", len(dims))
    elements = dims[slice(at.node.attr_int("start", 0), end)]
    return [Fact((len(elements),), elements=elements)]


@rule("ConstantOfShape")
def constant_of_shape(at: At) -> list[Fact]:
    value = next((a.t for a in at.node.proto.attribute if a.name == "value"), None)
    dims = at.shape(0)
    count = dims[0] if len(dims) == 1 else 1
    number = np.zeros(1, np.float32) if value is None else numpy_helper.to_array(value)
    if number.size != 1 or number.dtype.kind not in "iufb":
        return [Fact(dims)]
    bound = abs(float(number.reshape(-1)[0]))
    if len(dims) <= 1 and isinstance(count, int) and count <= SHAPE_ELEMENTS and number.dtype.kind in "iu":
        return [Fact(dims, bound, elements=(int(number.reshape(-1)[0]),) * count)]
    return [Fact(dims, bound if math.isfinite(bound) else ANYTHING)]


@rule("Range")
def range_(at: At) -> list[Fact]:
    start, limit, step = (at.fact(n).elements for n in range(3))
    given = [found[0] for found in (start, limit, step) if found and isinstance(found[0], int)]
    if len(given) == 3 and given[2]:
        found = tuple(range(*given))
        return [Fact((len(found),), elements=found if len(found) <= SHAPE_ELEMENTS else None)]
    if start and limit and step == (1,):
        count = difference(limit[0], start[0])
        if isinstance(count, int) and 0 <= count <= SHAPE_ELEMENTS:
            return [Fact((count,), elements=tuple(plus(start[0], n) for n in range(count)))]
        if isinstance(count, str) and not (at.fact(0).tells(at.symbol) or at.fact(1).tells(at.symbol)):
            return [Fact((count,))]
    if (start, step) != ((0,), (1,)) or limit is None or not isinstance(limit[0], str):
        raise CannotPad("a range that depends on the open dimension is not 0, 1, 2, ...")
    at.mixes |= limit == (at.symbol,)
    return [Fact(limit)]
