"""The reference page of the command line, from the declarations that `--help` shows.

`python -m autotune.cli.reference > docs/reference/cli.md` writes it; a test fails when the page is behind.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo

from autotune.cli.asked import expanded
from autotune.cli.commands import COMMANDS
from autotune.cli.group import Command, Group

_HEAD = """\
# Command line

Made from the declarations behind `--help`; written anew by `python -m autotune.cli.reference > docs/reference/cli.md`.

| exit code | when |
|---|---|
| 0 | done |
| 1 | refused or failed: one line on stderr says what is wrong, where, and what to do |
| 2 | called wrongly: an unknown command or option, or one without its value |
| 130, 143 | ended by Ctrl-C, by SIGTERM; what was measured is kept |

`--json` prints one JSON document on stdout and nothing else there; progress and notes go to stderr. A command that
fails prints `{"error": {"kind": "ModelError", "message": "..."}}` there, the same line on stderr, and ends with its
usual exit code; `kind` is a class of `autotune.errors`, `UsageError`, `MemoryError` or `KeyboardInterrupt`. Beside
`error` stands what was found: `unsupported` operators, nodes and reasons, `problems` of a database, the trials so far.

Every command takes two options more: `--quiet` (`-q`) prints results and errors alone, no progress and no notes;
`--verbose` (`-v`) tells on stderr, with times, what takes long: passes, building of kernels, packing of weights; `-vv`
tells each of them.

Options have other defaults where a file says so: `autotune.toml`, or `[tool.autotune]` of `pyproject.toml`, in the
current folder or the nearest above that has one. `threads = 4` is for every command with the option,
a table (`[tune]`, `[tool.autotune.tune]`) for one command; names are those of the options without the dashes. What is
typed counts first, then the file, then `$AUTOTUNE_DB`; paths are beside the file; an unknown name is refused.

Tables are as wide as the terminal, or as `COLUMNS` says; into a file or a pipe they are as wide as they need. `-h` is
`--help`; `autotune --install-completion` has the shell complete commands and options.
`autotune --version` and `autotune.__version__` tell the version.
"""
_NAMES = {int: "N", str: "TEXT", Path: "FILE"}


def reference() -> str:
    """The page in Markdown."""
    return _HEAD + "".join(_sections("autotune", COMMANDS, "##"))


def _sections(path: str, commands: Mapping[str, Command], level: str) -> Iterator[str]:
    for name, command in commands.items():
        if isinstance(command, Group):
            yield f"\n{level} `{path} {name}`\n\n{command.help}\n"
            yield from _sections(f"{path} {name}", command.commands, f"{level}#")
        else:
            usage, rows = _parameters(expanded(command))
            text = " ".join((command.__doc__ or "").split())
            yield f"\n{level} `{' '.join([path, name, *usage])}`\n\n{text}\n"
            if rows:
                yield "\n| parameter | meaning |\n|---|---|\n" + "".join(rows)


def _parameters(command: Callable[..., None]) -> tuple[list[str], list[str]]:
    """What must be given, as words of the usage; and one table row per parameter."""
    hints = get_type_hints(command, include_extras=True)
    usage, rows = [], []
    for parameter in inspect.signature(command).parameters.values():
        kind, info, *_ = get_args(hints[parameter.name])
        required = parameter.default is inspect.Parameter.empty
        if isinstance(info, ArgumentInfo):
            shown = info.metavar or parameter.name.upper()
            usage.append(shown if required or shown.startswith("[") else f"[{shown}]")
        else:
            options = _spellings(info) or [f"--{parameter.name.replace('_', '-')}"]
            metavar = "" if _plain(kind) is bool else f" {info.metavar or _NAMES[_plain(kind)]}"
            shown = ", ".join(options) + metavar
            if required:
                usage.append(options[-1] + metavar)
        text = " ".join((info.help or "").split())
        if not required and parameter.default not in (None, False, True):
            text += f" Default: `{parameter.default}`."
        rows.append(f"| `{shown}` | {text} |\n")
    return usage, rows


def _spellings(info: Any) -> list[str]:
    """The option's names; inside Annotated, typer keeps the first one in the place of the default."""
    first = [info.default] if isinstance(info.default, str) and info.default.startswith("-") else []
    return [*first, *(info.param_decls or ())]


def _plain(kind: Any) -> type:
    """The type of one value: Path of `Path | None`, str of `list[str] | None`."""
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (one for one in get_args(kind) if one is not type(None))
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
    assert isinstance(kind, type)
    return kind


if __name__ == "__main__":
    print(reference(), end="")
