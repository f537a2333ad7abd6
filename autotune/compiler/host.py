"""Host operators at run time: compiled code where there is some, with the same results as `autotune.graph.host`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.moved import MOVES, move_strings
from autotune.graph.host import HostFunction, HostNode, HostValue, Suppression, run_host, scalar_nonzero
from autotune.graph.ir import Array
from autotune.runtime.boxes import keep_boxes
from autotune.runtime.nonzero import nonzero


def run_on_host(node: NodeAttributes, values: Sequence[HostValue]) -> Sequence[HostValue]:
    """`run_host`, by compiled code where possible; strings are moved."""
    if node.op in MOVES and any(isinstance(value, np.ndarray) and value.dtype == object for value in values):
        return move_strings(node, values)
    return run_host(node, values, _COMPILED)


def _non_max_suppression(node: HostNode) -> tuple[Array]:
    asked = Suppression.of(node)
    return (keep_boxes(asked.boxes, asked.scores, asked.limit, asked.overlap, asked.least, asked.centred),)


def _nonzero(node: HostNode) -> Sequence[HostValue]:
    x = node.array(0)
    return (nonzero(x),) if x.ndim else scalar_nonzero(x)


_COMPILED: Mapping[str, HostFunction] = {"NonMaxSuppression": _non_max_suppression, "NonZero": _nonzero}
