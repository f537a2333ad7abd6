"""`autotune.compile_shapes`: a model for several shapes, in one compiled file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Union

from autotune.api.feeds import as_arrays
from autotune.api.locate import DatabaseLike, reading
from autotune.arguments import checked
from autotune.codegen.object_cache import object_cache
from autotune.compiler.compiled_shapes import CompiledShapes
from autotune.compiler.precise import compile_precisely
from autotune.compiler.precision import Precision
from autotune.compiler.shape_programs import ShapePrograms
from autotune.compiler.weights import PackedWeights
from autotune.errors import InputError
from autotune.graph import open_model
from autotune.graph.optimizer import Optimizer
from autotune.target import Target
from autotune.tensor.shape_range import Extent, ShapeRange

if TYPE_CHECKING:
    from autotune.graph.frontend import ModelSource

WantedShapes = Union[Mapping[str, Sequence[Extent]], Sequence[ShapeRange]]
"""Dimensions by name, each a number or a range; or several of such, each with a weight."""


@checked
def compile_shapes(
    model: ModelSource,
    shapes: WantedShapes,
    target: str | Target | None = None,
    database: DatabaseLike = None,
    *,
    fixed: Mapping[str, object] | None = None,
    strict_fp: bool = False,
    max_memory: int | None = None,
    skip_passes: Collection[str] = (),
    dump_graph: str | Path | None = None,
    precision: str = "model",
    max_error: float | None = None,
) -> CompiledShapes:
    """Compile an ONNX model for several shapes of its inputs, which share their weights.

    Runs of other shapes are padded into larger programs, or cut into pieces, where that is proved to give the same; a
    range becomes as many programs as padding should cost little (docs/how-to/run-and-deploy.md).

    Args:
        shapes: `{"input_ids": (range(1, 9), range(16, 385))}`, by name of an input or of an open dimension; or several
            `ShapeRange`.
        max_memory: bytes that packed weights and the memory of a run of any one of the programs may take together.
        target, database, fixed, strict_fp, skip_passes, dump_graph, precision, max_error: as for `autotune.compile`.

    Raises:
        ModelError, UnsupportedError, TargetError, DatabaseError, InputError: as for `autotune.compile`; or values of
            the run decide what the programs are, or the shapes take too many of them.
    """
    wish, wanted, cache = Precision.parse(precision, max_error), Target.parse(target), object_cache()
    parsed = open_model(model, None, as_arrays(fixed))
    programs = ShapePrograms.of(parsed, shape_ranges(shapes), wanted, Optimizer(skip_passes, dump_graph))
    weights = PackedWeights()
    models = {}
    with reading(database) as opened:
        for extents, graph in programs:
            models[extents] = compile_precisely(
                graph, wanted, opened, cache,
                precision=wish, strict_fp=strict_fp, max_memory=max_memory, weights=weights,
            )  # fmt: skip
    return CompiledShapes.of(programs, models)


def shape_ranges(shapes: WantedShapes) -> list[ShapeRange]:
    """What was given, as ranges. Raises InputError where nothing is, or something else."""
    found = [ShapeRange(shapes)] if isinstance(shapes, Mapping) else shapes
    if not isinstance(found, Sequence) or not all(isinstance(one, ShapeRange) for one in found):
        raise InputError(f"shapes are a mapping of names to dimensions, or a list of ShapeRanges, not {shapes!r}")
    if not found:
        raise InputError("no shape is given: name dimensions, such as {'batch': (range(1, 9),)}")
    return list(found)
