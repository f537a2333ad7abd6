"""What a process has once, whichever thread asks first.

`functools.cache` gives threads that ask at the same time one each, and keeps the last. Others have the addresses of
code that was loaded before: it would be gone under them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def once(make: F) -> F:
    """What a function gives, the same to all who ask. It may be called more often; nobody uses what came late."""
    made: dict[Hashable, Any] = {}

    @functools.wraps(make)
    def found(*given: Hashable) -> Any:
        try:
            return made[given]
        except KeyError:
            return made.setdefault(given, make(*given))

    return cast("F", found)
