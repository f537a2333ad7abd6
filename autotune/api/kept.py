"""Programs of whole models in the object cache, so that a second start neither reads nor compiles the model.

An entry is named by all that decides what a fresh compile would give: the bytes of the model and of the database, the
options, the target, and our own code. Nothing is kept where something else may have a say.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune import machine, packages
from autotune.codegen.digest import begun, bytes_digest, file_digest
from autotune.codegen.object_cache import object_cache
from autotune.cost_model.prior_files import prior_key
from autotune.errors import AutotuneError
from autotune.plugins import extended
from autotune.runtime.artifact import Artifact, from_memory, to_buffers
from autotune.runtime.placement import is_spread, seats_for
from autotune.sources import hash_of_all
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.api.locate import DatabaseLike
    from autotune.graph.frontend import ModelSource

WRITER = "autotune-keep"
"""The name of threads that write entries."""

_LIBRARIES = ("llvmlite", "ml_dtypes", "numpy", "onnx")
"""Packages that decide what a model becomes."""


class KeptProgram:
    """The entry of one model.

    Args:
        options: all else that decides about the program, as for `load`. Nothing is kept where they are more than
            numbers, texts, lists and mappings of them.
    """

    def __init__(self, model: ModelSource, target: Target, database: DatabaseLike, options: Mapping[str, Any]) -> None:
        self.model, self.target, self.database, self.options = model, target, database, options
        self._cache = object_cache()
        self._name = self._find_name()

    def recall(self) -> Artifact | None:
        """The program, where it is there."""
        found = None if self._name is None else self._cache.recall(self._name)
        return None if found is None else from_memory(found)

    def keep(self, artifact: Artifact) -> None:
        """Put the program there, meanwhile; a process that ends waits until it is done."""
        if self._name is not None:
            threading.Thread(target=self._keep, args=(self._name, artifact), name=WRITER).start()

    def _keep(self, name: str, artifact: Artifact) -> None:
        if self._find_name() == name:  # else the model or the database was changed while it was compiled
            self._cache.remember(name, *to_buffers(artifact))

    def _find_name(self) -> str | None:
        """None where the program must not be kept."""
        # Graphs are to be written at every compile; and what is read from a file lies in the memory of one node.
        if extended() or self.options["dump_graph"] or is_spread(seats_for(self.target.num_threads)):
            return None
        with ThreadPoolExecutor(1, "autotune-hash") as beside:  # a large model is hashed while our sources are
            try:
                of_model = begun(beside, partial(_of_model, self.model))
                code, libraries = hash_of_all(), [packages.version(name) for name in _LIBRARIES]
                facts = [
                    prior_key(),
                    self.target.to_json(),
                    json.dumps(self.options, sort_keys=True),
                    _of_database(self.database),
                    of_model(),
                ]
            except (OSError, TypeError, ValueError, AutotuneError):
                return None  # whoever compiles tells what is wrong, if anything
        if code is None or None in libraries:
            return None
        return hashlib.sha256("\n".join(("program", code, *map(str, libraries), *facts)).encode()).hexdigest()


def _of_model(model: ModelSource) -> str:
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes_digest(memoryview(model))
    if not isinstance(model, (str, os.PathLike)) or not os.path.isfile(model):
        raise TypeError("it is no file that will end")
    return file_digest(Path(model))


def _of_database(database: DatabaseLike) -> str:
    """Of a file of SQLite, with what has not been written into it yet."""
    if database is False:
        return "none"
    if database is not None and not isinstance(database, (str, os.PathLike)):
        raise TypeError("an open database may be changed")
    path = machine.user_database(machine.environment()) if database is None else Path(database)
    if database is None and not path.exists():
        return "none"
    found = [file_digest(path)]
    for suffix in ("-wal", "-journal"):
        beside = path.with_name(path.name + suffix)
        if beside.exists() and beside.stat().st_size:  # whoever reads may leave an empty one behind
            found.append(suffix + file_digest(beside))
    return " ".join(found)
