"""Where the tuning database is when nobody says so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autotune.errors import DatabaseError


def default_database_path(env: Mapping[str, str]) -> Path:
    """`$AUTOTUNE_DB`, else the user's data folder; `env` is passed in because only the command line reads it.

    The folder may not exist yet. DatabaseError when `env` names no home folder either.
    """
    if env.get("AUTOTUNE_DB"):
        return Path(env["AUTOTUNE_DB"])
    # The XDG specification: a relative path is to be ignored.
    if Path(env.get("XDG_DATA_HOME") or ".").is_absolute():
        return Path(env["XDG_DATA_HOME"]) / "autotune" / "tuning.sqlite"
    if env.get("HOME"):
        return Path(env["HOME"]) / ".local" / "share" / "autotune" / "tuning.sqlite"
    raise DatabaseError("no tuning database is named and HOME is not set; give --db FILE or set AUTOTUNE_DB")
