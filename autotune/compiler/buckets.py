"""Which larger shapes a model with open dimensions runs in: sizes for padding, pieces for what may be cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from autotune.ops.workload import Workload
from autotune.search_spaces.space.limit import limit, writing
from autotune.target import Target

PADDING = 1 / 16
"""What padding may add to a run."""

LEAST = 0.01
"""What an element of the padding costs at least: one that is not touched is tested for, and a program for more is not
the best one for less."""

READS = 1 / PADDING
"""A piece is large enough when its arithmetic takes so many times as long as reading the weights."""


def padding_cost(workloads: Iterable[Workload], target: Target) -> float:
    """What an element of the padding costs in a program of these kernels, by what any other costs: all of it where a
    kernel has no end, else the zeros that are written, if any are."""
    padding = whole = 0.0
    for workload, count in Counter(workloads).items():
        seconds = limit(workload, target).seconds
        whole += count * seconds
        padding += count * _rest(workload, target, seconds)
    return max(padding / whole, LEAST) if whole else 1.0


def _rest(workload: Workload, target: Target, seconds: float) -> float:
    """Of the seconds of a kernel, those that it takes for what lies behind the end that the run says."""
    untils = [node for node in workload.nodes if node.op == "until"]
    if any(("rest", "any") in node.attrs for node in untils):
        return 0.0
    ends = untils or any(node.op == "attention" and "lengths" in node.attr("extras") for node in workload.nodes)
    return min(writing(workload, target), seconds) if ends else seconds


def padded_size(extent: int, cost: float = 1.0) -> int:
    """The size of the bucket of an extent, 1 or more: so many between a power of two and the next one as it takes.

    Args:
        cost: of what is added, as `padding_cost`.
    """
    steps = 1
    while cost / steps > PADDING:
        steps *= 2
    step = max(1, (1 << (extent - 1).bit_length()) // (2 * steps))
    return -(-extent // step) * step


def power_or_half(extent: int, finer: int) -> int:
    """A power of two from an extent on; from `finer` on, the half between two of them, too."""
    power = 1 << (extent - 1).bit_length()
    half = power // 4 * 3
    return half if 2 * finer <= power and extent <= half else power


def pieces(extent: int, most: int, whole: bool = False) -> list[int]:
    """What an extent is cut into, none larger than `most`, the largest first: powers of two, unless what remains behind
    the largest may stay `whole`."""
    found: list[int] = []
    while extent:
        found.append(min(most, extent if whole else 1 << (extent.bit_length() - 1)))
        extent -= found[-1]
    return found


def enough(arithmetic: float, reading: float) -> int:
    """The power of two of elements along a dimension whose arithmetic hides that weights are read for each piece.

    Args:
        arithmetic: seconds of one element's.
        reading: seconds in which all weights are read.
    """
    wanted = READS * reading / max(arithmetic, 1e-21)
    return 1 << max(0, int(wanted) - 1).bit_length()
