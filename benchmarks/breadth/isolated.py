"""A function in a forked process with limits on time and memory: imports are paid once, a crash costs one result."""

from __future__ import annotations

import multiprocessing
import os
import resource
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


def isolated(work: Callable[..., dict[str, Any]], *arguments: object, seconds: float, memory: int) -> dict[str, Any]:
    """What `work(*arguments)` returned, or {"failed": kind, "why": one line}.

    Args:
        seconds: of wall time, then it is killed and the kind is "timeout".
        memory: bytes of address space.
    """
    forked = multiprocessing.get_context("fork")
    receiver, sender = forked.Pipe(duplex=False)
    process = forked.Process(target=_serve, args=(sender, memory, work, arguments))
    process.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            return {"failed": "timeout", "why": f"still running after {seconds:g} s"}
        found: dict[str, Any] = receiver.recv()
        return found
    except EOFError:
        process.join(5)
        return {"failed": "crash", "why": f"the process ended with status {process.exitcode}"}
    finally:
        process.kill()
        process.join()


def _serve(sender: Connection, memory: int, work: Callable[..., dict[str, Any]], arguments: tuple[object, ...]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)  # exporters print whole graphs
    os.dup2(silent, 2)
    try:
        found = work(*arguments)
    except MemoryError:
        found = {"failed": "memory", "why": f"more than {memory >> 20} MiB"}
    except Exception as error:  # noqa: BLE001  whatever others raise is the result
        last = traceback.extract_tb(error.__traceback__)[-1]
        why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        found = {"failed": "error", "why": why, "where": f"{last.filename}:{last.lineno}"}
    sender.send(found)
