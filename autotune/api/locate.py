"""Where the user's database is, and how it is opened."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Union

from autotune.errors import DatabaseError
from autotune.machine import environment, user_cache, user_database
from autotune.records import Database, Layer, LayeredDatabase, silent

_log = logging.getLogger(__name__)

OneDatabase = Union[str, "os.PathLike[str]", Database, None, Literal[False]]
"""A file, an open database, None for the user's default file, False for none at all."""


@dataclass(frozen=True, slots=True)
class Layered:
    """A database with the records of others under it; its own come first.

    Attributes:
        database: as elsewhere. A file that does not exist yet has no records.
        layers: folders or URLs with what `autotune db export` put there, the uppermost first. One that cannot be read,
            or not as a whole, is told of in the log, and the rest is used.
    """

    database: OneDatabase = None
    layers: tuple[str, ...] = ()


DatabaseLike = Union[OneDatabase, Layered]
"""One database, or one with layers under it."""


@contextmanager
def reading(database: DatabaseLike, *, tell: bool = True) -> Iterator[Database | None]:
    """The database opened for reading; None when there is none yet, or none is wanted.

    Args:
        tell: of layers that cannot be read; who opens the same ones again for writing is told then.

    Raises:
        DatabaseError: the file named is missing, damaged, newer than this version, or no database.
    """
    with ExitStack() as opened:
        if isinstance(database, Layered):
            one = database.database
            missing = isinstance(one, (str, os.PathLike)) and absent(Path(one))
            top = None if missing else opened.enter_context(reading(one))
            yield _over(top, database.layers, opened, tell)
        elif database is False:
            yield None
        elif isinstance(database, Database):
            yield database
        else:
            path = _path(database)
            missing = database is None and absent(path)
            yield None if missing else opened.enter_context(Database.open(path, read_only=True))


def file_of(database: OneDatabase) -> Path | None:
    """The file that is meant; None where none is wanted, or the database is open already.

    Raises:
        DatabaseError: the default one, which has no place.
    """
    if isinstance(database, Database) or database is False:
        return None
    return _path(database)


def absent(path: Path) -> bool:
    """Whether there is no database in a file: none was made, or a full disk left an empty one."""
    return not path.exists() or (path.is_file() and not path.stat().st_size)


@contextmanager
def writing(database: DatabaseLike) -> Iterator[Database]:
    """The database opened for writing, created if need be; layers under it are for reading.

    Raises:
        DatabaseError: it cannot be written, or none is wanted.
    """
    with ExitStack() as opened:
        if isinstance(database, Layered):
            top = opened.enter_context(writing(database.database))
            yield _over(top, database.layers, opened) or top
        elif database is False:
            raise DatabaseError("a database is needed to keep trials in; give a file, or None for the default one")
        elif isinstance(database, Database):
            yield database
        else:
            path = _path(database)
            yield opened.enter_context(Database.open(path, make_parents=database is None))


def _over(top: Database | None, locations: Sequence[str], opened: ExitStack, tell: bool = True) -> Database | None:
    """The database over those layers that have something."""
    found = [] if top is None else [top]
    for location in locations:
        layer = layer_at(location).open(_say if tell else silent)
        if layer is not None:
            found.append(opened.enter_context(layer))
    return LayeredDatabase(found) if len(found) > 1 else next(iter(found), None)


def _say(line: str) -> None:
    _log.warning("%s", line)


def layer_at(location: str) -> Layer:
    """The layer of a folder or URL, with its cache in the user's cache folder.

    Raises:
        DatabaseError: there is no such folder, because HOME is not set.
    """
    folder = user_cache(environment())
    if folder is None:
        raise DatabaseError("layers need a folder for what was read of them; set HOME or XDG_CACHE_HOME")
    return Layer(location, folder / "layers", _say)


def _path(database: object) -> Path:
    """Of the file named, the user's for None. Raises DatabaseError for what names no file."""
    if database is None:
        return user_database(environment())
    if not isinstance(database, (str, os.PathLike)):
        raise DatabaseError(
            f"a database is a file, a Database, False for none or None for the user's, not {database!r}"
        )
    return Path(database)
