"""A compiled file made ready to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Union

from autotune.errors import InputError
from autotune.runtime.artifact import load_artifact
from autotune.runtime.executor import Executor
from autotune.runtime.signature import Trust

if TYPE_CHECKING:
    from autotune.runtime.open_executor import OpenExecutor

Loaded = Union[Executor, "OpenExecutor"]


def open_compiled(
    path: Path,
    trust: Trust | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    on_new_shape: str | None = None,
) -> Loaded:
    """A file's program, or its programs for several shapes.

    Args:
        trust: as for `load_artifact`.
        shapes: dimensions that all runs will have; those of a single program are known, and may not differ.
        on_new_shape: of several: "bucket", which None means, runs other shapes where they fit; "error" refuses them.

    Raises:
        CompiledModelError: as for `load_artifact`. TargetError: this CPU cannot run it.
        InputError: `on_new_shape` is another one, or a single program has other shapes.
        ModelError: the inputs cannot have these shapes.
    """
    artifact = load_artifact(path, trust)
    if artifact.selection is None:
        program = artifact.alone()
        for spec in program[0].inputs:
            wanted = tuple((shapes or {}).get(spec.name, spec.shape))
            if wanted != spec.shape:
                raise InputError(
                    f"{path} is compiled for {spec.name} of shape {list(spec.shape)}, not {list(wanted)}:"
                    " compile it for that, or for several shapes"
                )
        return Executor(*program)
    if on_new_shape not in (None, "bucket", "error"):
        raise InputError(f"on_new_shape is one of bucket, error, not {on_new_shape!r}: compiled files have no compiler")
    from autotune.runtime.open_executor import OpenExecutor  # files of one program need none of it

    return OpenExecutor(artifact, on_new_shape == "error", shapes)
