"""The version of the installed distribution."""

from __future__ import annotations

DISTRIBUTION = "autotune-compiler"


def installed_version() -> str | None:
    """None in a checkout that is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and every command imports this file

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return None
