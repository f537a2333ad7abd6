"""Another Python beside this one, for work that threads cannot share.

Threads would not do: llvmlite has one lock for all of a process, and each of its many short calls waits for Python's
lock, which the thread that generates code holds.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from autotune.codegen.compiled_object import CompiledObject, ir_hash
from autotune.codegen.jit import compile_uncounted
from autotune.errors import AutotuneError, CodegenError

# -I: no current directory, no PYTHON* variables; the parent's own sys.path is handed over instead.
_BOOT = """\
import json, sys
start = json.loads(sys.argv[1])
sys.path[:] = start["path"]
from autotune.codegen.helper import serve
serve(start["fd"], start["imports"])
"""

Reply = tuple[dict[str, Any], bytes]
"""What JSON can hold, and bytes."""


class Helper:
    """Answers requests one after the other. It ends when closed, or with its parent.

    Several threads may call it: what one asks is there already when the answer to another is done.

    Args:
        imports: modules to load before the first request.

    Attributes:
        started: whether it is known to be ready.

    Raises:
        OSError: no process can be started.
    """

    def __init__(self, imports: Sequence[str] = ()) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            path = [folder or os.getcwd() for folder in sys.path]
            start = {"fd": theirs.fileno(), "path": path, "imports": list(imports)}
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _BOOT, json.dumps(start)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is the parent's to decide
            )
            self._channel = Connection(ours.detach())
        self._asking, self._hearing, self.started = threading.Lock(), threading.Lock(), False
        self._asked: deque[list[bytes]] = deque()

    def wait(self) -> None:
        """Until it has started. Raises OSError, EOFError: it is no more."""
        with self._hearing:
            if not self.started:
                self._channel.recv_bytes()
                self.started = True

    def compile(self, ir_text: str, *, cpu: str, features: str) -> CompiledObject:
        """`compile_uncounted` over there; here, where that process is no more.

        Raises:
            CodegenError: the IR does not parse or verify.
        """
        reply = self.call("autotune.codegen.helper:compiled", ir_text, cpu, features)
        if reply is None:
            return compile_uncounted(ir_text, cpu=cpu, features=features)
        facts, object_code = reply
        if "error" in facts:
            raise CodegenError(facts["error"])
        return CompiledObject(object_code, ir_hash(ir_text))

    def call(self, function: str, *arguments: object) -> Reply | None:
        """What a function of ours gives over there.

        Args:
            function: "module:name"; it returns a `Reply`.
            arguments: what JSON can hold.

        Returns:
            its reply, {"error": text} where it raised an error of ours; None where that process is no more.
        """
        answer: list[bytes] = []
        try:
            if not self.started:
                self.wait()
            with self._asking:
                self._asked.append(answer)
                self._channel.send_bytes(json.dumps([function, arguments]).encode())
            while not answer:  # whoever hears the next one may hear that of another thread
                with self._hearing:
                    if not answer:
                        heard = self._channel.recv_bytes()
                        self._asked.popleft().append(heard)
        except (OSError, EOFError):
            return None
        header, _, body = answer[0].partition(b"\n")
        return json.loads(header), body

    def close(self) -> None:
        """End the process; whoever waits for it is told that it is no more."""
        self._process.kill()
        self._process.wait()
        with self._asking, self._hearing:
            self._channel.close()


def can_start() -> bool:
    """Whether this is a Python that starts another: one that is embedded in a server is not."""
    return os.path.basename(sys.executable or "").startswith("python")


def serve(fd: int, imports: Sequence[str]) -> None:
    """Answer requests on a socket until the other end is closed."""
    gc.disable()  # nothing that it does leaves cycles behind, and it does not live long
    with Connection(fd) as channel:
        for module in imports:
            importlib.import_module(module)
        channel.send_bytes(b"ready")
        while True:
            try:
                function, arguments = json.loads(channel.recv_bytes())
            except (EOFError, OSError):
                return
            module, _, name = function.partition(":")
            try:
                facts, body = getattr(importlib.import_module(module), name)(*arguments)
            except AutotuneError as error:
                facts, body = {"error": str(error)}, b""
            channel.send_bytes(json.dumps(facts).encode() + b"\n" + body)


def compiled(ir_text: str, cpu: str, features: str) -> Reply:
    """`compile_uncounted`, as a reply."""
    return {}, compile_uncounted(ir_text, cpu=cpu, features=features).object_code
