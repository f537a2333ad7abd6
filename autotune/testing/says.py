"""What stands in front of a failed check."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autotune.errors import AutotuneError


@contextmanager
def says(where: str) -> Iterator[None]:
    """Puts in front of an error what it is about."""
    try:
        yield
    except (AssertionError, AutotuneError) as error:
        raise AssertionError(f"{where}: {error}") from error
