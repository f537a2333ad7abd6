"""Races: compiled programs timed in turn on the same inputs, in a process of their own that may crash or hang."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

import numpy as np

from autotune import machine
from autotune.engines.compare import compare
from autotune.engines.engine import Array, Feeds, Ours
from autotune.errors import MeasureError
from autotune.measure.failure import Failure
from autotune.measure.protocol import Json, Message
from autotune.measure.worker import HasWorkers, WorkerPool, WorkerSpec
from autotune.runtime.artifact import load_artifact
from autotune.runtime.constants import Constants
from autotune.runtime.executor import Executor
from autotune.runtime.program import Program
from autotune.target import Target
from autotune.tensor.aligned import aligned_empty
from autotune.tensor.dtype import DType

if TYPE_CHECKING:
    from autotune.compiler.compile import CompiledModel

_TIMEOUT = 3600.0  # the programs are made of kernels that were verified: nobody knows better how long they may take


@dataclass(frozen=True, slots=True)
class RaceResult:
    """
    Attributes:
        samples: seconds per call of each round, by program.
        error: the largest difference between any program's answers and the reference's, relative to the output's range.
        disturbance: what other programs took of the cores meanwhile, in words; empty when it was quiet.
    """

    samples: tuple[tuple[float, ...], ...]
    error: float
    disturbance: str = ""

    def to_json(self) -> dict[str, Json]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Json]) -> RaceResult:
        """Inverse of `to_json`.

        Raises:
            MeasureError: it is none.
        """
        match data:
            case {"samples": list(rounds), "error": float(error), "disturbance": str(disturbance)}:
                samples = tuple(tuple(cast("list[float]", one)) for one in rounds)
                return RaceResult(samples, error, disturbance)
        raise MeasureError(f"no result of a race: {str(data)[:200]}")


class RacerLike(Protocol):
    """Who can time programs in turn."""

    def race(
        self, programs: Mapping[str, CompiledModel], feeds: Feeds, *, flops: int, rounds: int, reference: str
    ) -> RaceResult:
        """Time each program once a round.

        Args:
            programs: by name, all with the same inputs.
            flops: of one inference.
            reference: the name of the program whose answers are right.

        Raises:
            MeasureError: a program broke, in one line.
        """


class Racer(HasWorkers):
    """Races on this machine, one at a time."""

    def __init__(self, target: Target, *, timeout: float = _TIMEOUT, memory_bytes: int | None = None) -> None:
        """
        Args:
            timeout: seconds of a race.
            memory_bytes: resident memory allowed; by default half of what this machine has.

        Raises:
            TargetError: this machine cannot run code for `target`.
        """
        target.require_host()
        limit = machine.memory_bytes() // 2 if memory_bytes is None else memory_bytes
        spec = WorkerSpec(f"{__name__}:serve", {"target": target.to_json()}, timeout, limit)
        super().__init__(WorkerPool(spec))

    def race(
        self, programs: Mapping[str, CompiledModel], feeds: Feeds, *, flops: int, rounds: int, reference: str
    ) -> RaceResult:
        """See `RacerLike`."""
        with ExitStack() as stack:
            files = {name: stack.enter_context(_in_memory(model.write)) for name, model in programs.items()}
            blobs = feed_blobs(next(iter(programs.values())).program, feeds)
            return result_of(self._run(files, blobs, {"flops": flops, "rounds": rounds, "reference": reference}))

    def run(self, request: Message) -> Message | Failure:
        """A race that came as a message, see `request_of`."""
        names = cast("list[str]", request.body["names"])
        with ExitStack() as stack:
            files = {
                name: stack.enter_context(_in_memory(lambda file, blob=blob: file.write(blob)))  # type: ignore[misc]
                for name, blob in zip(names, request.blobs)
            }
            how = {key: request.body[key] for key in ("flops", "rounds", "reference")}
            return self._run(files, request.blobs[len(names) :], how)

    def _run(self, files: Mapping[str, Path], feeds: Sequence[bytes], how: dict[str, Json]) -> Message | Failure:
        paths: dict[str, Json] = {name: str(path) for name, path in files.items()}
        return self._pool.submit(Message({"programs": paths, **how}, tuple(feeds))).result()


def request_of(
    programs: Mapping[str, CompiledModel], feeds: Feeds, *, flops: int, rounds: int, reference: str
) -> Message:
    """A race as a message that carries its programs, for another machine."""
    blobs = []
    for model in programs.values():
        with _in_memory(model.write) as path:
            blobs.append(path.read_bytes())
    blobs += feed_blobs(next(iter(programs.values())).program, feeds)
    names: list[Json] = list(programs)
    return Message({"names": names, "flops": flops, "rounds": rounds, "reference": reference}, tuple(blobs))


def result_of(answer: Message | Failure) -> RaceResult:
    """
    Raises:
        MeasureError: there was none.
    """
    if isinstance(answer, Failure):
        raise MeasureError(f"the model could not be timed: {answer.kind}: {answer.message}")
    return RaceResult.from_json(answer.body)


def feed_blobs(program: Program, feeds: Feeds) -> list[bytes]:
    """The bytes of each input, in the program's order."""
    return [np.ascontiguousarray(feeds[spec.name]).tobytes() for spec in program.inputs]


@contextmanager
def _in_memory(write: Callable[[BinaryIO], object]) -> Iterator[Path]:
    """A file that no disk sees, for as long as the context lasts: what is written there disturbs no timing later."""
    with os.fdopen(os.memfd_create("autotune-program"), "w+b") as file:
        write(file)
        file.flush()
        yield Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")


def serve(init: Mapping[str, Json]) -> Callable[[Message], Message | Failure]:
    """The worker's side."""
    target = Target.from_json(cast(str, init["target"]))

    def handle(request: Message) -> Message | Failure:
        body = cast("dict[str, Any]", request.body)
        loaded = {name: _loaded(Path(path)) for name, path in body["programs"].items()}
        feeds = _feeds(next(iter(loaded.values())).program, request.blobs)
        engines = [Ours(executor, name) for name, executor in loaded.items()]
        found = compare(engines, feeds, target, flops=body["flops"], rounds=body["rounds"], reference=body["reference"])
        error = max((one.max_error or 0.0 for one in found.results), default=0.0)
        result = RaceResult(tuple(one.samples for one in found.results), error, found.disturbance)
        return Message(result.to_json())

    return handle


def _loaded(path: Path) -> Executor:
    """A program with its weights in memory of its own, in large pages, as sessions have them: from a mapped file a run
    takes some percent longer, which hid what tuning had gained."""
    program, objects, mapped, runtime = load_artifact(path).alone()
    memory, end = aligned_empty(mapped.nbytes), 0
    for chunk in mapped.chunks():
        memory[end : end + chunk.nbytes] = chunk
        end += chunk.nbytes
    return Executor(program, objects, Constants.of(memory), runtime)


def _feeds(program: Program, blobs: Sequence[bytes]) -> dict[str, Array]:
    return {
        spec.name: np.frombuffer(blob, DType(spec.dtype).numpy).reshape(spec.shape)
        for spec, blob in zip(program.inputs, blobs, strict=True)
    }
