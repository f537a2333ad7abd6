"""Another Python beside this one, for work that threads cannot share.

Threads would not do: llvmlite has one lock for all of a process, and each of its many short calls waits for Python's
lock, which the thread that generates code holds.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from autotune.codegen.jit import CompiledObject, compile_ir, ir_hash
from autotune.errors import AutotuneError, CodegenError

# -I: no current directory, no PYTHON* variables; the parent's own sys.path is handed over instead.
_BOOT = """\
import json, sys
start = json.loads(sys.argv[1])
sys.path[:] = start["path"]
from autotune.codegen.helper import serve
serve(start["fd"])
"""

Reply = tuple[dict[str, Any], bytes]
"""What JSON can hold, and bytes."""


class Helper:
    """Answers one request at a time. It ends when closed, or with its parent.

    Raises:
        OSError: no process can be started.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            start = {"fd": theirs.fileno(), "path": [folder or os.getcwd() for folder in sys.path]}
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _BOOT, json.dumps(start)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is the parent's to decide
            )
            self._channel = Connection(ours.detach())
        self._turn, self._started = threading.Lock(), False

    def wait(self) -> None:
        """Until it has started. Raises OSError, EOFError: it is no more."""
        if not self._started:
            self._channel.recv_bytes()
            self._started = True

    def compile(self, ir_text: str, *, cpu: str, features: str) -> CompiledObject:
        """`compile_ir` over there; here, where that process is no more.

        Raises:
            CodegenError: the IR does not parse or verify.
        """
        reply = self.call("autotune.codegen.helper:compiled", ir_text, cpu, features)
        if reply is None:
            return compile_ir(ir_text, cpu=cpu, features=features)
        facts, object_code = reply
        if "error" in facts:
            raise CodegenError(facts["error"])
        return CompiledObject(object_code, ir_hash(ir_text), facts["spills"], facts["fmas"])

    def call(self, function: str, *arguments: object) -> Reply | None:
        """What a function of ours gives over there.

        Args:
            function: "module:name"; it returns a `Reply`.
            arguments: what JSON can hold.

        Returns:
            its reply, {"error": text} where it raised an error of ours; None where that process is no more.
        """
        try:
            with self._turn:
                self.wait()
                self._channel.send_bytes(json.dumps([function, arguments]).encode())
                header, _, body = self._channel.recv_bytes().partition(b"\n")
        except (OSError, EOFError):
            return None
        return json.loads(header), body

    def close(self) -> None:
        """End the process."""
        self._channel.close()
        self._process.kill()
        self._process.wait()


def can_start() -> bool:
    """Whether this is a Python that starts another: one that is embedded in a server is not."""
    return os.path.basename(sys.executable or "").startswith("python")


def serve(fd: int) -> None:
    """Answer requests on a socket until the other end is closed."""
    with Connection(fd) as channel:
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
    """`compile_ir`, as a reply."""
    made = compile_ir(ir_text, cpu=cpu, features=features)
    return {"spills": made.spills, "fmas": made.fmas}, made.object_code
