"""Arguments and options that several commands share: one name, one meaning, one help text."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.errors import DatabaseError, InputError

if TYPE_CHECKING:
    from autotune.api.locate import DatabaseLike
    from autotune.records import Database
    from autotune.tensor.shape_range import ShapeRange

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX model.", show_default=False)]
RunnableArgument = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="An ONNX model, or a file that `autotune compile` wrote.", show_default=False),
]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="NAME=D,D,...", help="The shape of an input, or of one open dimension (batch=8); repeat."
    ),
]
ShapesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=D,...[=WEIGHT]",
        help="The shape of an input, or of one open dimension; D is a number or a range: batch=1..8. Repeat: a name"
        " given again is one more shape, with a weight how often it comes (batch=1=9).",
    ),
]
TargetOption = Annotated[
    str, typer.Option("--target", help='The CPU to make code for, and its threads: "x86 -mcpu=haswell -num-cores=2".')
]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", "-t", min=1, metavar="N", help="Threads that run it [default: the target's]."),
]
DbOption = Annotated[
    Path | None, typer.Option("--db", metavar="FILE", help="The database [default: $AUTOTUNE_DB or the user's own].")
]
PLACE = "beside the file"
"""Marks options whose texts are paths, as far as they are no URLs: in a file of settings, beside it."""
LayerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--layer", metavar="FOLDER_OR_URL", help="Records of others, read only, under the database's own; repeat."
    ),
    PLACE,
]
TrustOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--trust", metavar="PUBKEY", help="Run a compiled file only when this key (PEM) has signed it; repeat."
    ),
]
UntunedOption = Annotated[bool, typer.Option("--untuned", help="Use no records: every kernel gets its default.")]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict-fp",
        help="No algorithm with larger rounding errors: no Winograd convolution, no Strassen product, "
        "no pieces of bf16 for f32, no digits for 4-bit weights.",
    ),
]
AgainstOption = Annotated[
    str, typer.Option("--against", metavar="ENGINE,...", help="Engines to compare with, or none.")
]
OpOption = Annotated[
    str | None,
    typer.Option("--op", metavar="TEXT", help='Or one operator: "conv2d data=1,64,56,56 weight=64,64,3,3 pad=1".'),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="The file to write [default: MODEL.at, beside the model]."),
]
PrecisionOption = Annotated[
    str,
    typer.Option(
        "--precision",
        metavar="NAME",
        help="Floats that products are computed in: model (as it says), f32, bf16, f16, or auto: bf16 where faster.",
    ),
]
MaxErrorOption = Annotated[
    float | None,
    typer.Option(
        "--max-error",
        metavar="SHARE",
        help="Of the outputs, of their range: from f64 in f32 [default: any], from f32 with --precision auto [0.01].",
    ),
]
MaxMemoryOption = Annotated[
    str | None,
    typer.Option("--max-memory", metavar="SIZE", help="Limit of packed weights and a run's memory: 512M, 2G."),
]
SkipPassOption = Annotated[
    list[str] | None,
    typer.Option("--skip-pass", metavar="PASS", help="Leave a graph pass out (`autotune passes` lists them); repeat."),
]
DumpGraphOption = Annotated[
    Path | None,
    typer.Option(
        "--dump-graph",
        metavar="DIR",
        help="Write the graph after each pass that changes it, as text and Graphviz.",
    ),
]
ImportOption = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="A module or .py file with operators of yours; repeat."),
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ADDRESS", help="The Dask scheduler of a cluster, such as tcp://10.0.0.1:8786."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def load_imports(modules: Sequence[str] | None) -> None:
    """Make the operators and templates of --import known. Raises ExtensionError where one cannot be imported."""
    if modules:
        from autotune.measure.extensions import load_extensions

        load_extensions(modules)


def database_path(given: Path | None) -> Path:
    """The database that a command works on: the one given, or the user's own."""
    from autotune.machine import user_database

    return user_database(os.environ) if given is None else given


def database_of(db: Path | None, layer: Sequence[str] | None) -> DatabaseLike:
    """The database that a command reads: the one given, over the layers given."""
    from autotune.api.locate import Layered

    return Layered(db, tuple(layer)) if layer else db


@contextmanager
def opened(db: Path | None, layer: Sequence[str] | None = None) -> Iterator[Database]:
    """The database that a command looks into, with layers under it if there are any.

    Raises:
        DatabaseError: there is none.
    """
    from autotune.api.locate import reading

    path = database_path(db)
    with reading(database_of(path, layer)) as database:
        if database is None:
            raise DatabaseError(f"{path} does not exist, and no layer can be read; `autotune tune` creates it")
        yield database


def parse_shapes(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    """{"data": (1, 3, 224, 224)} from ["data=1,3,224,224"].

    Raises:
        InputError: not of this form, or a name given twice.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for name, value in pairs(texts, "--shape", "data=1,3,224,224").items():
        try:
            shapes[name] = tuple(int(d) for d in value.split(",") if d.strip())
        except ValueError:
            hint = "; ranges and weights are for compile and tune" if ".." in value or "=" in value else ""
            raise InputError(
                f"--shape {name}={value}: dimensions are whole numbers, as in data=1,3,224,224{hint}"
            ) from None
    return shapes


def parse_ranges(texts: Sequence[str] | None) -> list[ShapeRange]:
    """What `--shape NAME=D,...[=WEIGHT]` says, all ways to combine what names have several of; nothing where none is
    given.

    Raises:
        InputError: not of this form, or a weight that is no number above 0.
    """
    from autotune.tensor.shape_range import ShapeRange, combinations

    choices: dict[str, list[tuple[tuple[int | range, ...], float]]] = {}
    for text in texts or ():
        name, *rest = text.split("=")
        if not name or len(rest) not in (1, 2):
            raise InputError(f"--shape {text!r} is not NAME=D,...[=WEIGHT]; write for example --shape tokens=1..8,128")
        dims = tuple(_extent(text, part.strip()) for part in rest[0].split(",") if part.strip())
        try:
            weight = float(rest[1]) if len(rest) == 2 else 1.0
            ShapeRange({name: dims}, weight)
        except (ValueError, InputError):
            raise InputError(f"--shape {text}: the weight is a number above 0, as in batch=1=9") from None
        choices.setdefault(name, []).append((dims, weight))
    return combinations(choices) if choices else []


def _extent(option: str, text: str) -> int | range:
    """8, or range(1, 9) of "1..8"."""
    first, dots, last = text.partition("..")
    numbers = [int(part) for part in (first, last or first) if part.isdecimal()]
    if len(numbers) < 2 or (dots and not last):
        raise InputError(f"--shape {option}: dimensions are whole numbers or ranges, as in tokens=1..8,128")
    if numbers[0] > numbers[1]:
        raise InputError(f"--shape {option}: a range begins with the smaller number, as in {numbers[1]}..{numbers[0]}")
    return range(numbers[0], numbers[1] + 1) if dots else numbers[0]


def require_cluster(address: str | None) -> str:
    """The address of a cluster, with an engine that says no more than what autotune itself says.

    Raises:
        ClusterError: Dask is not installed.
    """
    if address is None:
        raise typer.BadParameter("give the address of a Dask scheduler: --cluster tcp://HOST:8786")
    from autotune.api.workplace import require_dask

    require_dask()
    if not logging.getLogger("autotune").isEnabledFor(logging.DEBUG):
        for name in ("distributed", "tornado", "asyncio"):
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [logging.NullHandler()], False
        warnings.filterwarnings("ignore", module="distributed")
    return address


def parse_size(text: str | None, option: str = "--max-memory") -> int | None:
    """Bytes from "512M", "1.5G" or "65536"; powers of 1024.

    Raises:
        InputError: not of this form.
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if found is None:
        raise InputError(f"{option} {text!r} is no size; write for example 512M or 2G")
    return int(float(found[1]) * 1024 ** " kmgt".index(found[2] or " "))


def pairs(texts: Sequence[str] | None, option: str, example: str) -> Mapping[str, str]:
    """The values of a NAME=VALUE option by name; the first = divides, since paths may hold one.

    Raises:
        InputError: not of this form, or a name given twice.
    """
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{option} {text!r} is not NAME=VALUE; write for example {option} {example}")
        if name in found:
            raise InputError(f"{option} names {name!r} twice; give it once")
        found[name] = value
    return found


def check_writable(path: Path) -> None:
    """Refuse an output file that cannot be made, before minutes are spent on its contents.

    Raises:
        InputError: there is no such folder, or nobody may write there, or `path` is one itself, or no file can have
            its name.
    """
    try:
        folder = path.is_dir()
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    if folder:
        raise InputError(f"cannot write {path}: it is a folder; name a file")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {path.parent}; create it first")
    if not os.access(path.parent, os.W_OK | os.X_OK) and not os.access(path, os.W_OK):
        raise InputError(f"cannot write {path}: Permission denied in the folder {path.parent}; name another")


def write_text(path: Path, text: str) -> None:
    """Raises InputError where the file cannot be written."""
    try:
        path.write_text(text)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
