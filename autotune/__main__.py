"""`autotune`, and `python -m autotune`: the command line, where the packages that it needs are installed."""

from __future__ import annotations

import signal
import sys

from autotune.errors import IncompleteInstallError
from autotune.install import needing_all


def main() -> None:
    """Run the command that the arguments name."""
    try:
        with needing_all("the command line"):
            from autotune.cli import main as cli
        cli.main()
    except IncompleteInstallError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:  # before a command had begun, or when it had ended: no command tells it
        sys.stderr.write("interrupted\n")
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
