"""What a command is doing, in one line of a terminal that is gone when it is done."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from autotune.cli.loudness import quiet


@contextmanager
def working(text: str) -> Iterator[None]:
    """Says on stderr that the command works, and what the log has to say meanwhile, where a person looks and has not
    asked for the log, or for silence. What a command imports takes a second or more, too.

    Args:
        text: what it does.
    """
    logger = logging.getLogger("autotune")
    if quiet() or logger.isEnabledFor(logging.INFO) or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    # stdout may lead elsewhere, and what is printed there must not come out on stderr
    console = Console(stderr=True, highlight=False)

    def line(said: str) -> Text:
        """What fits beside the spinner, which breaks longer lines."""
        found = Text(said)
        found.truncate(max(1, console.width - 3), overflow="ellipsis")
        return found

    spinner = Spinner("dots", text=line(text))

    class Latest(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno > logging.INFO:
                print(self.format(record), file=sys.stderr)  # which `Live` shows above its line
            elif record.levelno == logging.INFO:
                spinner.update(text=line(f"{text}: {record.getMessage()}"))

    handler, before = Latest(), logger.level
    with Live(spinner, console=console, transient=True, redirect_stdout=False):
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.setLevel(before)
            logger.removeHandler(handler)
