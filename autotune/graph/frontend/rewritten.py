"""Operators of ONNX Runtime's own that are ONNX's under other names, where the host runs them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
from onnx import helper

from autotune.graph.frontend.node import MICROSOFT

UNIQUE_SINCE = 11
"""The opset since which ONNX has Unique."""


def as_onnx(nodes: Iterable[tuple[onnx.NodeProto, int]]) -> Iterator[tuple[onnx.NodeProto, int]]:
    """The nodes, each com.microsoft.Unique as ONNX's, which can tell where each element is first, too."""
    for proto, opset in nodes:
        if (proto.domain, proto.op_type) != (MICROSOFT, "Unique"):
            yield proto, opset
            continue
        unique, index, counts = [*proto.output, "", "", ""][:3]
        plain = helper.make_node("Unique", proto.input, [unique, "", index, counts], proto.name, sorted=0)
        yield plain, max(opset, UNIQUE_SINCE)
