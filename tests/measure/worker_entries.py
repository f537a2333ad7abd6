"""Entry points that misbehave on demand; imported inside worker processes only."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from autotune.errors import ScheduleError
from autotune.measure.failure import Failure
from autotune.measure.protocol import Json, Message


def misbehave(init: Mapping[str, Json]) -> Callable[[Message], Message | Failure]:
    """A handler that does what `body["do"]` says."""
    served = 0

    def handle(request: Message) -> Message | Failure:
        nonlocal served
        served += 1
        match request.body["do"]:
            case "echo":
                seen: list[Json] = [
                    signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
                    os.environ["OPENBLAS_NUM_THREADS"],
                ]
                return Message({"pid": os.getpid(), "served": served, "init": dict(init), "seen": seen}, request.blobs)
            case "sleep":
                time.sleep(float(str(request.body["seconds"])))
                return Message({"pid": os.getpid()})
            case "segfault":
                sys.stderr.write("about to fall\n")
                ctypes.string_at(0)
            case "exit":
                os._exit(3)
            case "raise":
                raise ScheduleError("no such axis: k")
            case "refuse":
                return Failure("schedule", "refused by hand")
            case "bomb":  # slowly enough for the poll: resident size
                blocks = []
                while True:
                    blocks.append(bytearray(8 << 20))
                    time.sleep(0.001)
            case "huge":  # at once: the limit of the process
                return Message({"size": len(bytearray(64 << 30))})
            case "noise":
                for stream in (sys.stdout, sys.stderr):
                    stream.write("garbage \x00\xff" * 200_000)
                    stream.flush()
                return Message({"pid": os.getpid()})
            case "babble":  # garbage on the channel itself
                os.write(int(str(request.body["fd"])), b"not a frame at all, just bytes that nobody asked for")
                time.sleep(60)
            case "grandchild":
                child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
                return Message({"pid": os.getpid(), "grandchild": child.pid})
        raise AssertionError(request.body)

    return handle


def broken(init: Mapping[str, Json]) -> Callable[[Message], Message | Failure]:
    raise ValueError(f"cannot start with {dict(init)}")
