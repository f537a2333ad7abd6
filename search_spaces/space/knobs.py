"""Knobs: named, typed, ordered lists of values. A tile size, a split, a loop order, a switch.

One class serves every kind, because a knob's kind follows from its values: integers have an order
and near neighbours, tuples of integers are tiles and splits, whose parts do, or orders, whose places are
exchanged; strings and switches are not ordered. The functions below build the usual lists.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from autotune.errors import ConfigError
from autotune.search_spaces.space.config import KnobValue, check_value


@dataclass(frozen=True, slots=True)
class Choice:
    """A knob with explicit values, all of one type, without repetition.

    Args:
        name: the knob's name in configs.
        values: int, str, bool, or tuples of ints of one length.
        default: the value of an untuned kernel; the first value when None.

    Raises:
        ConfigError: no values, repeated or mixed values, or a default that is not among them.
    """

    name: str
    values: tuple[KnobValue, ...]
    default: KnobValue | None = None
    _index: dict[tuple[type, KnobValue], int] = field(init=False, repr=False, compare=False)
    _near: dict[KnobValue, tuple[KnobValue, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = tuple(check_value(self.name, value) for value in self.values)
        if not values:
            raise ConfigError(f"knob {self.name!r} has no values; give it at least one")
        if len({_kind(value) for value in values}) > 1:
            raise ConfigError(f"knob {self.name!r} mixes values of different types: {values}; use one type per knob")
        index = {(type(value), value): position for position, value in enumerate(values)}
        if len(index) < len(values):
            raise ConfigError(f"knob {self.name!r} repeats a value: {values}")
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "default", values[0] if self.default is None else check_value(self.name, self.default))
        object.__setattr__(self, "_index", index)
        self.index(self.default)

    def index(self, value: object) -> int:
        """The position of `value` in `values`; ConfigError when it is not one of them."""
        if isinstance(value, list):
            value = tuple(value)
        try:
            return self._index[(type(value), value)]  # type: ignore[index]
        except (KeyError, TypeError):
            raise ConfigError(f"knob {self.name!r} cannot be {value!r}; its values are {_shown(self.values)}") from None

    def closest(self, value: KnobValue) -> KnobValue | None:
        """The value itself, else the nearest by the logarithms of its numbers; None where no value is like it."""
        if (type(value), value) in self._index:
            return value
        if _kind(value) != _kind(self.values[0]) or isinstance(value, (bool, str)):
            return None  # names and switches have no sizes
        return min(self.values, key=lambda other: _distance(_numbers(value), _numbers(other)))

    def near(self, value: object) -> tuple[KnobValue, ...]:
        """The values one small step away: adjacent integers, tuples that differ by one part's step, by a factor moved
        from one part to another or by two places exchanged, and any other string or switch."""
        here = self.values[self.index(value)]
        if here not in self._near:
            self._near[here] = self._found_near(here)
        return self._near[here]

    def _found_near(self, here: KnobValue) -> tuple[KnobValue, ...]:
        if isinstance(here, tuple):
            return _near_tuples(here, [other for other in self.values if isinstance(other, tuple) and other != here])
        if type(here) is not int:
            return tuple(other for other in self.values if other != here)
        smaller = [other for other in self.values if isinstance(other, int) and other < here]
        larger = [other for other in self.values if isinstance(other, int) and other > here]
        return (*([max(smaller)] if smaller else []), *([min(larger)] if larger else []))

    @property
    def feature_names(self) -> tuple[str, ...]:
        first = self.values[0]
        if isinstance(first, str):
            return tuple(f"{self.name}={value}" for value in self.values)
        if isinstance(first, tuple):
            return tuple(f"{self.name}.{position}" for position in range(len(first)))
        return (self.name,)

    def encode(self, value: KnobValue) -> tuple[float, ...]:
        """Numbers for a model, one per feature name: the number itself, one per part, or one-hot."""
        if isinstance(value, str):
            return tuple(float(other == value) for other in self.values)
        if isinstance(value, tuple):
            return tuple(float(part) for part in value)
        return (float(value),)


def flag(name: str, default: bool = False) -> Choice:
    """A switch."""
    return Choice(name, (False, True), default)


def tile(name: str, extent: int, *, limit: int | None = None, default: int | None = None) -> Choice:
    """A tile size for an axis of `extent`, at most `limit`.

    Sizes that need the same number of tiles are one choice, the smallest, which wastes least in the last tile; so there
    are about 2*sqrt(extent) sizes. A default that is none of them becomes the nearest size below, else the smallest.
    """
    longest = extent if limit is None else min(extent, limit)
    if longest < 1:
        raise ConfigError(f"knob {name!r}: extent and limit must be at least 1, got {longest}")
    smallest: dict[int, int] = {}
    for size in range(1, longest + 1):
        smallest.setdefault(-(-extent // size), size)
    kept = tuple(smallest.values())
    wanted = kept[0] if default is None else max((size for size in kept if size <= default), default=kept[0])
    return Choice(name, kept, wanted)


def _kind(value: KnobValue) -> tuple[type, int]:
    return type(value), len(value) if isinstance(value, tuple) else 0


def _numbers(value: KnobValue) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (int(value),)


def _distance(here: tuple[int, ...], other: tuple[int, ...]) -> float:
    return sum(abs(math.log2(max(a, 1)) - math.log2(max(b, 1))) for a, b in zip(here, other, strict=True))


def _near_tuples(here: tuple[int, ...], others: list[tuple[int, ...]], most: int = 12) -> tuple[KnobValue, ...]:
    """The nearest first, by the distance between logarithms of the parts."""

    def places(other: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(place for place, (a, b) in enumerate(zip(here, other, strict=True)) if a != b)

    others = sorted(others, key=lambda other: (_distance(here, other), other))
    if all(sorted(other) == sorted(here) for other in others):
        exchanged = [other for other in others if len(places(other)) == 2]
        return tuple(exchanged or others[:most])
    nearest: dict[tuple[object, ...], tuple[int, ...]] = {}
    for other in others:
        changed = places(other)
        moved = len(changed) == 2 and math.prod(other) == math.prod(here)
        if len(changed) == 1 or moved:
            # The first in each direction: one part up or down, or a factor from one of two parts to the other.
            nearest.setdefault((*changed, other[changed[0]] > here[changed[0]]), other)
    return tuple(nearest.values()) or tuple(others[:most])


def _shown(values: tuple[KnobValue, ...], most: int = 12) -> str:
    listed = ", ".join(repr(value) for value in values[:most])
    return listed if len(values) <= most else f"{listed}, ... ({len(values)} in all)"
