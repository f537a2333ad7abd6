"""A command is a function, or a group: a command with commands of its own, such as `autotune db`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """`commands` by name; `help` is one line."""

    help: str
    commands: Mapping[str, Callable[..., None]]


Command = Callable[..., None] | Group
