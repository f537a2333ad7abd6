"""`autotune`, and `python -m autotune`: the command line, where the packages that it needs are installed."""

from __future__ import annotations

import sys

from autotune.errors import IncompleteInstallError
from autotune.install import needing_all


def main() -> None:
    """Run the command that the arguments name."""
    try:
        with needing_all("the command line"):
            from autotune.cli import main as cli
    except IncompleteInstallError as error:
        sys.exit(f"error: {error}")
    cli.main()


if __name__ == "__main__":
    main()
