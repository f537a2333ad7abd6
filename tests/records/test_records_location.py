"""Where the database is when nobody says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import DatabaseError
from autotune.records import default_database_path


@pytest.mark.parametrize(
    "env, path",
    [
        ({"AUTOTUNE_DB": "here.sqlite", "XDG_DATA_HOME": "/data", "HOME": "/home/me"}, "here.sqlite"),
        ({"AUTOTUNE_DB": "", "XDG_DATA_HOME": "/data", "HOME": "/home/me"}, "/data/autotune/tuning.sqlite"),
        ({"XDG_DATA_HOME": "relative", "HOME": "/home/me"}, "/home/me/.local/share/autotune/tuning.sqlite"),
        ({"HOME": "/home/me"}, "/home/me/.local/share/autotune/tuning.sqlite"),
    ],
)
def test_default_database_path(env: dict[str, str], path: str) -> None:
    assert default_database_path(env) == Path(path)


def test_without_a_home_the_user_is_asked() -> None:
    with pytest.raises(DatabaseError, match="give --db FILE or set AUTOTUNE_DB"):
        default_database_path({})
