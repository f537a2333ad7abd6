"""Whether anybody is at a scheduler's address, before Dask asks again and again for as long as it has patience."""

from __future__ import annotations

import asyncio

import dask
from distributed.comm.addressing import parse_address, parse_host_port

from autotune.errors import ClusterError


def connect_seconds() -> float:
    """How long a scheduler may take to answer: Dask's setting `autotune.connect-timeout`, 10 s unless it is set."""
    return float(dask.config.get("autotune.connect-timeout", 10.0))


async def require_reachable(scheduler: str) -> None:
    """Open and close a connection: a host that refuses, or is unknown, says so at once.

    Raises:
        ClusterError: nobody answers, or it is no address.
    """
    try:
        kind, place = parse_address(scheduler)
        if kind not in ("tcp", "tls"):
            return
        connecting = asyncio.open_connection(*parse_host_port(place))
        _, writer = await asyncio.wait_for(connecting, connect_seconds())
        writer.close()
    except (OSError, TimeoutError, asyncio.TimeoutError, ValueError, TypeError) as error:
        raise ClusterError(unreachable(scheduler, error)) from error


def unreachable(scheduler: str, error: BaseException) -> str:
    """In one line, with the reason behind all others."""
    while error.__cause__ is not None:
        error = error.__cause__
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return (
        f"no Dask scheduler answers at {scheduler} ({reason}): start one by `dask scheduler`, write tcp://HOST:PORT, "
        "or tls://HOST:PORT where Dask is configured for it"
    )
