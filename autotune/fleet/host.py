"""Host: a Dask worker that offers a service to its scheduler, for as long as it is wanted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Callable

from distributed import Worker, WorkerPlugin, get_worker
from distributed.worker import DEFAULT_METRICS, DEFAULT_STARTUP_INFORMATION

from autotune.errors import ClusterError
from autotune.fleet.member import IDENTITY, STATE
from autotune.fleet.reach import connect_seconds, require_reachable, unreachable
from autotune.fleet.service import Service

PLUGIN = "autotune"
_AGAIN_SECONDS = 1.0

_log = logging.getLogger(__name__)


def handle(frame: bytes) -> bytes:
    """The task that a tuner submits: it runs where there is a service, in a thread of the worker.

    Raises:
        RuntimeError: this worker is none of `autotune worker`.
    """
    worker = get_worker()
    hosting = worker.plugins.get(PLUGIN)
    if not isinstance(hosting, _Hosting):
        raise RuntimeError(f"{worker.address} is no worker of autotune; start one by: autotune worker")
    return hosting.service.handle(frame, worker.address)


class _Hosting(WorkerPlugin):  # type: ignore[misc]  # its types are skipped, see pyproject.toml
    """Lets tasks find the service of the worker that they run on."""

    name = PLUGIN

    def __init__(self, service: Service) -> None:
        self.service = service


def worker_for(service: Service, scheduler: str, name: str | None, folder: str) -> Worker:
    """A Dask worker that is not started yet; TLS is as Dask is configured."""
    identity = service.identity
    return Worker(
        scheduler,
        name=name,
        # A thread per candidate that is built, and one for all that is measured: measurements take turns.
        nthreads=identity.builders + bool(identity.targets),
        resources=identity.resources,
        plugins=(_Hosting(service),),
        startup_information={**DEFAULT_STARTUP_INFORMATION, IDENTITY: lambda _: identity.to_json()},
        metrics={**DEFAULT_METRICS, STATE: lambda _: service.state()},
        local_directory=folder,
        memory_limit=0,  # the processes that may grow are ours, and watched
        dashboard=False,
        death_timeout=connect_seconds(),
    )


async def serve(
    service: Service,
    scheduler: str,
    *,
    name: str | None = None,
    joined: Callable[[str], None] = lambda address: None,
    lost: Callable[[], None] = lambda: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set; a scheduler that was restarted, or took this worker for dead, is joined again.

    Args:
        joined, lost: told each time, with the worker's address.

    Raises:
        ClusterError: there was no scheduler to begin with.
    """
    stop = stop or asyncio.Event()
    first = True
    await require_reachable(scheduler, "worker")
    with tempfile.TemporaryDirectory(prefix="autotune-worker-") as folder:
        while not stop.is_set():
            worker = None
            try:
                worker = worker_for(service, scheduler, name, folder)
                await asyncio.wait_for(worker.start(), connect_seconds())
            except Exception as error:  # what Dask raises depends on what it takes the other side's bytes for
                _log.info("cannot join %s: %s", scheduler, error)
                if worker is not None:
                    with contextlib.suppress(Exception):
                        closing = worker.close(reason="autotune-not-joined", nanny=False)
                        await asyncio.wait_for(closing, connect_seconds())
                if first:
                    raise ClusterError(unreachable(scheduler, error)) from error
                await _until(stop, _AGAIN_SECONDS)
                continue
            first = False
            joined(worker.address)
            await _until(stop, None, worker)
            if stop.is_set():
                await worker.close_gracefully(reason="autotune-leaves")
            else:
                lost()
                await _until(stop, _AGAIN_SECONDS)


async def _until(stop: asyncio.Event, seconds: float | None, worker: Worker | None = None) -> None:
    """Until somebody wants to stop, the time is over, or the worker has ended."""
    waits = [asyncio.ensure_future(stop.wait())]
    if worker is not None:
        waits.append(asyncio.ensure_future(worker.finished()))
    _, pending = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
