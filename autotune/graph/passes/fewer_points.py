"""Winograd's tiles become smaller where their rounding errors would add up to too much.

requires: runs behind all passes that change convolutions.
ensures: errors of a program whose convolutions are computed by the tiles that multiply the least are no more than
`MOST` times those of plain sums, as far as fewer `points` can see to it: those give way that lose the fewest
multiplications by it. Nothing changes where they are anyway.

Whatever machine it is for, and whatever records there are: a model's kernels stay what they are when it is tuned.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.sweep import Sweep
from autotune.ops import winograd
from autotune.ops.conv import MOST_POINTS, Conv
from autotune.ops.winograd import OPERATORS, TILES, applies, edges, multiplications
from autotune.tensor.dtype import DType
from autotune.tensor.rounding import sum_error

MOST = 4
"""Times the errors of plain sums, which are about those of other engines."""
FEWEST_POINTS = 6
"""Of tiles of 4 x 4, which amplify less than five times."""
VECTOR = 8
"""Channels that fill a vector of the narrowest kind; fewer are summed up as they are."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """By which tiles a convolution is computed, presumably: its error's square, and multiplications."""

    error: float
    work: int


def fewer_points(graph: Graph) -> Graph:
    """`conv2d(x, w)` --> `conv2d(x, w, points=7)`."""
    sizes = {node.name: size for node in graph.nodes if (size := _size(graph, node)) is not None}
    chosen = {name: choice for name, size in sizes.items() if (choice := _chosen(size, MOST_POINTS)) is not None}
    if not chosen:
        return graph
    points = dict.fromkeys(chosen, MOST_POINTS)
    plain = sum(map(_plain, sizes.values())) + sum(_product(graph, node) for node in graph.nodes)
    left = plain + sum(choice.error - _plain(sizes[name]) for name, choice in chosen.items()) - MOST**2 * plain
    while left > 0:
        steps = {name: step for name, now in points.items() if (step := _step(sizes[name], now)) is not None}
        if not steps:
            break
        name = max(steps, key=lambda name: _worth(chosen[name], steps[name][1]))
        left -= chosen[name].error - steps[name][1].error
        points[name], chosen[name] = steps[name]
    limited = {name: most for name, most in points.items() if most < MOST_POINTS}
    if not limited:
        return graph
    sweep = Sweep(graph)
    for node in sweep:
        if node.name in limited:
            sweep.replace(node, sweep.emit(node, node.op, node.inputs, **dict(node.attrs), points=limited[node.name]))
        else:
            sweep.keep(node)
    return sweep.result()


def _size(graph: Graph, node: Node) -> Conv | None:
    """Of a convolution of f32 by weights that are transformed when it is compiled."""
    if node.op not in OPERATORS or "points" in dict(node.attrs):
        return None
    x, weight = (graph.values[name] for name in node.inputs[:2])
    if DType(x.dtype) is not DType.f32 or node.inputs[1] not in graph.constants:
        return None
    return Conv.of(node.op, x.shape, weight.shape, dict(node.attrs))


def _product(graph: Graph, node: Node) -> float:
    """The error's square of a matrix product."""
    if node.op != "matmul":
        return 0.0
    shape = graph.values[node.inputs[0]].shape
    return sum_error(max(1, shape[-2 if dict(node.attrs)["trans_a"] else -1])) ** 2


def _plain(size: Conv) -> float:
    """The error's square of the plain sum."""
    return sum_error(max(1, size.c // size.groups * size.taps)) ** 2


def _chosen(size: Conv, points: int) -> _Choice | None:
    """By the tile that multiplies the least, of equal ones what errs least; None where there is none."""
    if size.c % VECTOR or size.k % VECTOR or not min(size.n, size.c):
        return None
    able = [tile for tile in TILES.values() if applies(size, tile) and max(edges(size, tile)) <= points]
    if not able:
        return None
    work, error = min((multiplications(size, tile), winograd.error(size, tile)) for tile in able)
    return _Choice(error**2, work)


def _step(size: Conv, points: int) -> tuple[int, _Choice] | None:
    """The next fewer points that make the error smaller, and what is chosen then; None where there are none."""
    now = _chosen(size, points)
    for fewer in range(points - 1, FEWEST_POINTS - 1, -1):
        then = _chosen(size, fewer)
        if now is not None and then is not None and then.error < now.error:
            return fewer, then
    return None


def _worth(now: _Choice, fewer: _Choice) -> float:
    """Error that smaller tiles spare for each multiplication that they take besides; one, where they take none."""
    return (now.error - fewer.error) / max(1.0, fewer.work - now.work)
