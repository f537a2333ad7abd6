"""Classes with names: a classifier computes numbers of classes, and a map of its own names them on the host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
from onnx import helper

from autotune.graph.frontend.learned.trees import ML
from autotune.graph.frontend.node import OnnxNode, RunTimeValueError, contributed

_NAMES = {
    "TreeEnsembleClassifier": "classlabels_int64s",
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
}
"""Classifiers, and the attribute that holds labels that are numbers."""


@contributed("CastMap", inputs=1, domains=ML)
@contributed("DictVectorizer", inputs=1, domains=ML)
@contributed("ZipMap", inputs=1, domains=ML)
@contributed("CategoryMapper", inputs=1, domains=ML)
def on_the_host(node: OnnxNode) -> str:
    raise RunTimeValueError(f"{node.label} runs on the host")


def with_numbers(nodes: Iterable[tuple[onnx.NodeProto, int]]) -> Iterator[tuple[onnx.NodeProto, int]]:
    """The nodes, each classifier whose classes have names as one that numbers them and a map to the names."""
    for proto, opset in nodes:
        names = next((list(a.strings) for a in proto.attribute if a.name == "classlabels_strings"), [])
        if proto.domain not in ML or proto.op_type not in _NAMES or not names or not proto.output:
            yield proto, opset
            continue
        numbers = onnx.NodeProto()
        numbers.CopyFrom(proto)
        kept = [a for a in proto.attribute if a.name != "classlabels_strings"]
        del numbers.attribute[:]
        numbers.attribute.extend([*kept, helper.make_attribute(_NAMES[proto.op_type], list(range(len(names))))])
        label = proto.output[0]
        numbers.output[0] = f"{label}.number" if label else ""
        yield numbers, opset
        if label:
            yield helper.make_node(
                "LabelEncoder", [numbers.output[0]], [label], name=f"{proto.name or label}.names", domain=ML[0],
                keys_int64s=list(range(len(names))), values_strings=names,
            ), opset  # fmt: skip
