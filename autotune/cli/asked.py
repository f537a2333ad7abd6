"""Options that commands about a model take alike, as one value: what is asked for, and how it is typed again.

A command with a parameter that is a dataclass takes its fields as options (`expanded`).
"""

from __future__ import annotations

import functools
import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from autotune.cli.asked_target import AskedTarget, target_words
from autotune.cli.feeds import InputOption, load_arrays
from autotune.cli.loudness import note
from autotune.cli.options import (
    DbOption,
    ImportOption,
    LayerOption,
    MaxErrorOption,
    PrecisionOption,
    ShapeOption,
    ShapesOption,
    database_of,
    load_imports,
    parse_ranges,
    parse_shapes,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from autotune.api.locate import DatabaseLike
    from autotune.target import Target
    from autotune.tensor.shape_range import ShapeRange


@dataclass(frozen=True, slots=True)
class Asked(AskedTarget):
    """For which CPU, in which shapes, with which records and precision, and whose operators."""

    shape: ShapeOption = None
    inputs: InputOption = None
    db: DbOption = None
    layer: LayerOption = None
    precision: PrecisionOption = "model"
    max_error: MaxErrorOption = None
    imports: ImportOption = None

    def parsed_target(self) -> Target:
        """Raises TargetError where it is none; the user's operators are known then."""
        load_imports(self.imports)
        return AskedTarget.parsed_target(self)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return parse_shapes(self.shape)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """The inputs that files were given for."""
        return load_arrays(self.inputs, "--input")

    @property
    def database(self) -> DatabaseLike:
        return database_of(self.db, self.layer)

    def words(self, target: str | None = None) -> list[str]:
        """What to type for it, or for another target; nothing for what is usual."""
        words = target_words(self.target if target is None else target)
        words += [*_repeated("--shape", self.shape), *_repeated("--input", self.inputs)]
        words += [] if self.db is None else ["--db", str(self.db)]
        words += _repeated("--layer", self.layer)
        words += [] if self.precision == "model" else ["--precision", self.precision]
        words += [] if self.max_error is None else ["--max-error", f"{self.max_error:g}"]
        return [*words, *_repeated("--import", self.imports)]

    def note_compiled(self, model: Path, **more: object) -> None:
        """Says which options that were given mean nothing to a file that is compiled already.

        Args:
            more: values of further options, by their names with _ for -.
        """
        from autotune.runtime.file_head import is_compiled_file

        cpu, threads = (word in target_words(self.target) for word in ("--target", "--threads"))
        own = {"target": cpu, "threads": threads, "precision": self.precision != "model", "max_error": self.max_error}
        given = {**own, **more}
        named = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
        if named and is_compiled_file(model):
            note(f"{model} is compiled already: {', '.join(named)} have no effect on it")

    def tune_command(self, model: Path, target: str | None = None) -> str:
        """What to type to tune the model, for this or another target."""
        return shlex.join(["autotune", "tune", str(model), *self.words(target), "--budget", "5m"])


@dataclass(frozen=True, slots=True)
class AskedRanges(Asked):
    """`Asked`, of several shapes."""

    shape: ShapesOption = None

    @property
    def ranges(self) -> list[ShapeRange]:
        return parse_ranges(self.shape)


def _repeated(option: str, texts: Sequence[str] | None) -> list[str]:
    return [word for text in texts or () for word in (option, text)]


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of its parameters that are dataclasses."""
    declared = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: one.annotation for name, one in declared.parameters.items() if is_dataclass(one.annotation)
    }
    if not groups:
        return command
    named = {name: [field.name for field in fields(group)] for name, group in groups.items()}

    @functools.wraps(command)
    def run(**given: object) -> None:
        values: Mapping[str, Any] = {
            name: group(**{field: given.pop(field) for field in named[name]}) for name, group in groups.items()
        }
        command(**given, **values)

    parameters = []
    for name, one in declared.parameters.items():
        if name not in groups:
            parameters.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            option = inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
            )
            parameters.append(option)
    run.__signature__ = declared.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run
