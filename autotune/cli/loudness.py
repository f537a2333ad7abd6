"""How much a command says beside its results: `--quiet` and `--verbose`, the level of the logger `autotune`."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes: results and errors alone.")]
VerboseOption = Annotated[
    int, typer.Option("--verbose", "-v", count=True, help="Say on stderr what takes time; twice: in detail.")
]
_DEFAULTS: dict[str, tuple[Any, object]] = {"quiet": (QuietOption, False), "verbose": (VerboseOption, 0)}


def loud(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with the two options after its own."""

    @functools.wraps(command)
    def run(*, quiet: bool, verbose: int, **arguments: object) -> None:
        if quiet and verbose:
            raise typer.BadParameter("--quiet and --verbose exclude each other: give one of them")
        with _saying(logging.ERROR if quiet else {0: None, 1: logging.INFO}.get(verbose, logging.DEBUG)):
            command(**arguments)

    declared = inspect.signature(command, eval_str=True)
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in _DEFAULTS.items()
    ]
    run.__signature__ = declared.replace(parameters=[*declared.parameters.values(), *more])  # type: ignore[attr-defined]
    run.__annotations__ = {**command.__annotations__, **{name: kind for name, (kind, _) in _DEFAULTS.items()}}
    return run


def quiet() -> bool:
    """Whether notes and progress are unwanted."""
    return not _logger().isEnabledFor(logging.WARNING)


def note(text: str) -> None:
    """A line beside the results."""
    if not quiet():
        print(f"note: {text}", file=sys.stderr)


class _Stderr(logging.Handler):
    """Writes to what is stderr at the time: a progress display takes its place, so that lines come out above it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


@contextmanager
def _saying(level: int | None) -> Iterator[None]:
    """Log from this level on while the context lasts; None: as it is set, warnings as plain lines."""
    if level is None:
        yield
        return
    logger = _logger()
    before, handler = logger.level, _Stderr()
    handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(name)s: %(message)s", "%H:%M:%S"))
    logger.setLevel(level)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def _logger() -> logging.Logger:
    return logging.getLogger("autotune")
