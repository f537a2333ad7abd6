"""Padding: how much of a sum reads what exists."""

from __future__ import annotations

import math

import numpy as np

from autotune.cost_model.instructions import ENUMERATED, values_at
from autotune.tensor.linear import Linear, conjunction, nonnegatives
from autotune.tensor.stage import Stage


def share_read(stage: Stage) -> float:
    """Share of a stage's points at which all that it reads exists; 0 where that cannot be told beforehand."""
    extents = {axis.name: axis.extent for axis in stage.all_axes}
    ranges = {name: (0, max(extent - 1, 0)) for name, extent in extents.items()}
    alike: dict[frozenset[str], list[Linear]] = {}  # conditions by the axes that they compare
    for when in dict.fromkeys(read.when for read in stage.reads() if read.when is not None):
        for part in conjunction(when):
            forms = nonnegatives(part, ranges)
            if forms is None:
                return 0.0
            for form in forms:
                alike.setdefault(frozenset(form.variables()), []).append(form)
    names = [name for axes in alike for name in axes]
    if len(set(names)) < len(names):  # an axis in two of them: they do not hold independently of each other
        alike = {frozenset(names): [form for forms in alike.values() for form in forms]}
    return math.prod(_share(forms, {name: extents[name] for name in axes}) for axes, forms in alike.items())


def _share(forms: list[Linear], extents: dict[str, int]) -> float:
    """Share of the points of some axes at which all of these hold; 0 where there are none, or too many to look at."""
    if not 0 < math.prod(extents.values()) <= ENUMERATED:
        return 0.0
    grid = np.meshgrid(*map(np.arange, extents.values()))
    at = {name: numbers.ravel() for name, numbers in zip(extents, grid)}
    return float(np.mean(np.logical_and.reduce([values_at(form, at) >= 0 for form in forms])))
