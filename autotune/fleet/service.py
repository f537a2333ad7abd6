"""Service: what a worker of a cluster does with a request. The same isolated processes as on a tuner's own machine."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import cast

from autotune.engines.race import Racer
from autotune.errors import AutotuneError, MeasureError
from autotune.fleet.identity import Identity
from autotune.fleet.turns import Turns
from autotune.measure.builder import Builder
from autotune.measure.failure import Failure
from autotune.measure.protocol import Decoder, Json, Message, encode
from autotune.measure.runner import Runner
from autotune.measure.timing import TimingPolicy

BUILD, RACE = "build", "race"


class Service:
    """Handles requests, several at a time; the processes start with the first request of their kind.

    Args:
        identity: what was promised to do.
        timeout: seconds per candidate.
        memory_bytes: resident memory of each process; by default, what builders and runners take on a tuner's machine.
        imports: modules or Python files with the user's own operators and templates.
        policy: how long to time a kernel.
        turns: of this machine.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        timeout: float = 30.0,
        memory_bytes: int | None = None,
        imports: Sequence[str] = (),
        policy: TimingPolicy | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.identity = identity
        self._timeout, self._memory, self._imports = timeout, memory_bytes, tuple(imports)
        self._policy, self._turns = policy, turns or Turns()
        threads = max((target.num_threads for target in identity.targets), default=identity.cores)
        self._builds_disturb = identity.builders > identity.cores - threads
        self._targets = {target.key: target for target in identity.targets}
        self._lock = threading.Lock()
        self._builder: Builder | None = None
        self._runners: dict[str, Runner] = {}
        self._probes: dict[str, list[float]] = {}  # by target: the best one, and the last one
        self._done = self._disturbed = 0

    def handle(self, frame: bytes, name: str = "") -> bytes:
        """The answer to a request, both as frames: `reply`, `failure`, or `broken`, when this worker is at fault.

        Args:
            name: of this worker, as whoever asks knows it.
        """
        answer: Message | Failure
        body: dict[str, Json]
        try:
            (request,) = Decoder().feed(frame)
            answer = self._answer(request)
        except (AutotuneError, KeyError, TypeError, ValueError, OSError) as error:
            body = {"by": name, "broken": f"{type(error).__name__}: {error}"[:1000]}
            return encode(Message(body))
        if isinstance(answer, Failure):
            return encode(Message({"by": name, "failure": answer.to_json()}))
        return encode(Message({"by": name, "reply": answer.body}, answer.blobs))

    def state(self) -> dict[str, Json]:
        """How it goes, for `autotune cluster status`: trials, and the last FMA probe by the best one."""
        with self._lock:
            drift = max((1 - last / best for best, last in self._probes.values() if best > 0), default=0.0)
            return {"done": self._done, "disturbed": self._disturbed, "drift": drift}

    def close(self) -> None:
        """Kills the processes. Idempotent."""
        with self._lock:
            workers = [*self._runners.values(), *([self._builder] if self._builder else [])]
            self._runners, self._builder = {}, None
        for worker in workers:
            worker.close()

    def _answer(self, request: Message) -> Message | Failure:
        do = request.body["do"]
        if do == BUILD:
            with self._turns.building() if self._builds_disturb else nullcontext():
                found = self._builders().request(request).result()
            self._count(found)
            return found
        key = cast(str, request.body["target"])
        if key not in self._targets:
            raise MeasureError(
                f"it was asked to run code for {key}, and runs none; its own: {', '.join(self._targets)}"
            )
        with self._turns.measuring():
            if do == RACE:
                with Racer(self._targets[key], memory_bytes=self._memory) as racer:
                    return racer.run(request)
            found = self._runner(key).request(request).result()
        self._count(found, key)
        return found

    def _builders(self) -> Builder:
        with self._lock:
            if self._builder is None:
                if not self.identity.builders:
                    raise MeasureError("it was asked to build, and builds nothing")
                limit = {} if self._memory is None else {"memory_bytes": self._memory}
                self._builder = Builder(self.identity.builders, timeout=self._timeout, imports=self._imports, **limit)
            return self._builder

    def _runner(self, key: str) -> Runner:
        with self._lock:
            if key not in self._runners:
                self._runners[key] = Runner(
                    self._targets[key],
                    self._policy,
                    timeout=self._timeout,
                    memory_bytes=self._memory,
                    imports=self._imports,
                )
            return self._runners[key]

    def _count(self, found: Message | Failure, key: str = "") -> None:
        result = found.body.get("result") if isinstance(found, Message) else None
        with self._lock:
            self._done += 1
            if isinstance(result, Mapping):
                probe = cast(float, result["probe_gflops"])
                best = self._probes.get(key, [0.0])[0]
                self._probes[key] = [max(best, probe), probe]
                self._disturbed += bool(result["disturbed"])
