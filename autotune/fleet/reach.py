"""Whether anybody is at a scheduler's address, before Dask asks again and again for as long as it has patience."""

from __future__ import annotations

import asyncio
from typing import Literal

import dask
from distributed import Security
from distributed.comm.addressing import parse_address, parse_host_port

from autotune.errors import ClusterError


def connect_seconds() -> float:
    """How long a scheduler may take to answer: Dask's setting `autotune.connect-timeout`, 10 s unless it is set."""
    return float(dask.config.get("autotune.connect-timeout", 10.0))


async def require_reachable(scheduler: str, role: Literal["client", "worker"]) -> None:
    """Open and close a connection: a host that refuses, is unknown, or trusts other certificates, says so at once.

    Args:
        role: whose certificate is shown, of those that Dask is configured with.

    Raises:
        ClusterError: nobody answers, or it is no address.
    """
    try:
        kind, place = parse_address(scheduler)
        if kind not in ("tcp", "tls"):
            return
        tls = Security().get_connection_args(role).get("ssl_context") if kind == "tls" else None
        connecting = asyncio.open_connection(*parse_host_port(place), ssl=tls)
        _, writer = await asyncio.wait_for(connecting, connect_seconds())
        writer.close()
    except (OSError, TimeoutError, asyncio.TimeoutError, ValueError, TypeError, OverflowError) as error:
        raise ClusterError(unreachable(scheduler, error)) from error


def unreachable(scheduler: str, error: BaseException) -> str:
    """In one line, with the reason behind all others."""
    while error.__cause__ is not None and not isinstance(error.__cause__, asyncio.CancelledError):
        error = error.__cause__
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return (
        f"no Dask scheduler answers at {scheduler} ({reason}): start one by `dask scheduler`, write tcp://HOST:PORT, "
        "or tls://HOST:PORT where Dask is configured for it"
    )
