"""`Runner`: a `LocalRunner` inside an isolated worker process. A crash, a hang or a bomb becomes a `Failure`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any, TypeVar, cast

from autotune import machine
from autotune.errors import MeasureError
from autotune.measure.failure import Failure
from autotune.measure.local_runner import STAND_ALONE, LocalRunner, RunOptions
from autotune.measure.peaks import Peak, fma_peak
from autotune.measure.protocol import Json, Message
from autotune.measure.timing import TimingPolicy
from autotune.measure.types import BuildResult, MeasureInput, MeasureResult
from autotune.measure.worker import HasWorkers, WorkerPool, WorkerSpec, mapped
from autotune.target import Target

Result = TypeVar("Result")


class AskedRunner(ABC):
    """Verifies and times kernels wherever its messages go. What `serve` handles is written and read here."""

    @abstractmethod
    def ask(self, request: Message, decode: Callable[[Message], Result]) -> Future[Result | Failure]:
        """Queue a request; the future holds what `decode` makes of the reply, or a `Failure`."""

    def submit(
        self, candidate: MeasureInput, build: BuildResult, options: RunOptions = STAND_ALONE
    ) -> Future[MeasureResult | Failure]:
        """Queue a trial; at once back."""
        request = _request("run", candidate, [build], options)
        return self.ask(request, lambda message: MeasureResult.from_json(message.body["result"]))

    def run(
        self, candidate: MeasureInput, build: BuildResult, options: RunOptions = STAND_ALONE
    ) -> MeasureResult | Failure:
        """Verify and time one kernel."""
        return self.submit(candidate, build, options).result()

    def compare(
        self,
        candidate: MeasureInput,
        builds: Sequence[BuildResult],
        rounds: int = 20,
        options: RunOptions = STAND_ALONE,
    ) -> list[MeasureResult | Failure]:
        """Verify kernels of one workload, then time them in turn; when the worker breaks, all of them failed."""

        def decode(message: Message) -> list[MeasureResult | Failure]:
            outcomes = cast("list[dict[str, Json]]", message.body["results"])
            return [_outcome_from_json(item) for item, _ in zip(outcomes, builds, strict=True)]

        answer = self.ask(_request("compare", candidate, builds, options, rounds=rounds), decode).result()
        return [answer] * len(builds) if isinstance(answer, Failure) else answer

    def peak(self, patience: float) -> Peak:
        """fp32 FMA throughput of the target's threads; see `fma_peak`.

        Raises:
            MeasureError: the worker broke over it.
        """
        request = Message({"do": "peak", "patience": patience})
        answer = self.ask(request, lambda message: Peak.from_json(message.body["peak"])).result()
        if isinstance(answer, Failure):
            raise MeasureError(f"the peak could not be measured: {answer.kind}: {answer.message}")
        return answer


class Runner(HasWorkers, AskedRunner):
    """Verifies and times kernels, one at a time, in one worker process that is replaced when a kernel breaks it."""

    slots = 1

    def __init__(
        self,
        target: Target,
        policy: TimingPolicy | None = None,
        *,
        seed: int = 0,
        timeout: float = 30.0,
        memory_bytes: int | None = None,
        imports: tuple[str, ...] = (),
    ) -> None:
        """
        Args:
            target: what the kernels are for; it says how many threads run them.
            policy: how long to time.
            seed: of the inputs.
            timeout: seconds per trial; the worker is killed after that.
            memory_bytes: resident memory allowed; by default half of what this machine has.
            imports: modules or Python files with the user's own operators.

        Raises:
            TargetError: this machine cannot run code for `target`.
        """
        target.require_host()
        init: dict[str, Json] = {
            "target": target.to_json(),
            "policy": asdict(policy or TimingPolicy()),
            "seed": seed,
        }
        limit = machine.memory_bytes() // 2 if memory_bytes is None else memory_bytes
        super().__init__(WorkerPool(WorkerSpec(f"{__name__}:serve", init, timeout, limit, imports=imports)))
        self._timeout = timeout

    def ask(self, request: Message, decode: Callable[[Message], Result]) -> Future[Result | Failure]:
        return mapped(self.request(request), decode)

    def request(self, request: Message) -> Future[Message | Failure]:
        """Queue a request as it came; each kernel in it has its time."""
        builds = cast("list[Json]", request.body.get("builds", []))
        patience = cast(float, request.body.get("patience", 0.0))
        kernels = 1 if request.body["do"] == "run" else 1 + len(builds)
        return self._pool.submit(request, self._timeout * kernels + patience)


def serve(init: Mapping[str, Json]) -> Callable[[Message], Message | Failure]:
    """The worker's side: a handler around a `LocalRunner`."""
    given = cast("dict[str, Any]", init)
    target = Target.from_json(given["target"]).at_home()
    runner = LocalRunner(target, TimingPolicy(**given["policy"]), given["seed"])

    def handle(request: Message) -> Message | Failure:
        body = cast("dict[str, Any]", request.body)
        if body["do"] == "peak":
            return Message({"peak": fma_peak(target, body["patience"]).to_json()})
        candidate = MeasureInput.from_json(body["input"])
        options = RunOptions(**body["options"])
        builds = [
            BuildResult.from_message(Message(build, (blob,)))
            for build, blob in zip(body["builds"], request.blobs, strict=True)
        ]
        if body["do"] == "run":
            result = runner.run(candidate, builds[0], options)
            return result if isinstance(result, Failure) else Message({"result": result.to_json()})
        results = runner.compare(candidate, builds, body["rounds"], options)
        return Message({"results": [_outcome_to_json(result) for result in results]})

    return handle


def _request(
    do: str, candidate: MeasureInput, builds: Sequence[BuildResult], options: RunOptions, **more: Json
) -> Message:
    messages = [build.to_message() for build in builds]
    body: dict[str, Json] = {
        "do": do,
        "input": candidate.to_json(),
        "builds": [message.body for message in messages],
        "options": asdict(options),
        **more,
    }
    return Message(body, tuple(blob for message in messages for blob in message.blobs))


def _outcome_to_json(outcome: MeasureResult | Failure) -> Json:
    return {"failure" if isinstance(outcome, Failure) else "result": outcome.to_json()}


def _outcome_from_json(data: Mapping[str, Json]) -> MeasureResult | Failure:
    return Failure.from_json(data["failure"]) if "failure" in data else MeasureResult.from_json(data["result"])
