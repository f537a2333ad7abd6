"""Which extents of a part's inputs data decides, by what runs have shown, and what they are in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

import numpy as np

from autotune.compiler.value_forms import digest, is_tensor

if TYPE_CHECKING:
    from autotune.graph.host import HostValue

MOST_ELEMENTS = 8
"""Of a list of integers that may tell extents."""

Shape = tuple[int, ...]
Pattern = tuple[Union[int, str], ...]


@dataclass(frozen=True, slots=True)
class Form:
    """What a part is made for in a run.

    Attributes:
        shapes: of its inputs that are tensors of numbers.
        values: digests of those inputs for whose values it is made.
        elements: what those of them hold that are short lists of integers.
    """

    shapes: Mapping[str, Shape]
    values: Mapping[str, bytes]
    elements: Mapping[str, Shape]

    @staticmethod
    def of(values: Mapping[str, HostValue], decisive: Sequence[str]) -> Form:
        arrays = {name: value for name, value in values.items() if is_tensor(value)}
        short = {
            name: tuple(int(n) for n in arrays[name].reshape(-1))
            for name in decisive
            if name in arrays and arrays[name].dtype.kind == "i" and arrays[name].size <= MOST_ELEMENTS
        }
        shapes = {name: array.shape for name, array in arrays.items()}
        return Form(shapes, {name: digest(values[name]) for name in decisive}, short)

    def unlike(self, other: Form) -> frozenset[str]:
        """Names of the inputs by which two runs differ."""
        names = self.shapes.keys() | other.shapes.keys()
        shapes = {name for name in names if self.shapes.get(name) != other.shapes.get(name)}
        names = self.values.keys() | other.values.keys()
        return frozenset(shapes.union(name for name in names if self.values.get(name) != other.values.get(name)))


@dataclass(frozen=True, eq=False)
class OpenForm:
    """What the forms of several runs have in common. Nothing rests on a guess: a run either fits or it does not.

    Attributes:
        dims: of the inputs of which one differs between runs; symbols where they differ, the same one where they are
            always equal.
        elements: of the lists of integers that tell such extents, in the same way.
    """

    dims: Mapping[str, Pattern]
    elements: Mapping[str, Pattern]

    @staticmethod
    def of(forms: Sequence[Form]) -> OpenForm | None:
        """None where nothing differs, and where ranks or names do."""
        first = forms[0]
        if any(form.shapes.keys() != first.shapes.keys() for form in forms):
            return None
        symbols: dict[tuple[int, ...], str] = {}

        def pattern(found: Sequence[Shape], new: bool) -> Pattern | None:
            if len({len(one) for one in found}) > 1:
                return None
            places: list[int | str] = []
            for met in zip(*found):
                if len(set(met)) == 1:
                    places.append(met[0])
                elif met in symbols or new:
                    places.append(symbols.setdefault(met, f"data{len(symbols)}"))
                else:
                    return None
            return tuple(places)

        dims: dict[str, Pattern] = {}
        for name in first.shapes:
            found = pattern([form.shapes[name] for form in forms], True)
            if found is None:
                return None
            if any(isinstance(extent, str) for extent in found):
                dims[name] = found
        elements: dict[str, Pattern] = {}
        for name in first.elements:
            told = pattern([form.elements.get(name, ()) for form in forms], False)
            if told is not None and any(isinstance(extent, str) for extent in told):
                elements[name] = told
        return OpenForm(dims, elements) if dims else None

    def extents(self, values: Mapping[str, HostValue]) -> dict[str, int] | None:
        """What the symbols are in a run; None where it does not fit."""
        found: dict[str, int] = {}
        for name, pattern in self.dims.items():
            value = values[name]
            if not isinstance(value, np.ndarray) or not fits(pattern, value.shape, found):
                return None
        for name, pattern in self.elements.items():
            value = values[name]
            if not isinstance(value, np.ndarray) or not fits(pattern, value.reshape(-1).tolist(), found):
                return None
        return found

    def extents_of(self, form: Form) -> dict[str, int]:
        """The same of a run that it was made from."""
        found: dict[str, int] = {}
        for name, pattern in self.dims.items():
            fits(pattern, form.shapes[name], found)
        return found


def fits(pattern: Pattern, given: Sequence[int], found: dict[str, int]) -> bool:
    """Whether these are such extents; those of symbols are added."""
    if len(pattern) != len(given):
        return False
    for place, extent in zip(pattern, given):
        if isinstance(place, str):
            if found.setdefault(place, extent) != extent:
                return False
        elif place != extent:
            return False
    return True
