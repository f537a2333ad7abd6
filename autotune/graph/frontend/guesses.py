"""What of a model with open shapes is refused whatever the shapes are.

A node is looked at with guessed dimensions. What is refused for the same reason at several of them, and converted at
none, does not depend on them; that a shape is impossible says nothing, for it was a guess.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from autotune.graph.frontend.checks import check_attributes
from autotune.graph.frontend.inputs import known_types
from autotune.graph.frontend.model import OnnxModel
from autotune.graph.frontend.part import whole
from autotune.graph.frontend.walk import Refused, Walk, refusal

GUESSES = (64, 96, 61)
"""Extents of all open dimensions: two that strides and heads divide, one that is odd, for what fails at even ones."""

AGREEING = 2
"""How many guesses must refuse a node for the same reason: an odd extent is often impossible further up."""


def refuse_at_any_shape(model: OnnxModel) -> None:
    """Do nothing, or refuse what the conversion of a run would refuse for every shape.

    Raises:
        ModelError: a node has an attribute or a number of inputs that its operator has not.
        UnsupportedError: nodes that are not supported whatever the shape, all at once.
    """
    for index, entry in enumerate(model.nodes):
        if entry.proto.domain in ("", "ai.onnx"):
            check_attributes(model.attributes(index))
    found, converted = list[Refused](), set[str]()
    for guess in GUESSES:
        walk = _walked(model, guess)
        if not walk.poisoned:
            return  # as almost always: nothing stands in the way
        found += walk.refused
        converted.update(walk.converted)
    reasons = Counter(one.reason for one in found)
    certain = {one.reason: one for one in found if reasons[one.reason] >= AGREEING and converted.isdisjoint(one.writes)}
    if certain:
        raise refusal([*certain.values()])


def _walked(model: OnnxModel, extent: int) -> Walk:
    """A walk over the model with every open dimension of this extent."""
    inputs = tuple(
        replace(one, dims=one.dims and tuple(dim if isinstance(dim, int) else extent for dim in one.dims))
        for one in model.inputs
    )
    # Nodes that are written out for these extents belong to no table of the model.
    copy = replace(model, inputs=inputs, nodes=[*model.nodes], initializers={**model.initializers}, _expanded={})
    part, held = whole(copy), [one.name for one in inputs if not one.is_tensor and one.dtype]
    walk = Walk(copy, part.inputs, known_types(inputs), {}, {}, held)
    walk.try_all(part.nodes)
    return walk
