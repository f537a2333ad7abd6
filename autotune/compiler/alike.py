"""Programs of one model read weights as the first of them packed them, where that costs next to nothing.

What a kernel gets untuned depends on its extents, and so would the panels of its weights: a copy of all of them for
every program.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable

from autotune.compiler.choose import Untuned
from autotune.compiler.weights import PackedWeights
from autotune.ops.workload import Workload
from autotune.search_spaces import Config, alike
from autotune.target import Target

GAP = 0.2
"""Of the logarithm of a time that models expect: less than they are wrong by, and than what a copy of the weights takes
of memory and caches is worth. 24 products of BERT with shared panels took 0.77 to 1.09 of their time with panels of
their own, 0.98 in geometric mean, on a Zen 3, whatever was expected."""


def as_packed(untuned: Untuned, weights: PackedWeights, target: Target) -> Untuned:
    """`untuned`, but for products of whose weights other kernels of the model have chosen the layout."""

    def chosen(workload: Workload, strict: bool) -> Config:
        own, kind = untuned(workload, strict), _weights(workload)
        if kind is None:
            return own
        return weights.config(kind, workload, own, functools.partial(_alike, workload, target, own))

    return chosen


def _alike(workload: Workload, target: Target, own: Config, like: Config) -> Config | None:
    return alike(workload, like, target, GAP, own)


def _weights(workload: Workload) -> Hashable:
    """What two workloads have in common whose anchors read the same weights; None where there are none."""
    anchor = workload.anchor
    if anchor is None:
        return None
    types = tuple(
        (n, workload.inputs[i].type)
        for n, i in enumerate(anchor.inputs)
        if i < len(workload.inputs) and workload.inputs[i].constant
    )
    return (anchor.op, anchor.attrs, types) if types else None
