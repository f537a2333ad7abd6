"""Families: workloads that differ in extents only, and how far apart two of them are. For transfer, never for results.

What is fast for a convolution of one batch or image size is a good first guess at another. A family is an anchor with
the dtypes and ranks of its operands and its attributes, as far as these are no numbers: numbers are extents, and
strides, kernels and axes, which say how near two members are.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence

from autotune.ops.workload import AttrScalar, AttrValue, Workload


def family_key(workload: Workload) -> str:
    """16 hex digits that workloads share which differ in extents, other numbers, prologue and epilogue only."""
    part = workload.anchor_part
    data = {
        "inputs": [[entry.type.dtype, len(entry.type.shape), entry.constant] for entry in part.inputs],
        "nodes": [
            [node.op, list(node.inputs), {name: value for name, value in node.attrs if not _is_number(value)}]
            for node in part.nodes
        ],
        "outputs": list(part.outputs),
    }
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def distance(workload: Workload, other: Workload) -> float:
    """How far apart two members of one family are: a doubling of one extent counts 1, so does another attribute."""
    mine, theirs = workload.anchor_part, other.anchor_part
    shapes = [(one.type.shape, two.type.shape) for one, two in zip(mine.inputs, theirs.inputs, strict=True)]
    extents = sum(abs(math.log2(max(a, 1) / max(b, 1))) for pair in shapes for a, b in zip(*pair, strict=True))
    differing = 0
    for node, its in zip(mine.nodes, theirs.nodes, strict=True):
        one, two = dict(node.attrs), dict(its.attrs)
        differing += sum(one.get(name) != two.get(name) for name in one.keys() | two.keys())
    return extents + differing


def _is_number(value: AttrValue) -> bool:
    parts: Sequence[AttrScalar] = value if isinstance(value, tuple) else (value,)
    return all(isinstance(part, (int, float)) and not isinstance(part, bool) for part in parts)
