"""InferenceSession: the interface that users of ONNX Runtime know."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from autotune.api.node_arg import NodeArg
from autotune.errors import InputError
from autotune.runtime.artifact import is_compiled_file, load_artifact
from autotune.runtime.executor import Array, Executor, require_fit
from autotune.runtime.program import Program
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.api.locate import DatabaseLike  # brings SQLite, which a compiled model does not need
    from autotune.compiler.staged import StagedModel
    from autotune.graph.frontend import ModelSource


class InferenceSession:
    """A model ready to run. Several threads may call `run` at once.

    Args:
        path_or_bytes: an ONNX model (a path, bytes or onnx.ModelProto), or a file that `autotune compile` wrote.
        sess_options: accepted for compatibility with ONNX Runtime; only `intra_op_num_threads` is used.
        providers, provider_options: accepted for compatibility; autotune runs on the CPU.
        target: as for `autotune.compile`; a compiled file has its own.
        database: as for `autotune.compile`.
        shapes: dimensions of inputs by name, where the model leaves them open. Dimensions that stay open are bound
            by the inputs of each run: the first run of a shape compiles.
        fixed, strict_fp, max_memory, skip_passes, dump_graph, precision, max_error: as for `autotune.compile`; a
            compiled file has been made.
        max_loop_steps: a loop whose end the run decides and that goes on for longer is refused; None is 2**24 steps.

    Raises:
        ModelError, CompiledModelError, TargetError, DatabaseError: the model cannot be used; the message says why.
    """

    def __init__(
        self,
        path_or_bytes: ModelSource,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        *,
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
    ) -> None:
        path = Path(path_or_bytes) if isinstance(path_or_bytes, (str, os.PathLike)) else None
        if path is not None and is_compiled_file(path):
            self._model: Executor | StagedModel = Executor(*load_artifact(path))
        else:
            from autotune.api.load import load
            from autotune.compiler.compile import CompiledModel

            wanted = _with_threads(Target.parse(target), sess_options)
            found = load(
                path_or_bytes,
                wanted,
                database,
                shapes=shapes,
                fixed=fixed,
                strict_fp=strict_fp,
                max_memory=max_memory,
                skip_passes=skip_passes,
                dump_graph=dump_graph,
                max_loop_steps=max_loop_steps,
                precision=precision,
                max_error=max_error,
            )
            self._model = found.executor if isinstance(found, CompiledModel) else found
        self._outputs = [found.name for found in self.get_outputs()]

    def __repr__(self) -> str:
        inputs, outputs = (
            ", ".join(f"{arg.name}: {arg.type}{arg.shape}" for arg in args)
            for args in (self.get_inputs(), self.get_outputs())
        )
        return f"<InferenceSession ({inputs}) -> ({outputs})>"

    @property
    def program(self) -> Program:
        """The compiled model as data.

        Raises:
            InputError: the shapes are open or depend on values, so that there is no single program.
        """
        if not isinstance(self._model, Executor):
            raise InputError("the shapes of this model are known at run time only: it is no single program")
        return self._model.program

    @property
    def host_nodes(self) -> tuple[str, ...]:
        """The nodes that run on the host, between programs: as seen so far, before the first run those that may."""
        return () if isinstance(self._model, Executor) else self._model.host_nodes

    @property
    def segments(self) -> int:
        """How many programs a run is made of: the most seen so far, before the first run the least possible."""
        return 1 if isinstance(self._model, Executor) else self._model.segments

    def get_inputs(self) -> list[NodeArg]:
        model = self._model
        return [NodeArg.of(s) for s in (model.program.inputs if isinstance(model, Executor) else model.inputs)]

    def get_outputs(self) -> list[NodeArg]:
        model = self._model
        if isinstance(model, Executor):
            return [NodeArg.of(spec) for spec, _ in model.program.outputs]
        return [NodeArg.of(spec) for spec in model.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: the weights are constants of the program."""
        return []

    def get_providers(self) -> list[str]:
        return ["CPUExecutionProvider"]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {"CPUExecutionProvider": {}}

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session cannot be pickled or copied: make one from the model in each process")

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, object], run_options: object = None
    ) -> list[Array]:
        """The named outputs (all of them for None, or for no names) as new arrays.

        Args:
            input_feed: arrays of the inputs' dtypes by name; lists and numbers are converted.

        Raises:
            InputError: an input is missing, unknown or of another dtype or shape; an output is unknown.
        """
        _check_mapping(input_feed)
        if isinstance(output_names, str) or not isinstance(output_names or (), Iterable):
            raise InputError(f"output_names must be a list of names or None, not {output_names!r}")
        results = self._model.run(input_feed)
        if not output_names:
            return results
        unknown = [n for n in output_names if n not in self._outputs]
        if unknown:
            raise InputError(
                f"no output named {', '.join(map(str, unknown))}; the model has {', '.join(self._outputs)}"
            )
        return [results[self._outputs.index(n)] for n in output_names]

    def run_into(self, outputs: Mapping[str, Array], input_feed: Mapping[str, object]) -> None:
        """Write the named outputs into arrays of the caller; large ones are neither allocated nor copied.

        Args:
            outputs: C-contiguous arrays of the outputs' dtypes and shapes, by name. They must not overlap the inputs.

        Raises:
            InputError: as for `run`, or an array does not fit.
        """
        _check_mapping(input_feed)
        if not isinstance(outputs, Mapping):
            raise InputError(f"the outputs must be a mapping of names to arrays, not {type(outputs).__name__}")
        if isinstance(self._model, Executor):
            self._model.run(input_feed, outputs)
            return
        results = dict(zip(self._outputs, self._model.run(input_feed)))
        for name, array in outputs.items():
            if name not in results:
                raise InputError(f"no output named {name!r}; the model has {', '.join(self._outputs)}")
            require_fit(name, array, results[name].shape, results[name].dtype)
        for name, array in outputs.items():
            array[...] = results[name]


def _check_mapping(feeds: object) -> None:
    if not isinstance(feeds, (dict, Mapping)):
        raise InputError(f"the inputs must be a mapping of names to arrays, not {type(feeds).__name__}")


def _with_threads(target: Target, options: Any) -> Target:
    threads = int(getattr(options, "intra_op_num_threads", 0) or 0)
    return target.with_threads(threads) if threads else target
