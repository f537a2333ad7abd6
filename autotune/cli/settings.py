"""Defaults of options from a file: autotune.toml, or [tool.autotune] of pyproject.toml, here or in a folder above.

threads = 4             # of every command that has the option
db = "tuning.sqlite"    # beside the file
[tune]                            # of one command
budget = "10m"
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from autotune.cli.options import PLACE
from autotune.errors import InputError

OWN, SHARED = "autotune.toml", "pyproject.toml"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a file says, and where it is."""

    path: Path
    table: Mapping[str, object]

    def defaults(self, root: Any) -> dict[str, Any]:
        """For the commands of `root`, as click takes them (`default_map`): by command, then by parameter.

        Raises:
            InputError: a key is no option and no command, or an option cannot have the value.
        """
        return self._of(root, self.table, {}, "")

    def _of(self, group: Any, table: Mapping[str, object], above: Mapping[str, object], prefix: str) -> dict[str, Any]:
        """
        Args:
            above: what stands outside of the table, for all commands.
            prefix: of the table's keys, for messages.
        """
        tables = {name: value for name, value in table.items() if isinstance(value, dict)}
        plain = {**above, **{name: value for name, value in table.items() if name not in tables}}
        for name in tables:
            if name not in group.commands:
                raise self._unknown(prefix + name, "command")
        for name in table.keys() - tables.keys():
            if not any(name in _options(command) for command in _leaves(group)):
                raise self._unknown(prefix + name, "option")
        found: dict[str, Any] = {}
        for name, command in group.commands.items():
            own = tables.get(name, {})
            if hasattr(command, "commands"):
                found[name] = self._of(command, own, plain, f"{prefix}{name}.")
                continue
            options = _options(command)
            for key in own:
                if key not in options:
                    raise self._unknown(f"{prefix}{name}.{key}", "option")
            given = {key: value for key, value in {**plain, **own}.items() if key in options}
            declared = inspect.signature(command.callback).parameters
            found[name] = {
                options[key].name: self._value(key, options[key], value, _path(declared[options[key].name].annotation))
                for key, value in given.items()
            }
        return found

    def _value(self, key: str, option: Any, value: object, path: bool) -> object:
        """Checked; paths are beside the file; options that repeat may have one value or a list."""
        parts = value if option.multiple and isinstance(value, list) else [value]
        for part in parts:
            if isinstance(part, bool) != bool(option.is_flag) or not isinstance(part, (bool, str, int, float)):
                wanted = "true or false" if option.is_flag else "a text or a number"
                raise InputError(f"{self.path}: {key} is {part!r}; it takes {wanted}")
        if path:
            parts = [str(part) if "://" in str(part) else str(self.path.parent / str(part)) for part in parts]
        return parts if option.multiple else parts[0]

    def _unknown(self, name: str, what: str) -> InputError:
        return InputError(f"{self.path}: {name} is no {what} of autotune; docs/reference/cli.md lists them")


def _path(kind: Any) -> bool:
    """Whether a parameter of this annotation is a path, or several."""
    return kind is Path or kind is PLACE or any(map(_path, get_args(kind)))


def _leaves(group: Any) -> list[Any]:
    """The commands of a group, and of its groups."""
    inner = (_leaves(command) if hasattr(command, "commands") else [command] for command in group.commands.values())
    return [command for commands in inner for command in commands]


def _options(command: Any) -> dict[str, Any]:
    """By their long names, without the dashes."""
    return {
        name.removeprefix("--"): option
        for option in command.params
        for name in option.opts
        if name.startswith("--") and name != "--help"
    }


def find_settings() -> Settings | None:
    """Of the nearest folder that has some, from the current one upwards; a file of our own comes before one that is
    shared. Folders that nobody may look into have none, nor has one that is gone.

    Raises:
        InputError: a file is no TOML, or cannot be read.
    """
    try:
        folder = Path.cwd()
    except OSError:
        return None
    for place in (folder, *folder.parents):
        for name in (OWN, SHARED):
            path = place / name
            if not os.path.isfile(path):  # which says no, too, where nobody may look
                continue
            table = _parsed(path) if name == OWN else _parsed(path).get("tool", {}).get("autotune")
            if table is not None:
                if not isinstance(table, dict):
                    raise InputError(f"{path}: tool.autotune is {table!r}, not a table")
                return Settings(path, table)
    return None


def _parsed(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text) if path.name == OWN or "autotune" in text else {}
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # no TOML, no UTF-8
        raise InputError(f"{path} is no TOML: {error}") from None
