"""A cluster in a thread of this process: a scheduler, and workers that come and go as a test says."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import dask
from distributed import Scheduler

from autotune.fleet.engine import Fleet, Patience
from autotune.fleet.host import serve
from autotune.fleet.identity import Identity
from autotune.fleet.service import Service
from autotune.measure.timing import TimingPolicy
from autotune.target import Target

Result = TypeVar("Result")


class Cluster:
    """Dask's scheduler and workers in an event loop of their own, on the loopback device."""

    def __init__(self) -> None:
        for name in ("distributed", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._leave: dict[str, tuple[asyncio.Event, asyncio.Future[None]]] = {}
        self._scheduler = self.call(self._begin(0))
        self.address: str = self._scheduler.address

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _begin(self, port: int) -> Scheduler:
        protocol = "tls" if dask.config.get("distributed.comm.require-encryption") else "tcp"
        return await Scheduler(
            host="127.0.0.1", port=port, protocol=protocol, dashboard=False, dashboard_address="127.0.0.1:0"
        )

    def restart(self) -> None:
        """The scheduler forgets everything, as one that was killed and started again."""
        port = int(self.address.rpartition(":")[2])
        self.call(self._scheduler.close())
        self._scheduler = self.call(self._begin(port))

    def close_scheduler(self) -> None:
        self.call(self._scheduler.close())

    def join(self, service: Service, name: str) -> str:
        """A worker, when it has joined; its address."""
        joined: list[str] = []
        ready = threading.Event()

        async def begin() -> tuple[asyncio.Event, asyncio.Future[None]]:
            stop = asyncio.Event()

            def tell(address: str) -> None:
                joined.append(address)
                ready.set()

            task = asyncio.ensure_future(serve(service, self.address, name=name, joined=tell, stop=stop))
            return stop, task

        self._leave[name] = self.call(begin())
        assert ready.wait(30)
        return joined[0]

    def leave(self, name: str) -> None:
        stop, task = self._leave.pop(name)

        async def end() -> None:
            stop.set()
            await task

        self.call(end())

    def close(self) -> None:
        for name in list(self._leave):
            self.leave(name)
        self.call(self._scheduler.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    try:
        yield made
    finally:
        made.close()


@contextmanager
def one_worker(
    *,
    builders: int = 0,
    targets: Sequence[Target] = (),
    timeout: float = 30.0,
    memory_bytes: int | None = None,
    imports: tuple[str, ...] = (),
    policy: TimingPolicy | None = None,
) -> Iterator[Fleet]:
    """A fleet of one worker that does all this."""
    identity = Identity.here(imports, builders=builders, targets=targets)
    service = Service(identity, timeout=timeout, memory_bytes=memory_bytes, imports=imports, policy=policy)
    try:
        with cluster() as made:
            made.join(service, "one")
            with Fleet(made.address, Identity.here(imports), Patience(alone=30)) as fleet:
                yield fleet
    finally:
        service.close()


class Scripted(Service):
    """Answers as a test says, without any process."""

    def __init__(self, identity: Identity, answer: Callable[[bytes, str], bytes]) -> None:
        super().__init__(identity)
        self._script = answer

    def handle(self, frame: bytes, name: str = "") -> bytes:
        return self._script(frame, name)
