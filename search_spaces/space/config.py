"""Config: one point of a search space, a frozen mapping from knob name to value.

A config is data: it prints as canonical JSON, hashes stably, and together with a workload and a
target it rebuilds a schedule. The entry `template` names the template that understands the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from autotune.errors import ConfigError

KnobValue = int | str | bool | tuple[int, ...]

TEMPLATE = "template"


def check_value(name: str, value: object) -> KnobValue:
    """Returns `value` as a knob value (lists become tuples); ConfigError when it is of no knob's type."""
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (tuple, list)) and all(type(part) is int for part in value):
        return tuple(value)
    raise ConfigError(
        f"knob {name!r} has the value {value!r}; a knob value is an integer, a string, true or false, "
        f"or a list of integers"
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Config(Mapping[str, KnobValue]):
    """Knob values, `template` first and the others sorted by name, so that equal configs are equal bytes."""

    entries: tuple[tuple[str, KnobValue], ...]
    _values: dict[str, KnobValue] = field(init=False)  # of `entries`: searches look at knobs millions of times

    def __post_init__(self) -> None:
        object.__setattr__(self, "_values", dict(self.entries))

    @classmethod
    def of(cls, values: Mapping[str, object] | Iterable[tuple[str, object]] = (), /, **knobs: object) -> Config:
        """Builds a config from a mapping or pairs, and keywords; ConfigError for a value no knob can have."""
        merged = {**(values._values if isinstance(values, Config) else dict(values)), **knobs}
        names = sorted(merged, key=lambda name: (name != TEMPLATE, name))
        return cls(tuple((name, check_value(name, merged[name])) for name in names))

    @classmethod
    def from_json(cls, text: str) -> Config:
        try:
            values = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ConfigError(
                f"a config must be a JSON object, but this is not JSON: {text[:80]!r} ({error})"
            ) from None
        if not isinstance(values, dict):
            raise ConfigError(f'a config must be a JSON object like {{"tile": 4}}, got: {text[:80]!r}')
        return cls.of(values)

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces."""
        return json.dumps(dict(self.entries), sort_keys=True, separators=(",", ":"))

    @property
    def key(self) -> str:
        """16 hex digits of the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    @property
    def template(self) -> str | None:
        """The name of the template that this config belongs to, when it says so."""
        value = self.get(TEMPLATE)
        return value if isinstance(value, str) else None

    def replace(self, **knobs: object) -> Config:
        """A config with these knobs added or changed."""
        checked = {name: check_value(name, value) for name, value in knobs.items()}
        if checked.keys() <= self._values.keys():
            return Config(tuple({**self._values, **checked}.items()))
        if checked.keys() == {TEMPLATE}:
            return Config((*checked.items(), *self.entries))
        return Config.of(self, **checked)

    def without(self, *names: str) -> Config:
        return Config(tuple([entry for entry in self.entries if entry[0] not in names]))

    def get_int(self, name: str) -> int:
        value = self[name]
        if type(value) is not int:
            raise self._wrong_type(name, "an integer")
        return value

    def get_bool(self, name: str) -> bool:
        value = self[name]
        if type(value) is not bool:
            raise self._wrong_type(name, "true or false")
        return value

    def get_str(self, name: str) -> str:
        value = self[name]
        if not isinstance(value, str):
            raise self._wrong_type(name, "a string")
        return value

    def get_ints(self, name: str) -> tuple[int, ...]:
        value = self[name]
        if not isinstance(value, tuple):
            raise self._wrong_type(name, "a list of integers")
        return value

    def _wrong_type(self, name: str, wanted: str) -> ConfigError:
        return ConfigError(f"knob {name!r} must be {wanted}, but the config says {self[name]!r}: {self.to_json()}")

    def __getitem__(self, name: str) -> KnobValue:
        value = self._values.get(name)
        if value is None:
            known = ", ".join(self._values) or "nothing"
            raise ConfigError(f"the config has no knob {name!r}; it has {known}")
        return value

    # Mapping.get and Mapping.__contains__ expect KeyError; a missing knob is a ConfigError here, so both are ours.
    def get(self, name: str, default: KnobValue | None = None) -> KnobValue | None:  # type: ignore[override]
        return self._values.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Config):
            return NotImplemented
        same = self.entries == other.entries
        return same and [*map(type, self._values.values())] == [*map(type, other._values.values())]

    def __hash__(self) -> int:
        return hash(self.entries)

    def __repr__(self) -> str:
        return f"Config({self.to_json()})"
