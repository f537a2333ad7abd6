"""Where the user's database and object cache are, and how they are opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Union

from autotune.codegen.object_cache import ObjectCache, default_cache_directory
from autotune.machine import environment
from autotune.records import Database, default_database_path

DatabaseLike = Union[str, "os.PathLike[str]", Database, None, Literal[False]]
"""A file, an open database, None for the user's default file, False for none at all."""


@contextmanager
def reading(database: DatabaseLike) -> Iterator[Database | None]:
    """The database opened for reading; None when there is none yet, or none is wanted.

    Raises:
        DatabaseError: the file named is missing, damaged, newer than this version, or no database.
    """
    if database is False:
        yield None
    elif isinstance(database, Database):
        yield database
    elif database is None:
        path = default_database_path(environment())
        if not path.exists():
            yield None
        else:
            with Database.open(path, read_only=True) as opened:
                yield opened
    else:
        with Database.open(Path(database), read_only=True) as opened:
            yield opened


def object_cache() -> ObjectCache:
    """The user's cache of compiled objects."""
    return ObjectCache(default_cache_directory(environment()))
