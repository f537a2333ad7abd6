"""LLVM in a process of its own, so that kernels are compiled beside Python, which generates the next ones.

Threads would not do: llvmlite has one lock for all of a process, and each of its many short calls waits for Python's
lock, which the thread that generates code holds.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from multiprocessing.connection import Connection

from autotune.codegen.jit import CompiledObject, compile_ir, ir_hash
from autotune.errors import CodegenError

# -I: no current directory, no PYTHON* variables; the parent's own sys.path is handed over instead.
_BOOT = """\
import json, sys
start = json.loads(sys.argv[1])
sys.path[:] = start["path"]
from autotune.codegen.llvm_process import serve
serve(start["fd"])
"""


class LlvmProcess:
    """Compiles IR, one text at a time; used from one thread at a time. It ends when closed, or with its parent.

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

    def compile(self, ir_text: str, *, cpu: str, features: str) -> CompiledObject:
        """`compile_ir` over there; here, where that process is no more.

        Raises:
            CodegenError: the IR does not parse or verify.
        """
        try:
            self._channel.send_bytes(json.dumps([ir_text, cpu, features]).encode())
            header, _, object_code = self._channel.recv_bytes().partition(b"\n")
        except (OSError, EOFError):
            return compile_ir(ir_text, cpu=cpu, features=features)
        found = json.loads(header)
        if "error" in found:
            raise CodegenError(found["error"])
        return CompiledObject(object_code, ir_hash(ir_text), found["spills"], found["fmas"])

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
        while True:
            try:
                ir_text, cpu, features = json.loads(channel.recv_bytes())
            except (EOFError, OSError):
                return
            try:
                made = compile_ir(ir_text, cpu=cpu, features=features)
                reply = json.dumps({"spills": made.spills, "fmas": made.fmas}).encode() + b"\n" + made.object_code
            except CodegenError as error:
                reply = json.dumps({"error": str(error)}).encode()
            channel.send_bytes(reply)
