"""The worker's side of the pipe: what runs inside a worker process.

Started by `worker.py` as `python -c ... main(...)`: not by multiprocessing, which would import the user's
script again and needs a `__main__` guard in it.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from autotune.errors import MeasureError
from autotune.measure.extensions import load_extensions
from autotune.measure.failure import Failure
from autotune.measure.protocol import Decoder, Json, Message, encode

Handler = Callable[[Message], "Message | Failure"]
HandlerFactory = Callable[[Mapping[str, Json]], Handler]

_PR_SET_PDEATHSIG = 1


def main(fd: int, parent_pid: int, entry: str) -> None:
    """Serve requests on socket `fd` until the parent closes it or dies.

    `entry` is `module:function`, a factory whose module is loaded at once. The first message says what else there is to
    know: `imports`, modules or paths of Python files that register the user's own operators and templates;
    `memory_bytes`; and `init`, for the factory: what that returns handles every later message. The worker announces
    itself with `{"ready": true}`.
    """
    _bind_life_to(parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to decide
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.set_inheritable(fd, False)
    with socket.socket(fileno=fd) as channel:
        requests = _receive(channel)
        try:
            factory = _factory(entry)
            start = next(requests, None)
            if start is None:
                return
            handler = _handler(factory, **cast("dict[str, Any]", start.body))
        except Exception:  # noqa: BLE001 (process boundary: the parent raises it as a MeasureError)
            channel.sendall(encode(Message({"broken": traceback.format_exc(limit=-3)})))
            return
        channel.sendall(encode(Message({"ready": True})))
        for request in requests:
            reply = _handle(handler, request)
            if isinstance(reply, Failure):
                reply = Message({"failure": reply.to_json()})
            else:
                reply = Message({"reply": reply.body}, reply.blobs)
            channel.sendall(encode(reply))


def _handle(handler: Handler, request: Message) -> Message | Failure:
    """What a handler does not answer itself is a failed candidate, not a dead tuner."""
    try:
        return handler(request)
    except MemoryError as error:
        return Failure("memory", f"out of memory: {error}" if str(error) else "out of memory")
    except Exception as error:  # noqa: BLE001 (process boundary)
        traceback.print_exc()
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return Failure(
            "runtime", f"{type(error).__name__}: {error} ({os.path.basename(frame.filename)}:{frame.lineno})"
        )


def _bind_life_to(parent_pid: int) -> None:
    """Die with the parent, even when it is killed with SIGKILL and cannot tell us."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise MeasureError(f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent_pid:  # it died before prctl took effect
        sys.exit(1)


def _receive(channel: socket.socket) -> Iterator[Message]:
    decoder = Decoder()
    while chunk := channel.recv(1 << 20):
        yield from decoder.feed(chunk)


def _handler(factory: HandlerFactory, init: Mapping[str, Json], memory_bytes: int, imports: Sequence[str]) -> Handler:
    # The parent polls the resident size against `memory_bytes`; this limit, on memory asked for, touched or
    # not, stops a bomb that is faster than the poll.
    resource.setrlimit(resource.RLIMIT_DATA, (2 * memory_bytes, 2 * memory_bytes))
    load_extensions(imports)
    return factory(init)


def _factory(entry: str) -> HandlerFactory:
    module, _, function = entry.partition(":")
    return cast(HandlerFactory, getattr(importlib.import_module(module), function))
