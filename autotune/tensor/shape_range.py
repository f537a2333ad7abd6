"""Shapes that runs of a model may have: extents, or ranges of them, and how often they come."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Union

from autotune.arguments import checked
from autotune.errors import InputError, ModelError
from autotune.tensor.declared import Dim, ModelInput, check_given, listed

Extent = Union[int, range]


@checked
@dataclass(frozen=True, slots=True)
class ShapeRange:
    """Shapes of a model's inputs.

    Attributes:
        dims: by name of an input its dimensions, by name of an open dimension its one extent; each a number, or a range
            of such, all of which are equally likely.
        weight: how often they come, beside other shapes.
    """

    dims: Mapping[str, Sequence[Extent]]
    weight: float = 1.0

    def __post_init__(self) -> None:
        check_given(self.dims, (range,))
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise InputError(f"the weight of a shape is a number above 0, not {self.weight:g}")
        for name, dims in self.dims.items():
            if any(isinstance(dim, range) and (not dim or dim.step < 1) for dim in dims):
                raise InputError(f"{name}: a range of extents begins with the smallest, and holds at least one")


def only_shape(ranges: Sequence[ShapeRange]) -> dict[str, tuple[int, ...]] | None:
    """The dimensions of the one shape that there is, nothing where there is none; None where there are several."""
    dims = ranges[0].dims if ranges else {}
    if len(ranges) > 1 or any(isinstance(extent, range) for given in dims.values() for extent in given):
        return None
    return {name: tuple(extent for extent in given if isinstance(extent, int)) for name, given in dims.items()}


def with_symbols(inputs: Sequence[ModelInput]) -> tuple[ModelInput, ...]:
    """The inputs with a symbol for each open dimension that has none.

    Raises:
        ModelError: an input is no tensor of numbers of a known rank.
    """
    found = []
    for declared in inputs:
        if not declared.is_tensor or declared.dims is None:
            raise ModelError(
                f"input '{declared.name}' ({declared.form}) has no dimensions that programs could be made for"
            )
        dims: tuple[Dim, ...] = tuple(f"{declared.name}.{n}" if d is None else d for n, d in enumerate(declared.dims))
        found.append(replace(declared, dims=dims))
    return tuple(found)


def extents_of_range(inputs: Sequence[ModelInput], wanted: ShapeRange) -> dict[str, range]:
    """What a range says of the open dimensions, in the order of the inputs.

    Args:
        inputs: with symbols for all open dimensions.

    Raises:
        ModelError: it names what the model has not, contradicts it, or leaves a dimension open.
    """
    symbols = list(dict.fromkeys(dim for i in inputs for dim in i.dims or () if isinstance(dim, str)))
    names = {declared.name: declared for declared in inputs}
    found: dict[str, range] = {}
    for name, dims in wanted.dims.items():
        declared = (name,) if name in symbols and name not in names else names[name].dims if name in names else None
        if declared is None:
            raise ModelError(
                f"there is no input '{name}'; inputs: {', '.join(names)}"
                + (f"; open: {', '.join(symbols)}" if symbols else "")
            )
        if len(declared) != len(dims):
            raise ModelError(f"'{name}' has {len(declared)} dimensions ({listed(declared)}), and {len(dims)} are given")
        for dim, given in zip(declared, dims):
            extents = given if isinstance(given, range) else range(given, given + 1)
            known = found.setdefault(dim, extents) if isinstance(dim, str) else range(dim or 0, (dim or 0) + 1)
            if known != extents:
                raise ModelError(f"'{name}': {given} contradicts {known[0] if len(known) == 1 else known} for {dim}")
            if extents[0] < 0:
                raise ModelError(f"'{name}': an extent of {extents[0]} is impossible")
    missing = [symbol for symbol in symbols if symbol not in found]
    if missing:
        raise ModelError(f"no extent is given for {listed(missing)}: give --shape {missing[0]}=1..8, or what it is")
    return {symbol: found[symbol] for symbol in symbols}


def combinations(choices: Mapping[str, Sequence[tuple[Sequence[Extent], float]]]) -> list[ShapeRange]:
    """All ways to choose dimensions for each name, the weights of which are multiplied.

    Args:
        choices: by name, dimensions and their weight.
    """
    every = itertools.product(*choices.values())
    return [
        ShapeRange({name: dims for name, (dims, _) in zip(choices, one)}, math.prod(weight for _, weight in one))
        for one in every
    ]
