"""Time a model beside other engines, in one setting or in several: threads, streams, batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autotune.api.exact import exact_outputs
from autotune.api.feeds import complete_feeds
from autotune.api.load import Runnable, load
from autotune.api.locate import DatabaseLike
from autotune.api.node_arg import NodeArg
from autotune.api.observe import run_observed
from autotune.api.staged import open_staged
from autotune.compiler.compile import CompiledModel
from autotune.compiler.staged_file import target_of
from autotune.engines.compare import Comparison, compare
from autotune.engines.engine import Array, Engine, Ours
from autotune.engines.float_environment import own_float_environment
from autotune.engines.peers import load_peer, load_streams
from autotune.engines.streams import Streams
from autotune.errors import EngineError, InputError
from autotune.graph import open_model
from autotune.machine import core_sets
from autotune.ops.registry import has_trait
from autotune.ops.traits import Trait
from autotune.report.coverage import Coverage
from autotune.runtime.artifact import load_artifact
from autotune.runtime.compiled_file import open_compiled
from autotune.runtime.executor import Executor
from autotune.runtime.file_head import is_compiled_file, is_staged_file
from autotune.runtime.signature import Trust, unsigned
from autotune.target import Target
from autotune.tensor.declared import bind_shapes

UNTUNED, F32 = "autotune untuned", "autotune f32"


@dataclass(frozen=True, slots=True)
class Setting:
    """
    Attributes:
        target: of all streams together.
        streams: sessions that run at once, each on its share of the target's threads.
        batch: extent of the inputs' first dimension, where that is open; None: as the shapes say.
    """

    target: Target
    streams: int = 1
    batch: int | None = None

    def __post_init__(self) -> None:
        if self.target.num_threads % self.streams:
            raise EngineError(
                f"{self.streams} streams cannot share {self.target.num_threads} threads evenly; choose a multiple"
            )

    @property
    def each(self) -> Target:
        """What one stream is compiled for."""
        return self.target.with_threads(self.target.num_threads // self.streams)


@dataclass(frozen=True, slots=True)
class Ask:
    """What is timed, in every setting.

    Attributes:
        shapes, inputs: dimensions, and arrays by name; the inputs that are not given are drawn.
        peers: names of engines.
        rounds, seconds, warm_up: as for `compare`.
        untuned: time our untuned program as well.
        exact: check answers against float64 arithmetic.
        trust: whose signature a compiled file must have.
    """

    model: Path
    database: DatabaseLike = None
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    inputs: Mapping[str, Array] = field(default_factory=dict)
    peers: Sequence[str] = ()
    rounds: int = 20
    seconds: float | None = None
    warm_up: float = 0.0
    untuned: bool = False
    exact: bool = False
    precision: str = "model"
    max_error: float | None = None
    trust: Trust | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """What was found in one setting.

    Attributes:
        flops: of one run.
        checked: what errors are relative to.
        coverage: None of a compiled file, which does not know.
        expected_error: about what our rounding should make, of the outputs' range; None where nobody knows.
        narrow: some of our products are in 16 bits, but for those of the engine that is called f32.
        rounded: the model itself rounds to 8 bits: one number that falls the other way moves all that follow.
    """

    setting: Setting
    comparison: Comparison
    flops: int
    checked: str = "onnxruntime"
    coverage: Coverage | None = None
    expected_error: float | None = None
    narrow: bool = False
    rounded: bool = False


def settings(
    model: Path, target: Target, threads: Sequence[int] = (), streams: int = 1, batches: Sequence[int] = ()
) -> list[Setting]:
    """One setting for each number of threads and each batch; one for all where none is given.

    Raises:
        EngineError: the streams cannot share the threads, or a compiled file is asked for what it was not made for.
    """
    if is_compiled_file(model):
        made = target_of(model) if is_staged_file(model) else Target.from_json(load_artifact(model).programs[0].target)
        target = made.with_threads(made.num_threads * streams)
        for wanted in threads:
            if wanted != target.num_threads:
                raise EngineError(
                    f"{model} was compiled for {made.num_threads} threads; compile it again for {wanted // streams}"
                )
        if batches:
            raise EngineError(f"{model} was compiled for one batch; give the model itself")
    every = [target.with_threads(number) for number in threads] or [target]
    extents: Sequence[int | None] = batches or [None]
    return [Setting(one, streams, batch) for one in every for batch in extents]


@own_float_environment()
def bench_model(ask: Ask, setting: Setting, note: Callable[[str], None]) -> Timing:
    """Time a model.

    Args:
        note: told of engines that are left out.

    Raises:
        EngineError, ModelError, InputError, TargetError: what was asked for is impossible.
        CompiledModelError: the file is damaged, or not signed as `ask.trust` wants.
    """
    if ask.trust is not None and not is_compiled_file(ask.model):
        raise unsigned(ask.model)
    cores = core_sets(setting.streams) if setting.streams > 1 else []
    loaded = (_file if is_compiled_file(ask.model) else _model)(ask, setting, note)
    engines = [Streams(session, cores) if cores else session(0) for session in loaded.sessions]
    threads = setting.each.num_threads
    for name in loaded.peers:
        try:
            if cores:
                engines.append(load_streams(name, ask.model, threads, loaded.shapes, cores))
            else:
                engines.append(load_peer(name, ask.model, threads, loaded.shapes))
        except EngineError as error:
            note(f"{error}: left out")
    programs = loaded.programs
    kernels = [kernel for program in programs for kernel in program.kernels]
    found = compare(
        engines,
        loaded.feeds,
        setting.target,
        flops=loaded.flops,
        rounds=ask.rounds,
        seconds=ask.seconds,
        warm_up=ask.warm_up,
        right=exact_outputs(ask.model, loaded.feeds, loaded.shapes) if ask.exact else None,
    )
    return Timing(
        setting,
        found,
        loaded.flops,
        "float64" if ask.exact else "onnxruntime",
        Coverage.of(kernels) if programs else None,
        programs[0].expected_error if len(programs) == 1 else None,
        any(program.precise.narrow for program in programs),
        any(has_trait(node.op, Trait.ROUNDS) for kernel in kernels for node in kernel.workload.nodes),
    )


@dataclass(frozen=True, slots=True)
class _Loaded:
    """
    Attributes:
        sessions: of each engine of ours: makes the session of a stream, given its number.
        peers: those that can take part; `shapes`: of all inputs, for them, where the user or the batch gave some.
        programs: what is known of what runs; none of a compiled file.
    """

    sessions: Sequence[Callable[[int], Engine]]
    feeds: Mapping[str, Array]
    flops: int
    peers: Sequence[str]
    shapes: Mapping[str, Sequence[int]]
    programs: Sequence[CompiledModel] = ()


def _model(ask: Ask, setting: Setting, note: Callable[[str], None]) -> _Loaded:
    shapes = dict(ask.shapes)
    if setting.batch is not None:
        shapes |= batch_shapes(ask.model, shapes, setting.batch)

    def ours(name: str, database: DatabaseLike, precision: str, max_error: float | None) -> _Ours:
        def loading() -> Runnable:
            return load(ask.model, setting.each, database, shapes=shapes, precision=precision, max_error=max_error)

        return _Ours(name, loading)

    first = ours("autotune", ask.database, ask.precision, ask.max_error)
    found = [first]
    if ask.untuned:
        found.append(ours(UNTUNED, False, ask.precision, ask.max_error))
    if ask.precision not in ("model", "f32"):
        found.append(ours(F32, ask.database, "model", None))
    feeds = complete_feeds([NodeArg.of(spec) for spec in first.model.inputs], ask.inputs, 0)
    programs = run_observed(first.model, feeds, ask.inputs)
    flops = sum(program.program.flops for program in programs)
    fixed = {name: array.shape for name, array in feeds.items()} if shapes else {}
    return _Loaded([one.session for one in found], feeds, flops, ask.peers, fixed, programs)


def _file(ask: Ask, setting: Setting, note: Callable[[str], None]) -> _Loaded:
    if ask.exact:
        raise EngineError(
            f"{ask.model} is a compiled file, which float64 arithmetic cannot follow; give the model itself"
        )
    if ask.peers:
        note(f"{ask.model} is a compiled file, which other engines cannot read: they are left out")
    if is_staged_file(ask.model):
        return _staged_file(ask)
    opened = open_compiled(ask.model, ask.trust, ask.shapes)
    feeds = complete_feeds([NodeArg.of(spec) for spec in opened.inputs], ask.inputs, 0)
    flops = opened.program.flops if isinstance(opened, Executor) else opened.flops(feeds)
    return _Loaded([lambda number: Ours(open_compiled(ask.model, ask.trust, ask.shapes))], feeds, flops, (), {})


def _staged_file(ask: Ask) -> _Loaded:
    """A run tells its programs."""
    opened = open_staged(ask.model, ask.trust, ask.database)
    inputs = bind_shapes(opened.inputs, ask.shapes)
    feeds = complete_feeds([NodeArg.of(declared) for declared in inputs], ask.inputs, 0)
    flops = sum(program.program.flops for program in run_observed(opened, feeds, ask.inputs))
    return _Loaded([lambda number: Ours(open_staged(ask.model, ask.trust, ask.database))], feeds, flops, (), {})


class _Ours:
    """A model of ours, compiled once where it is one program, with threads and memory of its own for each session."""

    def __init__(self, name: str, loading: Callable[[], Runnable]) -> None:
        self._name, self._loading = name, loading
        self.model = loading()

    def session(self, number: int) -> Engine:
        model = self.model
        if number == 0:
            return Ours(model, self._name)
        if isinstance(model, CompiledModel):
            return Ours(Executor(model.program, model.objects, model.constants, model.runtime), self._name)
        return Ours(self._loading(), self._name)


def batch_shapes(model: Path, shapes: Mapping[str, Sequence[int]], batch: int) -> dict[str, tuple[int, ...]]:
    """What binds the open first dimensions of a model's inputs to a batch.

    Raises:
        InputError: no input has one.
    """
    found: dict[str, tuple[int, ...]] = {}
    for declared in open_model(model, shapes).inputs:
        dims = declared.dims or (0,)
        if isinstance(dims[0], str):
            found[dims[0]] = (batch,)
        elif dims[0] is None and all(isinstance(dim, int) for dim in dims[1:]):
            found[declared.name] = (batch, *(dim for dim in dims[1:] if isinstance(dim, int)))
    if not found:
        raise InputError(f"no input of {model} has an open first dimension, so its batch is fixed; export it with one")
    return found
