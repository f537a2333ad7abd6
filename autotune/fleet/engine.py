"""Fleet: a tuner's side of a Dask cluster. Requests go out as tasks, and come back whatever becomes of the workers.

Dask matches tasks with workers by their resources, queues them, and gives those of a dead worker to others. Here is
what it leaves open: who may be asked at all, workers that hang or answer nonsense, and a scheduler that dies. A request
is kept until it is answered, and goes out again when it is lost; so it may run twice, and is answered once.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar, cast

from distributed import Client, KilledWorker

from autotune.errors import AutotuneError, ClusterError
from autotune.fleet.health import Health
from autotune.fleet.host import handle
from autotune.fleet.identity import Identity
from autotune.fleet.member import Member, members_of
from autotune.fleet.reach import connect_seconds, require_reachable, unreachable
from autotune.measure.failure import Failure
from autotune.measure.protocol import Decoder, Json, Message, encode

Result = TypeVar("Result")

_LOOK_SECONDS = 1.0  # between two looks at the members
_AGAIN_SECONDS = 0.1  # before a request that was lost goes out again
_LARGE = 1 << 20  # bytes of a request that go straight to the workers, not through the scheduler
_TRIES = 4  # workers that may break over a request before it counts as its own fault
_LOST = (asyncio.CancelledError, concurrent.futures.CancelledError)  # what Dask raises of a task that it has lost

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds.

    Attributes:
        alone: without a scheduler, or without a worker for a request, before the run gives up.
        silent: that a worker may say nothing before it counts as hung.
        answer: that a request may take, once for each worker that is asked.
    """

    alone: float = 120.0
    silent: float = 20.0
    answer: float = 600.0


class Fleet:
    """Workers that can work with this process, and the requests they are asked. Safe to use from several threads."""

    def __init__(self, scheduler: str, identity: Identity, patience: Patience | None = None) -> None:
        """Connects.

        Args:
            scheduler: tcp://HOST:PORT, or tls://HOST:PORT where Dask is configured for it.
            identity: what workers are to work with.

        Raises:
            ClusterError: there is no scheduler.
        """
        self.scheduler, self.identity = scheduler, identity
        self.health = Health()
        self._patience = patience or Patience()
        self._members: dict[str, Member] = {}
        self._heard: dict[str, tuple[float, float]] = {}  # by address: last_seen, and when that was new to us
        self._told: set[str] = set()
        self._number = itertools.count()
        self._run_id = uuid.uuid4().hex[:12]
        self._closing = False
        self._client: Client | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="autotune-fleet", daemon=True)
        self._thread.start()
        try:
            self._wait_for(self._begin())
        except BaseException:
            self.close()
            raise

    @property
    def members(self) -> tuple[Member, ...]:
        """As the scheduler has listed them last."""
        return tuple(self._members.values())

    def offering(self, resource: str) -> list[Member]:
        """Those that can work with this process, offer a resource, and are not set aside, if any is left."""
        fit = {m.address: m for m in self.members if not m.problem and m.offers(resource)}
        return [fit[address] for address in self.health.good(list(fit))]

    def ask(
        self, resource: str, request: Message, decode: Callable[[Message], Result], group: str = ""
    ) -> Future[Result | Failure]:
        """Have some worker with a resource answer a request.

        Args:
            decode: of the answer; what it refuses is no answer.
            group: of runners that are held against one another: the target's key.

        Returns:
            What was made of the answer; or raises ClusterError when there is nobody to ask any more.
        """
        future: Future[Result | Failure] = Future()
        task = asyncio.run_coroutine_threadsafe(
            self._serve(resource, encode(request), decode, group, future), self._loop
        )
        future.add_done_callback(lambda done: task.cancel() if done.cancelled() else None)
        return future

    def refresh(self) -> tuple[Member, ...]:
        """The members now.

        Raises:
            ClusterError: the scheduler does not answer.
        """
        self._wait_for(self._look())
        return self.members

    def close(self) -> None:
        """Leaves the cluster; what is still asked is cancelled. Idempotent."""
        if self._closing:
            return
        self._closing = True
        self._wait_for(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _begin(self) -> None:
        await require_reachable(self.scheduler, "client")
        self._client = await self._connected()
        await self._look()
        self._watching = asyncio.ensure_future(self._watch())

    async def _end(self) -> None:
        for task in asyncio.all_tasks() - {cast("asyncio.Task[Any]", asyncio.current_task())}:
            task.cancel()
        if self._client is not None:
            await self._client.close(timeout=2)

    async def _connected(self) -> Client:
        client: Client | None = None
        try:
            client = Client(
                self.scheduler, asynchronous=True, set_as_default=False, name="autotune", timeout=connect_seconds()
            )
            # Dask's own patience ends with the connection: who accepts it and is silent is waited for without end.
            return await asyncio.wait_for(_started(client), 2 * connect_seconds())
        except Exception as error:  # what Dask raises depends on what it takes the other side's bytes for
            if client is not None:
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(client.close(timeout=1), connect_seconds())
            raise ClusterError(unreachable(self.scheduler, error)) from error

    async def _alive(self) -> Client:
        """The client, connected, after the scheduler was waited for.

        Raises:
            ClusterError: it stays away.
        """
        end = time.monotonic() + self._patience.alone
        while self._client is None or self._client.status != "running":
            if time.monotonic() >= end:
                raise ClusterError(f"the scheduler {self.scheduler} has not answered for {self._patience.alone:.0f} s")
            await asyncio.sleep(0.1)
        return self._client

    async def _watch(self) -> None:
        """Keeps the connection, and the list of members; removes workers that have hung."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                if self._client is None or self._client.status in ("closed", "closing"):
                    _log.warning("the scheduler %s is gone; looking for it again", self.scheduler)
                    self._client = await self._connected()
                    _log.warning("the scheduler %s is back", self.scheduler)
                if self._client.status == "running":
                    await asyncio.wait_for(self._look(), connect_seconds())
            except (ClusterError, OSError, TimeoutError, asyncio.TimeoutError) as error:
                _log.info("%s", error)

    async def _look(self) -> None:
        assert self._client is not None
        try:
            found = {m.address: m for m in members_of(await self._client.scheduler.identity(), self.identity)}
        except (OSError, AttributeError) as error:  # Dask takes its connection away when that breaks
            raise ClusterError(unreachable(self.scheduler, error)) from error
        now = time.monotonic()
        for member in found.values():
            if self._heard.get(member.address, (-1.0, 0.0))[0] != member.last_seen:
                self._heard[member.address] = (member.last_seen, now)
            elif now - self._heard[member.address][1] > self._patience.silent:
                await self._remove(member)
            if member.problem and member.address not in self._told:
                self._told.add(member.address)
                _log.warning("worker %s (%s) is not used: %s", member.name, member.address, member.problem)
        for address in self._members.keys() - found.keys():
            self._heard.pop(address, None)
            _log.info("worker %s has left", address)
        for address in found.keys() - self._members.keys():
            _log.info("worker %s has joined", address)
        self._members = found

    async def _remove(self, member: Member) -> None:
        """Has the scheduler give a hung worker's tasks to others; when it comes back to life, it joins again."""
        assert self._client is not None
        _log.warning("worker %s has said nothing for %.0f s and is removed", member.name, self._patience.silent)
        stimulus = f"autotune-hung-{time.time()}"
        await self._client.scheduler.unregister(address=member.address, stimulus_id=stimulus)

    async def _serve(
        self,
        resource: str,
        frame: bytes,
        decode: Callable[[Message], Result],
        group: str,
        future: Future[Result | Failure],
    ) -> None:
        """Asks until there is an answer, and puts it into the future."""
        problems: list[str] = []
        found: Result | Failure | _Lost = _Lost()
        try:
            while isinstance(found, _Lost) and len(problems) < _TRIES:
                found = await self._ask_once(
                    resource, frame, decode, group, lambda: self._closing or future.cancelled()
                )
                if isinstance(found, _Lost) and found.reason:
                    problems.append(found.reason)
        except asyncio.CancelledError:
            if future.set_running_or_notify_cancel():
                future.set_exception(ClusterError("the cluster was left before the answer came"))
        except Exception as error:  # noqa: BLE001 (whoever waits for the future gets it)
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        else:
            if isinstance(found, _Lost):
                found = Failure("runtime", f"{_TRIES} workers broke over it: {'; '.join(problems)}")
            if future.set_running_or_notify_cancel():
                future.set_result(found)

    async def _ask_once(
        self,
        resource: str,
        frame: bytes,
        decode: Callable[[Message], Result],
        group: str,
        unwanted: Callable[[], bool],
    ) -> Result | Failure | _Lost:
        client = await self._alive()
        chosen = await self._chosen(resource)
        key = f"autotune-{self._run_id}-{next(self._number)}"
        task = waiting = None
        try:
            some = [member.address for member in self.offering(resource)[:1]]
            data = frame if len(frame) < _LARGE else await client.scatter(frame, hash=False, workers=some)
            task = client.submit(
                handle, data, key=key, pure=False, resources={resource: 1}, workers=chosen, allow_other_workers=False
            )
            waiting = asyncio.ensure_future(task.result())
            end = time.monotonic() + self._patience.answer
            while not (await asyncio.wait([waiting], timeout=_LOOK_SECONDS))[0]:
                if chosen is not None and not any(address in self._members for address in chosen):
                    return _Lost()  # nobody is left of those who may answer
                if not self._anybody(resource):
                    await self._chosen(resource)  # waits for somebody, or gives up
                if time.monotonic() > end:
                    await self._overdue(client, key)
                    return _Lost(f"no answer for {self._patience.answer:.0f} s")
            return self._answer(await waiting, decode, group)
        except ClusterError:
            raise
        except KilledWorker as error:
            return _Lost(f"the workers that it ran on died ({error.last_worker.address} was the last)")
        except (Exception, *_LOST) as error:  # what Dask raises while it loses its scheduler has no base
            if unwanted():
                raise asyncio.CancelledError from error
            await asyncio.sleep(_AGAIN_SECONDS)
            gone = (
                isinstance(error, (OSError, TimeoutError, asyncio.TimeoutError, *_LOST)) or client.status != "running"
            )
            return _Lost("" if gone else f"{type(error).__name__}: {error}")
        finally:
            if waiting is not None:
                waiting.cancel()
            if task is not None and client.status == "running":
                task.release()

    def _anybody(self, resource: str) -> bool:
        return any(not m.problem and m.offers(resource) for m in self._members.values())

    async def _chosen(self, resource: str) -> list[str] | None:
        """Who may answer; None where all who offer the resource may, so that the scheduler need not be told.

        Raises:
            ClusterError: there has been nobody for too long.
        """
        end = time.monotonic() + self._patience.alone
        while not self._anybody(resource):
            if time.monotonic() >= end:
                raise ClusterError(
                    f"no worker of {self.scheduler} offers {resource} for {self._patience.alone:.0f} s now: "
                    f"start one by `autotune worker --cluster {self.scheduler}`, see `autotune cluster status`"
                )
            await asyncio.sleep(0.2)
        offer = [m for m in self._members.values() if m.offers(resource)]
        good = self.health.good([m.address for m in offer if not m.problem])
        return None if len(good) == len(offer) else good

    async def _overdue(self, client: Client, key: str) -> None:
        """Sets aside whoever sits on a request."""
        processing = await client.scheduler.processing(workers=None)
        for address, keys in processing.items():
            if key in keys:
                self._blame(address, f"no answer for {self._patience.answer:.0f} s")

    def _answer(self, frame: object, decode: Callable[[Message], Result], group: str) -> Result | Failure | _Lost:
        """What a worker has answered, if it is an answer; what it says of the worker is remembered."""
        try:
            (message,) = Decoder().feed(bytes(frame) if isinstance(frame, (bytes, bytearray, memoryview)) else b"")
        except (AutotuneError, ValueError):
            return _Lost("an answer that is none")
        by, body = str(message.body.get("by", "")), message.body
        try:
            if "failure" in body:
                return Failure.from_json(body["failure"])
            if "broken" in body:
                raise ClusterError(str(body["broken"]))
            reply = body["reply"]
            if not isinstance(reply, dict):
                raise ClusterError("an answer that is none")
            result = reply.get("result")
            if isinstance(result, dict) and group:
                reply["result"] = self._judged(by, group, result)
            return decode(Message(reply, message.blobs))
        except (AutotuneError, KeyError, TypeError, ValueError, IndexError) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            self._blame(by, reason)
            return _Lost(reason)

    def _judged(self, by: str, group: str, result: dict[str, Json]) -> dict[str, Json]:
        """A trial, marked when its runner is slower than others for the same target."""
        probe = result.get("probe_gflops")
        if isinstance(probe, (int, float)):
            reason = self.health.observe(by, group, float(probe), result.get("disturbed") is True)
            if reason:
                self._say_aside(by, reason)
        return {**result, "disturbed": True} if self.health.slow(by) else result

    def _blame(self, address: str, reason: str) -> None:
        self.health.blame(address, reason)
        self._say_aside(address, reason)

    def _say_aside(self, address: str, reason: str) -> None:
        member = self._members.get(address)
        _log.warning("worker %s is set aside: %s", member.name if member else address, reason)


async def _started(client: Client) -> Client:
    return await client


@dataclass(frozen=True, slots=True)
class _Lost:
    """A request that was not answered; `reason` when a worker is to blame, and not its end or the scheduler's."""

    reason: str = ""
