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
