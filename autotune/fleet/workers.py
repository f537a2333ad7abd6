"""The builder, the runner and the racer of a cluster: the protocols and the messages are those of one machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from autotune.engines.engine import Feeds
from autotune.engines.race import RaceResult, request_of, result_of
from autotune.fleet.engine import Fleet
from autotune.fleet.identity import build_resource, run_resource
from autotune.fleet.service import RACE
from autotune.measure.builder import AskedBuilder
from autotune.measure.failure import Failure
from autotune.measure.protocol import Message
from autotune.measure.runner import AskedRunner
from autotune.measure.types import BuildResult
from autotune.target import Target

if TYPE_CHECKING:
    from autotune.compiler.compile import CompiledModel

Result = TypeVar("Result")

_QUEUED = 2  # requests for each runner: one is at work while the next one is on its way


class FleetBuilder(AskedBuilder):
    """Builds candidates on whatever workers build."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._resource = fleet, build_resource(fleet.identity.code)

    @property
    def slots(self) -> int:
        """How many candidates all of them build at a time, now; at least one is waited for."""
        return max(1, round(sum(m.resources[self._resource] for m in self._fleet.offering(self._resource))))

    def ask(self, request: Message, decode: Callable[[Message], BuildResult]) -> Future[BuildResult | Failure]:
        return self._fleet.ask(self._resource, request, decode)


class FleetRunner(AskedRunner):
    """Times kernels, and programs, on the workers that run code for one target."""

    def __init__(self, fleet: Fleet, target: Target) -> None:
        self._fleet, self._target = fleet, target
        self._resource = run_resource(target, fleet.identity.code)

    @property
    def slots(self) -> int:
        """How many kernels to hand out at a time, now."""
        return _QUEUED * max(1, len(self._fleet.offering(self._resource)))

    def ask(self, request: Message, decode: Callable[[Message], Result]) -> Future[Result | Failure]:
        asked = Message({**request.body, "target": self._target.key}, request.blobs)
        return self._fleet.ask(self._resource, asked, decode, self._target.key)

    def race(
        self, programs: Mapping[str, CompiledModel], feeds: Feeds, *, flops: int, rounds: int, reference: str
    ) -> RaceResult:
        """See `RacerLike`."""
        asked = request_of(programs, feeds, flops=flops, rounds=rounds, reference=reference)
        return result_of(self.ask(Message({"do": RACE, **asked.body}, asked.blobs), lambda message: message).result())
