"""`autotune.compile_staged`: a model whose shapes a run decides, and the programs that it is made ready with."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.api.feeds import as_arrays, complete_feeds
from autotune.api.load import load
from autotune.api.locate import DatabaseLike
from autotune.api.node_arg import NodeArg
from autotune.api.observe import run_observed
from autotune.api.shapes import WantedShapes, shape_ranges
from autotune.arguments import checked
from autotune.compiler.compile import CompiledModel
from autotune.compiler.foreseen import Extents, Foreseen, foreseen
from autotune.compiler.programs import Recorder
from autotune.compiler.staged import StagedModel
from autotune.compiler.staged_file import StagedFile, open_file, source_of
from autotune.errors import InputError, ModelError
from autotune.graph import one_line, open_model
from autotune.graph.frontend import convert_whole, read_model
from autotune.graph.frontend.caches import caches_of
from autotune.graph.frontend.source import Source
from autotune.graph.frontend.whole_source import whole_source
from autotune.runtime.executor import Array
from autotune.runtime.file_head import is_staged_file
from autotune.runtime.signature import Trust
from autotune.target import Target
from autotune.tensor.declared import ModelInput, bind_shapes, bind_symbols, extents_of
from autotune.tensor.shape_range import ShapeRange, extents_of_range, only_shape, with_symbols

if TYPE_CHECKING:
    from autotune.graph.frontend import ModelSource

_log = logging.getLogger(__name__)

DRAWN = ((0, 1.0), (1, 0.25), (2, 4.0))
"""Seeds of the inputs that are drawn, and the deviation of their floats, by which more or less of them is found: what
data decides is made for any extents once two have come (docs/adr/0035)."""


@checked
def compile_staged(
    model: ModelSource,
    target: str | Target | None = None,
    database: DatabaseLike = None,
    *,
    shapes: WantedShapes | None = None,
    inputs: Sequence[Mapping[str, object]] = (),
    fixed: Mapping[str, object] | None = None,
    strict_fp: bool = False,
    max_memory: int | None = None,
    skip_passes: Collection[str] = (),
    dump_graph: str | Path | None = None,
    precision: str = "model",
    max_error: float | None = None,
) -> StagedFile:
    """Make a model ready whose shapes a run decides: it runs here, and the programs that it led to go into one file.

    Args:
        target: one that this machine can run.
        shapes: of runs that are to find their programs there, as for `compile_shapes`; a range becomes its ends and the
            powers of two between them. None: those of `inputs`; else what the model declares; of a decoder whose caches
            grow, prompts of up to 256 tokens, and steps up to the 1024th.
        inputs: of such runs, arrays by name; what is missing is drawn, three times.
        database, fixed, strict_fp, max_memory, skip_passes, dump_graph, precision, max_error: as for
            `autotune.compile`.

    Raises:
        ModelError, UnsupportedError, TargetError, DatabaseError: as for `autotune.compile`.
        InputError: as for `autotune.compile`; or no run decides anything: the model is a single program.
    """
    wanted = Target.parse(target)
    wanted.require_host()
    source = whole_source(read_model(model))
    constants = as_arrays(fixed)
    options: dict[str, Any] = {
        "strict_fp": strict_fp, "max_memory": max_memory, "skip_passes": sorted(skip_passes), "precision": precision,
        "max_error": max_error,
    }  # fmt: skip
    recorder = Recorder()
    loaded = load(
        source, wanted, database, fixed=constants, dump_graph=dump_graph, on_new_shape="auto",
        programs=lambda _: recorder, **options,
    )  # fmt: skip
    if isinstance(loaded, CompiledModel):
        raise InputError("the model is a single program: autotune.compile makes its file")
    given = [as_arrays(one) for one in inputs]
    named = Foreseen() if given and shapes is None else foreseen(
        open_model(source, None, constants), [] if shapes is None else shape_ranges(shapes)
    )  # fmt: skip
    runs = list(_runs(loaded, named, given))
    ready = _shapes_of(runs)
    loaded.foresee(ready.exact, ready.ranged)
    for extents in ready.exact:
        loaded.prepare(extents)
    done = _made_ready(loaded, runs, named.guessed)
    return StagedFile(source, wanted.to_json(), options, constants, _shapes_of(done), recorder.made)


def open_staged(
    path: Path,
    trust: Trust | None = None,
    database: DatabaseLike = None,
    on_new_shape: str | None = None,
    max_loop_steps: int | None = None,
) -> StagedModel:
    """The model of a staged file, which finds the programs there.

    Args:
        database: has the schedules for programs that are not there.
        trust, on_new_shape, max_loop_steps: as for a session.

    Raises:
        CompiledModelError: as for `open_file`. InputError: `on_new_shape` is unknown.
    """
    opened = open_file(path, trust)
    found = load(
        opened.source, Target.from_json(opened.target), database, fixed=opened.fixed, max_loop_steps=max_loop_steps,
        on_new_shape="auto" if on_new_shape is None else on_new_shape, programs=opened.known,
        is_staged=True, **opened.options,
    )  # fmt: skip
    assert isinstance(found, StagedModel), "a staged file holds no model that is a single program"
    found.foresee(opened.shapes.exact, opened.shapes.ranged)
    return found


def model_in(path: Path) -> Path | Source:
    """The model of a staged file, or the file itself where it is another. Raises CompiledModelError as `source_of`."""
    return source_of(path) if is_staged_file(path) else path


def needs_stages(
    model: ModelSource | Source, ranges: Sequence[ShapeRange], fixed: Mapping[str, object] | None = None
) -> bool:
    """Whether runs of these shapes decide what the programs are, or caches grow: no program, or several, is all of it.

    Raises:
        ModelError, UnsupportedError: the model cannot be used, or not in these shapes.
    """
    shapes, constants = only_shape(ranges), as_arrays(fixed)
    parsed = open_model(model, shapes, constants)
    if any(declared.shape is None and declared.is_tensor for declared in parsed.inputs):
        if caches_of(parsed) is not None:
            return True
        if shapes is not None:
            return False  # who compiles it asks for the shape
        extents = extents_of_range(with_symbols(parsed.inputs), ranges[0])
        largest = {symbol: one[-1] for symbol, one in extents.items()}
        parsed = replace(parsed, inputs=bind_symbols(with_symbols(parsed.inputs), largest))
    with one_line():
        return convert_whole(parsed) is None


@dataclass(frozen=True)
class _Run:
    """
    Attributes:
        inputs: the model's, all dimensions of which are known, but of what `arrays` has.
        extents: of the model's open dimensions; None where not all of them have names.
    """

    inputs: Sequence[ModelInput]
    arrays: Mapping[str, Array]
    extents: Extents | None
    ranged: bool


def _runs(model: StagedModel, shapes: Foreseen, given: Sequence[Mapping[str, Array]]) -> Iterator[_Run]:
    """For each of the shapes, with each of the arrays given."""
    every = [*((one, False) for one in shapes.exact), *((one, True) for one in shapes.ranged)] or [({}, False)]
    for extents, ranged in every:
        inputs = bind_symbols(with_symbols(model.inputs), extents) if extents else model.inputs
        for arrays in given or [{}]:
            bound = bind_shapes(inputs, {i.name: arrays[i.name].shape for i in inputs if i.name in arrays})
            found = extents_of(model.inputs, {i.name: i.shape for i in bound if i.shape is not None})
            named = all(i.is_tensor and None not in (i.dims or (None,)) for i in model.inputs)
            yield _Run(bound, arrays, found if named else None, ranged)


def _made_ready(model: StagedModel, runs: Sequence[_Run], guessed: bool) -> list[_Run]:
    """Those of the runs that the model is ready for: all, unless they were guessed. Raises as `run_observed`."""
    done: list[_Run] = []
    refused: list[Extents] = []
    for run in runs:
        extents = run.extents or {}
        if any(all(extents.get(symbol, -1) >= least for symbol, least in one.items()) for one in refused):
            continue  # what is larger is too large, too
        try:
            _make_ready(model, run)
            done.append(run)
        except (InputError, ModelError) as error:
            if not guessed or (run is runs[-1] and not done):
                if len(run.arrays) == len(run.inputs):
                    raise
                raise type(error)(
                    f"{error}, or make the input that decides a constant of the file by --fix NAME=FILE.npy",
                    values=error.values,
                ) from error
            refused.append(extents)
            _log.info("it is not made ready for %s: %s", extents, error)
    return done


def _make_ready(model: StagedModel, run: _Run) -> None:
    """Have the programs made that a run comes to, those in the background, too. Raises as `run_observed`."""
    for seed, deviation in DRAWN if len(run.arrays) < len(run.inputs) else DRAWN[:1]:
        feeds = complete_feeds([NodeArg.of(declared) for declared in run.inputs], run.arrays, seed, deviation)
        run_observed(model, feeds, run.arrays)
        model.wait()


def _shapes_of(runs: Iterable[_Run]) -> Foreseen:
    """Each once; those without names are in nobody's list."""
    exact: list[Extents] = []
    ranged: list[Extents] = []
    for run in runs:
        into = ranged if run.ranged else exact
        if run.extents is not None and run.extents not in into:
            into.append(run.extents)
    return Foreseen(tuple(exact), tuple(ranged))
