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
    asked for the log, or for silence.

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

    spinner = Spinner("dots", text=Text(text, no_wrap=True, overflow="ellipsis"))

    class Latest(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno > logging.INFO:
                print(self.format(record), file=sys.stderr)  # which `Live` shows above its line
            elif record.levelno == logging.INFO:
                spinner.update(text=Text(f"{text}: {record.getMessage()}", no_wrap=True, overflow="ellipsis"))

    handler, before = Latest(), logger.level
    # stdout may lead elsewhere, and what is printed there must not come out on stderr
    console = Console(stderr=True, highlight=False)
    with Live(spinner, console=console, transient=True, redirect_stdout=False):
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.setLevel(before)
            logger.removeHandler(handler)
