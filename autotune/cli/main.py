"""`autotune`: runs one command, and turns every ending into one line and an exit code.

The commands are listed in `autotune.cli.commands`. Exit codes: 0 done, 1 an `AutotuneError`, 2 wrong usage, 130
interrupted, 143 terminated. A model in the place of a command stands for `autotune quick MODEL`.
"""

from __future__ import annotations

import errno
import inspect
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, NoReturn, get_args

import typer
from typer.core import TyperGroup
from typer.models import ParameterInfo

from autotune.cli.asked import expanded
from autotune.cli.ending import INTERRUPTED, TERMINATED, Root, ending
from autotune.cli.group import Command, Group
from autotune.cli.loudness import loud
from autotune.version import installed_version

SHORT_HELP = 66
"""Letters: what `--help` leaves beside the names of commands in 80 columns."""


def print_version(wanted: bool) -> None:
    """The version of the installed distribution; a checkout that is not installed has none."""
    if wanted:
        print(f"autotune {installed_version() or '(not installed: run `pip install -e .` in the root)'}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Tune and compile ONNX models for this CPU. To begin: autotune MODEL.onnx

    Defaults of options: autotune.toml, or [tool.autotune] of pyproject.toml, here or in a folder above.
    """


def make_app(commands: Mapping[str, Command]) -> typer.Typer:
    """The command line over `commands`."""
    app = _typer(commands, Root)
    app.callback()(options)
    return app


def _typer(commands: Mapping[str, Command], kind: type[TyperGroup] = TyperGroup) -> typer.Typer:
    app = typer.Typer(
        cls=kind,
        no_args_is_help=True,
        add_completion=kind is Root,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name, command in commands.items():
        if isinstance(command, Group):
            app.add_typer(_typer(command.commands), name=name, help=command.help, short_help=command.help.rstrip("."))
        else:
            app.command(name, short_help=short_help(command))(_reading_itself(loud(ending(expanded(command)))))
    return app


def _reading_itself(command: Callable[..., None]) -> Callable[..., None]:
    """The command, whose files typer does not look at: one that cannot be read is refused as any other that is wrong,
    not as a wrong call."""
    for one in inspect.signature(command).parameters.values():
        for mark in get_args(one.annotation)[1:]:
            if isinstance(mark, ParameterInfo):
                mark.readable = False
    return command


def short_help(command: Callable[..., None]) -> str:
    """The first sentence of what it does, as far as a list of commands has room for it."""
    text = " ".join((command.__doc__ or "").split()).partition(". ")[0].rstrip(".")
    for mark in (";", ":", ","):
        text = text if len(text) <= SHORT_HELP else text.rpartition(mark)[0] or text
    return text


def main(args: Sequence[str] | None = None) -> None:
    """Entry point: runs one command and exits the process with its code."""
    with _output(), _terminable():
        try:
            # Imported here, so that Ctrl-C during the imports ends in one line too.
            from autotune.cli.commands import COMMANDS
            from autotune.cli.quick import with_command
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(INTERRUPTED)
        words = with_command(sys.argv[1:] if args is None else args, COMMANDS)
        make_app(COMMANDS)(words, prog_name="autotune")


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: what is done is kept, and told in one line; the exit code is its own."""
    received: list[int] = []

    def interrupt(number: int, frame: object) -> NoReturn:
        received.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # where Python allows no handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except SystemExit as ending:
        if received and ending.code == INTERRUPTED:
            sys.exit(TERMINATED)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _output() -> Iterator[None]:
    """Standard streams that may be closed, of few letters, read by a `head` that has seen enough, or on a full disk."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for as long as the process lasts
        stream = getattr(sys, name)
        few = isinstance(stream, io.TextIOWrapper) and (stream.encoding.lower() != "utf-8" or stream.errors == "strict")
        if few and stream.errors != "backslashreplace":
            stream.reconfigure(errors="replace")  # µs, × and names of files, in a locale that has no letters for them
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # not at the end of the interpreter, which would tell of it in its own words
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC, errno.EDQUOT):
            raise
        if error.errno != errno.EPIPE:
            print(f"error: cannot write {error.filename or 'the output'}: {error.strerror}", file=sys.stderr)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - what is left of the output has nowhere to go
        sys.exit(1)


if __name__ == "__main__":
    main()
