"""Which larger shapes a model with open dimensions runs in: sizes for padding, pieces for what may be cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from autotune.ops.workload import Workload
from autotune.search_spaces.space.limit import limit, writing
from autotune.target import Target

PADDING = 1 / 16
"""What padding may add to a run."""

READS = 1 / PADDING
"""A piece is large enough when its arithmetic takes so many times as long as reading the weights."""


def padding_cost(workloads: Iterable[Workload], target: Target) -> float:
    """What an element of the padding costs in a program of these kernels, by what any other costs: all of it where a
    kernel has no end, else the zeros that are written."""
    padding = whole = 0.0
    for workload, count in Counter(workloads).items():
        seconds = limit(workload, target).seconds
        whole += count * seconds
        padding += count * (min(writing(workload, target), seconds) if _ends(workload) else seconds)
    return padding / whole if whole else 1.0


def _ends(workload: Workload) -> bool:
    """Whether a kernel ends where the run says."""
    return any(n.op == "until" or (n.op == "attention" and "lengths" in n.attr("extras")) for n in workload.nodes)


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
