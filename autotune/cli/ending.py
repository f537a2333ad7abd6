"""How a command ends that fails: one line on stderr, an exit code, and with `--json` one object on stdout."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec

import typer
from typer.core import TyperGroup

from autotune.cli.settings import Settings, find_settings
from autotune.cli.text import print_json, printable
from autotune.errors import AutotuneError

Args = ParamSpec("Args")

INTERRUPTED, TERMINATED = 130, 143
_ASIDE = frozenset(["-h", "--help", "--version"])  # what works whatever the settings say
# What typer raises of a wrong call: click's class, or that of the copy of click which later versions hold.
_WRONG_CALL: Any = typer.BadParameter.__bases__[0]


def failure(kind: str, message: str) -> dict[str, object]:
    """What `--json` prints of a failure."""
    return {"error": {"kind": kind, "message": message}}


def ending(command: Callable[Args, None]) -> Callable[Args, None]:
    """The command, with a deliberate error, or no memory left, as one line and exit code 1, Ctrl-C as one and 130."""

    @functools.wraps(command)
    def run(*args: Args.args, **kwargs: Args.kwargs) -> None:
        as_json = bool(kwargs.get("as_json"))
        try:
            command(*args, **kwargs)
        except AutotuneError as error:
            raise _told(error, as_json) from None
        except MemoryError as error:
            message = f"not enough memory: {_line(error)}"
            if as_json:
                print_json(failure("MemoryError", message))
            print(f"error: {message}", file=sys.stderr)
            raise typer.Exit(1) from None
        except KeyboardInterrupt as error:
            raise _interrupted(error, as_json) from None

    return run


def _interrupted(error: KeyboardInterrupt, as_json: bool) -> typer.Exit:
    """Says that it was interrupted, and is how the command ends."""
    message = _line(error) or "interrupted"
    if as_json:
        print_json(failure("KeyboardInterrupt", message))
    print(message, file=sys.stderr)
    return typer.Exit(INTERRUPTED)


def _told(error: AutotuneError, as_json: bool) -> typer.Exit:
    """Prints the error, and is how the command ends."""
    message = _line(error)
    if as_json:
        print_json({**error.values, **failure(type(error).__name__, message)})
    print(f"error: {message}", file=sys.stderr)
    return typer.Exit(1)


def _line(error: BaseException) -> str:
    return printable(" ".join(str(error).split()))


class Root(TyperGroup):
    """All commands: their options have the defaults of the user's settings.

    A wrong call, which no command gets to see, is told as JSON, too, where its words hold `--json`.
    """

    _as_json = False
    _words: tuple[str, ...] = ()
    _settings: Settings | None = None

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        self._as_json, self._words, self._settings = "--json" in args, tuple(args), None
        with self._telling():
            if args and _ASIDE.isdisjoint(args) and not extra.get("resilient_parsing"):  # that is for completion
                try:
                    self._settings = find_settings()
                    if self._settings is not None:
                        extra["default_map"] = self._settings.defaults(self)
                except AutotuneError as error:
                    raise _told(error, self._as_json) from None
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        with self._telling():
            return super().invoke(ctx)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except _WRONG_CALL as error:
            spellings = getattr(getattr(error, "param", None), "opts", ())
            if (
                self._settings is not None
                and spellings
                and not any(word.startswith(tuple(spellings)) for word in self._words)
            ):
                error.message = f"{error.message} ({self._settings.path})"
            if self._as_json:
                print_json(failure("UsageError", error.format_message()))
            raise
        except KeyboardInterrupt as error:  # before the command itself began, which typer would not tell
            raise _interrupted(error, self._as_json) from None
