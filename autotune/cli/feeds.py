"""The inputs of a run, as commands take them: .npy files by name, and random values for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import pairs
from autotune.errors import InputError

if TYPE_CHECKING:
    from autotune.runtime.executor import Array

InputOption = Annotated[
    list[str] | None, typer.Option("--input", metavar="NAME=FILE", help="The value of an input, as .npy; repeat.")
]
InputsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=FILE",
        help="Of a model whose shapes a run decides: the value of an input, as .npy, in a run that it is made ready"
        " for [default: drawn]. Repeat; a name given again is one more run.",
    ),
]
FixOption = Annotated[
    list[str] | None,
    typer.Option("--fix", metavar="NAME=FILE", help="Make an input a constant with the value in a .npy file; repeat."),
]


def load_arrays(texts: Sequence[str] | None, option: str) -> dict[str, Array]:
    """Arrays by name, from NAME=FILE.npy.

    Raises:
        InputError: not of this form, a name given twice, or a file that cannot be read.
    """
    return {name: _load(option, name, Path(path)) for name, path in pairs(texts, option, "data=image.npy").items()}


def load_runs(texts: Sequence[str] | None, option: str) -> list[dict[str, Array]]:
    """The inputs of several runs, from NAME=FILE.npy: a name that is given again has another array in the next run.

    Raises:
        InputError: as `load_arrays`; or names are given more than once, and not equally often.
    """
    files: dict[str, list[str]] = {}
    for text in texts or ():
        for name, path in pairs([text], option, "data=image.npy").items():
            files.setdefault(name, []).append(path)
    count = max(map(len, files.values()), default=0)
    wrong = [name for name, paths in files.items() if len(paths) not in (1, count)]
    if wrong:
        raise InputError(f"{option} names {wrong[0]} {len(files[wrong[0]])} times, another input {count} times")
    return [
        {name: _load(option, name, Path(paths[n if len(paths) > 1 else 0])) for name, paths in files.items()}
        for n in range(count)
    ]


def _load(option: str, name: str, path: Path) -> Array:
    import numpy as np

    try:
        array: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is no .npy file of numbers"
        raise InputError(f"{option} {name}={path}: cannot read the file: {reason}") from None
    if not isinstance(array, np.ndarray):
        raise InputError(f"{option} {name}={path}: an .npz archive; give one .npy file per input")
    return array
