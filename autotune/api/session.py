"""InferenceSession: the interface that users of ONNX Runtime know."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from autotune.api.fallback import FallbackModel, check_fallback
from autotune.api.io_binding import IOBinding
from autotune.api.node_arg import NodeArg
from autotune.api.ort_device import OrtDevice
from autotune.api.ort_value import OrtValue, contents_of
from autotune.api.providers import CPU, check_providers
from autotune.api.session_devices import SessionDevices
from autotune.api.session_options import SessionOptions, check_loading, check_readable, tell_once, with_threads
from autotune.arguments import checked
from autotune.errors import AutotuneError, InputError, UnsupportedError
from autotune.install import needing_all
from autotune.metadata import ModelMetadata
from autotune.runtime.compiled_file import Loaded, open_compiled
from autotune.runtime.executor import Array, Executor, require_fit
from autotune.runtime.file_head import is_compiled_file, is_staged_file
from autotune.runtime.program import Program
from autotune.runtime.signature import KeyFiles, Trust, unsigned
from autotune.runtime.trace import RunTrace
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.api.kept import KeptProgram
    from autotune.api.locate import DatabaseLike  # brings SQLite, which a compiled model does not need
    from autotune.compiler.staged import StagedModel
    from autotune.graph.frontend import ModelSource
    from autotune.runtime.shape_use import ShapeUse
    from autotune.tensor.declared import ModelInput

OWN = "autotune"


class InferenceSession(SessionDevices):
    """A model ready to run. Several threads may call `run` at once.

    Args:
        path_or_bytes: an ONNX model (a path, bytes or onnx.ModelProto), or a file that `autotune compile` wrote. One
            of a model whose shapes a run decides compiles what it does not hold, with `database`.
        sess_options: `SessionOptions`, which say what of them is heeded. Of ONNX Runtime's own ones the attributes are
            read alike; dimensions and entries that were added to them cannot be read, which warns, once.
        providers, provider_options: as in ONNX Runtime; another one than the CPU warns, once.
        disabled_optimizers: as in ONNX Runtime; any warns, once: `skip_passes` leaves out autotune's.
        target: as for `autotune.compile`; a compiled file has its own.
        database: as for `autotune.compile`.
        shapes: dimensions of inputs by name, where the model leaves them open. Dimensions that stay open are bound
            by the inputs of each run; see `on_new_shape`.
        fixed, strict_fp, max_memory, skip_passes, dump_graph, precision, max_error: as for `autotune.compile`; a
            compiled file has been made. A loop whose end the run decides may take `max_memory` for itself, or half of
            the machine's memory; caches that grow by Concat may take `max_memory`, too. Rows of which data decides how
            many there are run natively where the memory for that fits into it beside all else of a run.
        max_loop_steps: a loop whose end the run decides and that goes on for longer is refused; None is 2**24 steps,
            which take minutes: the logger `autotune` warns of such a loop after 10 s, and Ctrl-C says where it was.
        trust: public Ed25519 keys (PEM files), one of which must have signed the compiled file; a model that is none is
            refused, too. None takes any.
        on_new_shape: what a run does whose shape has no program yet: "compile" one for exactly that, "bucket" to run
            padded, where that gives the same, in one that serves others, too, "error" unless `prepare` was called.
            "auto" is "compile" for the first shape and, in the background, for those that come often, "bucket" for
            others. None is "auto"; of a compiled file, which has no compiler, it is "bucket".
        fallback: "onnxruntime" has ONNX Runtime run, as the model says and untuned, what autotune does not support. A
            `FallbackWarning` tells so; `engine`, `repr` and `get_modelmeta()` do for as long as the session lives.

    Raises:
        ModelError, CompiledModelError, TargetError, DatabaseError: the model cannot be used; the message says why.
        InputError: an option has an impossible value.
        IncompleteInstallError: only compiled files run with what is installed.
    """

    @checked
    def __init__(
        self,
        path_or_bytes: ModelSource,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        *,
        disabled_optimizers: Collection[str] | None = None,
        target: str | Target | None = None,
        database: DatabaseLike = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        fixed: Mapping[str, object] | None = None,
        strict_fp: bool = False,
        max_memory: int | None = None,
        skip_passes: Collection[str] = (),
        dump_graph: str | Path | None = None,
        max_loop_steps: int | None = None,
        precision: str = "model",
        max_error: float | None = None,
        fallback: str | None = None,
        trust: KeyFiles | None = None,
        on_new_shape: str | None = None,
    ) -> None:
        check_fallback(fallback)
        self._options = SessionOptions() if sess_options is None else sess_options
        check_readable(self._options)
        check_loading(self._options)
        check_providers(providers)
        if disabled_optimizers:
            tell_once("disabled_optimizers", "skip_passes=(...) leaves out autotune's passes")
        self._fallback: Callable[[UnsupportedError], FallbackModel] | None = None
        self._inputs: tuple[ModelInput, ...] | None = None  # where the user says more about them than the model
        path = Path(path_or_bytes) if isinstance(path_or_bytes, (str, os.PathLike)) else None
        if path is not None and is_compiled_file(path):
            trusted = None if trust is None else Trust.load(trust)
            self._model: Loaded | StagedModel | FallbackModel
            if is_staged_file(path):
                with needing_all(f"{path} holds a model with the programs of its stages: opening it"):
                    from autotune.api.staged import open_staged
                    from autotune.tensor.declared import bind_shapes

                staged = open_staged(path, trusted, database, on_new_shape, max_loop_steps)
                self._model, self._inputs = staged, bind_shapes(staged.inputs, shapes or {})
            else:
                self._model = open_compiled(path, trusted, shapes, on_new_shape)
        elif trust is not None:
            raise unsigned(path or "the model")
        else:
            with needing_all("compiling a model"):
                from autotune.api.kept import KeptProgram

                wanted = with_threads(Target.parse(target), self._options)  # LLVM knows the CPUs
            extents = getattr(self._options, "extents", None)
            denoted = getattr(self._options, "denoted", None)
            if fallback is not None and not fixed:  # it has no way to fix an input
                named = {**{name: (extent,) for name, extent in (extents or {}).items()}, **(shapes or {})}
                self._fallback = partial(
                    FallbackModel, path_or_bytes, threads=wanted.num_threads, shapes=named, denoted=denoted or {}
                )
            options: dict[str, Any] = {
                "shapes": shapes,
                "extents": extents,
                "denoted": denoted,
                "fixed": fixed,
                "strict_fp": strict_fp,
                "max_memory": max_memory,
                "skip_passes": skip_passes,
                "dump_graph": dump_graph,
                "max_loop_steps": max_loop_steps,
                "precision": precision,
                "max_error": max_error,
                "on_new_shape": "auto" if on_new_shape is None else on_new_shape,
            }
            try:
                self._model = _ready(KeptProgram(path_or_bytes, wanted, database, options))
            except UnsupportedError as refusal:
                if self._fallback is None:
                    raise
                self._model = self._fallback(refusal)
        self._outputs = [found.name for found in self.get_outputs()]
        self._async: ThreadPoolExecutor | None = None
        self._trace: RunTrace | None = None
        if getattr(self._options, "enable_profiling", False):
            self._trace = RunTrace()

    def __repr__(self) -> str:
        inputs, outputs = (
            ", ".join(f"{arg.name}: {arg.type}{arg.shape}" for arg in args)
            for args in (self.get_inputs(), self.get_outputs())
        )
        by = "" if self.engine == OWN else f" by {self.engine}:"
        return f"<InferenceSession{by} ({inputs}) -> ({outputs})>"

    @property
    def engine(self) -> str:
        """Who runs the model: "autotune", or the fallback."""
        return self._model.engine if isinstance(self._model, FallbackModel) else OWN

    @property
    def program(self) -> Program:
        """The compiled model as data.

        Raises:
            InputError: the shapes are open or depend on values, so that there is no single program.
        """
        if not isinstance(self._model, Executor):
            raise InputError(
                "it is no single program: its shapes are known at run time only, or another engine runs it"
            )
        return self._model.program

    @property
    def host_nodes(self) -> tuple[str, ...]:
        """The nodes that run on the host, between programs: as seen so far, before the first run those that may."""
        return () if isinstance(self._model, Executor) else self._model.host_nodes

    @property
    def segments(self) -> int:
        """How many programs a run is made of: the most seen so far, before the first run the least possible."""
        return 1 if isinstance(self._model, Executor) else self._model.segments

    def shapes(self) -> list[ShapeUse]:
        """The programs that the session keeps for the shapes it has seen: runs, seconds to make, bytes.

        Empty where the shapes of the model are known, so that there is one program for all runs.
        """
        model = self._model
        return [] if isinstance(model, (Executor, FallbackModel)) else model.shapes()

    def prepare(self, **extents: int) -> None:
        """Make the program for a shape before the first run of it.

        Args:
            extents: of the open dimensions, by symbol.

        Raises:
            InputError: an open dimension is not given. ModelError: these extents make the model impossible.
        """
        for symbol, extent in extents.items():
            if not isinstance(extent, int):
                raise InputError(f"the extent of {symbol} is a whole number, not {extent!r}")
        model = self._model
        if not isinstance(model, (Executor, FallbackModel)):
            model.prepare(extents)

    def get_inputs(self) -> list[NodeArg]:
        model = self._model
        if isinstance(model, FallbackModel):
            return model.inputs
        return [NodeArg.of(declared) for declared in (model.inputs if self._inputs is None else self._inputs)]

    def get_outputs(self) -> list[NodeArg]:
        model = self._model
        if isinstance(model, Executor):
            return [NodeArg.of(spec) for spec, _ in model.program.outputs]
        if isinstance(model, FallbackModel):
            return model.outputs
        return [NodeArg.of(spec) for spec in model.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: the weights are constants of the program."""
        return []

    def get_providers(self) -> list[str]:
        return [CPU]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {CPU: {}}

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session cannot be pickled or copied: make one from the model in each process")

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, object], run_options: object = None
    ) -> list[Array]:
        """The named outputs (all of them for None, or for no names) as new arrays.

        A sequence is a list of arrays, an empty optional None, a tensor of strings an array of objects.

        Args:
            input_feed: arrays of the inputs' dtypes by name, or what hands one out by `__array__` or `__dlpack__`;
                lists and numbers are converted.

        Raises:
            InputError: an input is missing, unknown or of another dtype or shape; an output is unknown.
        """
        if output_names is None and run_options is None and self._trace is None and type(input_feed) is dict:
            try:  # the usual way
                return self._model.run(input_feed)
            except UnsupportedError as refusal:
                return self._instead(refusal).run(input_feed)
        _check_begun(run_options)
        return self.run_named(output_names, input_feed, {})

    def run_named(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, object], into: Mapping[str, Array]
    ) -> list[Array]:
        """`run` that writes some of the outputs into arrays of the caller, see `run_into`."""
        _check_mapping(input_feed)
        _check_mapping(into, "outputs")
        if isinstance(output_names, str) or not isinstance(output_names or (), Iterable):
            raise InputError(f"output_names must be a list of names or None, not {output_names!r}")
        unknown = [n for n in (*(output_names or ()), *into) if n not in self._outputs]
        if unknown:
            raise InputError(
                f"no output named {', '.join(map(str, unknown))}; the model has {', '.join(self._outputs)}"
            )
        results = self._run(input_feed, into)
        return [results[self._outputs.index(n)] for n in output_names] if output_names else results

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue],
        run_options: object = None,
    ) -> list[OrtValue]:  # fmt: skip
        """`run` with values in and out, which share their memory with NumPy."""
        _check_mapping(input_dict_ort_values)
        feeds = dict(zip(input_dict_ort_values, contents_of([*input_dict_ort_values.values()])))
        return [OrtValue(array) for array in self.run(output_names, feeds, run_options)]

    def run_with_ortvaluevector(
        self,
        run_options: object,
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        fetch_names: Sequence[str],
        fetches: list[OrtValue],
        fetch_devices: Sequence[OrtDevice],
    ) -> None:
        """`run` with lists of values. The results are put into `fetches`; values that lie there are written to.

        Raises:
            InputError: as for `run`; or lists that belong together differ in length.
        """
        _check_begun(run_options)
        if len(feed_names) != len(feeds) or len(fetches) not in (0, len(fetch_names)):
            raise InputError("there must be one feed per name, and one value per name or none to write to")
        if not all(isinstance(device, OrtDevice) for device in fetch_devices):
            raise InputError("fetch_devices are OrtDevice.make('cpu', 0)")
        given = dict(zip(feed_names, contents_of(feeds)))
        into = {name: value.numpy() for name, value in zip(fetch_names, fetches)}
        fetches[:] = map(OrtValue, self.run_named(fetch_names, given, into))

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, object],
        callback: Callable[[list[Array], object, str], None],
        user_data: object = None,
        run_options: object = None,
    ) -> None:
        """`run` on another Python thread, which then calls `callback(results, user_data, error)`.

        `error` is empty for a run that went well; otherwise it is the message, and there are no results.
        """
        if self._async is None:
            self._async = ThreadPoolExecutor(1, "autotune-run")

        def work() -> None:
            try:
                results, complaint = self.run(output_names, input_feed, run_options), ""
            except AutotuneError as error:
                results, complaint = [], str(error)
            callback(results, user_data, complaint)

        self._async.submit(work)

    def io_binding(self) -> IOBinding:
        """Inputs and outputs that are named once, for `run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: object = None) -> None:
        """Run on what is bound. Raises InputError as `run`, and when no output is bound."""
        if not isinstance(iobinding, IOBinding):
            raise InputError(f"io_binding() makes what is run with, not {iobinding!r}")
        _check_begun(run_options)
        iobinding.run()

    def get_session_options(self) -> Any:
        return self._options

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says about itself; a compiled file has kept it."""
        model = self._model
        return model.program.metadata if isinstance(model, Executor) else model.metadata

    def get_profiling_start_time_ns(self) -> int:
        """`time.perf_counter_ns` at the beginning of the profile, 0 without one."""
        return self._trace.start_ns if self._trace is not None else 0

    def end_profiling(self) -> str:
        """Write what the runs did since the session was made, and profile no more.

        Returns:
            the file, `profile_file_prefix` with date and time; Chrome's trace format. Empty when no profile was on.

        Raises:
            InputError: the file cannot be written.
        """
        trace, self._trace = self._trace, None
        if trace is None:
            return ""
        prefix = str(getattr(self._options, "profile_file_prefix", "") or "autotune_profile_")
        path = f"{prefix}{time.strftime('%Y-%m-%d_%H-%M-%S')}_{os.getpid()}.json"
        trace.save(Path(path))
        return path

    def set_providers(self, providers: Sequence[Any] | None = None, provider_options: object = None) -> None:
        """Has no effect; another one than the CPU warns, once."""
        check_providers(providers)

    def enable_fallback(self) -> None:
        """Nothing: there is one provider."""

    def disable_fallback(self) -> None:
        """Nothing: there is one provider."""

    def _run(self, feeds: Mapping[str, object], into: Mapping[str, Array]) -> list[Array]:
        trace = self._trace
        start = trace.now() if trace is not None else 0.0
        if isinstance(self._model, Executor):
            results = self._model.run(feeds, into or None, trace)
        else:
            try:
                results = self._model.run(feeds, trace=trace)
            except UnsupportedError as refusal:
                results = self._instead(refusal).run(feeds)
            for name, array in into.items():
                found = results[self._outputs.index(name)]
                if not isinstance(found, np.ndarray):
                    raise InputError(f"output {name!r} is a sequence or an optional, which no array holds")
                require_fit(name, array, found.shape, found.dtype)
            for name, array in into.items():
                array[...] = results[self._outputs.index(name)]
                results[self._outputs.index(name)] = array
        if trace is not None:
            trace.span("Session", "model_run", start, trace.now() - start)
        return results

    def _instead(self, refusal: UnsupportedError) -> FallbackModel:
        """What runs the model from now on, where only a run has shown that it is not supported."""
        if self._fallback is None:
            raise refusal
        self._model = found = self._fallback(refusal)
        return found

    def run_into(self, outputs: Mapping[str, Array], input_feed: Mapping[str, object]) -> None:
        """Write the named outputs into arrays of the caller; large ones are neither allocated nor copied.

        Args:
            outputs: C-contiguous arrays of the outputs' dtypes and shapes, by name. They may be inputs, but must not
                overlap parts of them: a cache that comes out with new rows in it is then updated where it is.

        Raises:
            InputError: as for `run`, or an array does not fit.
        """
        self.run_named(None, input_feed, outputs)


def _ready(kept: KeptProgram) -> Executor | StagedModel:
    """The model compiled and linked, or as it was kept."""
    artifact = kept.recall()
    if artifact is not None:
        return Executor(*artifact.alone())
    with needing_all("compiling a model"):
        from autotune.api.early import helpers
        from autotune.compiler.heap import without_collector

    with helpers(kept.model) as beside:
        with needing_all("compiling a model"), without_collector():  # hundreds of modules, of which nothing goes
            from autotune.api.load import load
            from autotune.compiler.compile import CompiledModel

        found = load(
            kept.model, kept.target, kept.database, **kept.options,
            keep=lambda model: kept.keep(model.artifact), beside=beside,
        )  # fmt: skip
    return found.executor if isinstance(found, CompiledModel) else found


def _check_begun(run_options: object) -> None:
    if getattr(run_options, "terminate", False):
        raise InputError("the run was not begun: RunOptions.terminate is set")


def _check_mapping(feeds: object, what: str = "inputs") -> None:
    if not isinstance(feeds, (dict, Mapping)):
        raise InputError(f"the {what} must be a mapping of names to arrays, not {type(feeds).__name__}")
