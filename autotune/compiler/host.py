"""Host operators at run time: compiled code where there is some, with the same results as `autotune.graph.host`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.host import HostFunction, HostNode, Suppression, run_host, scalar_nonzero
from autotune.graph.ir import Array
from autotune.runtime.boxes import keep_boxes
from autotune.runtime.nonzero import nonzero


def run_on_host(node: NodeAttributes, arrays: Sequence[Array | None]) -> Sequence[Array]:
    """`run_host`, by compiled code where possible."""
    return run_host(node, arrays, _COMPILED)


def _non_max_suppression(node: HostNode) -> tuple[Array]:
    asked = Suppression.of(node)
    return (keep_boxes(asked.boxes, asked.scores, asked.limit, asked.overlap, asked.least, asked.centred),)


def _nonzero(node: HostNode) -> Sequence[Array]:
    x = node.array(0)
    return (nonzero(x),) if x.ndim else scalar_nonzero(x)


_COMPILED: Mapping[str, HostFunction] = {"NonMaxSuppression": _non_max_suppression, "NonZero": _nonzero}
