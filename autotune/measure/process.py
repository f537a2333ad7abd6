"""One worker process: starting it, moving bytes both ways, finding out how it died, and killing it for good."""

from __future__ import annotations

import os
import selectors
import signal
from collections.abc import Sequence

from autotune.measure.failure import Failure, FailureKind
from autotune.measure.protocol import Decoder, Json, Message, encode
from autotune.measure.spawned import spawned

_TAIL_BYTES = 1500  # of a worker's output, quoted in a failure
_MEANINGS = {
    int(signal.SIGSEGV): "access outside of a buffer, or a write to an input",
    int(signal.SIGBUS): "access outside of a buffer",
    int(signal.SIGILL): "an instruction that this CPU lacks",
    int(signal.SIGFPE): "integer division by zero or overflow",
    int(signal.SIGKILL): "killed from outside, perhaps by the system for lack of memory",
}
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_OUT_OF_MEMORY = ("out of memory", "bad_alloc", "MemoryError", "Cannot allocate memory")


class WorkerProcess:
    """A running worker as the operating system sees it: process, socket, output pipe."""

    def __init__(self, entry: str, init: dict[str, Json], memory_bytes: int, imports: Sequence[str]) -> None:
        self.ready = False
        self.closed = False
        self.killed_from_outside = False
        self._decoder = Decoder()
        self._messages: list[Message] = []
        self._outgoing = memoryview(b"")
        self._tail = bytearray()
        self._spawned = spawned(entry)
        self._channel, self._output = self._spawned.channel, self._spawned.output
        os.set_blocking(self._output.fileno(), False)
        self._channel.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._channel, selectors.EVENT_READ)
        self._selector.register(self._output, selectors.EVENT_READ)
        self.send(Message({"init": init, "memory_bytes": memory_bytes, "imports": list(imports)}))

    @property
    def pid(self) -> int:
        return self._spawned.pid

    def send(self, message: Message) -> None:
        """Queue `message`; `poll` writes it. Output from here on belongs to its task."""
        self._outgoing = memoryview(bytes(self._outgoing) + encode(message))
        self._tail.clear()
        self._selector.modify(self._channel, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def poll(self, timeout: float) -> Message | None:
        """Move bytes for at most `timeout` seconds; a message when one is complete.

        Raises:
            MeasureError: the worker sent something that is no message.
        """
        if not self._messages:
            for key, events in self._selector.select(timeout):
                if key.fileobj is self._output:
                    self._drain()
                    continue
                if events & selectors.EVENT_WRITE:
                    self._write()
                if events & selectors.EVENT_READ:
                    self._read()
        return self._messages.pop(0) if self._messages else None

    def died_idle(self) -> bool:
        """Whether a process that has answered everything so far is gone."""
        if self.ready and not self.closed:
            self._read()
        return self.ready and (self.closed or bool(self._messages))

    def resident_bytes(self) -> int:
        """Resident set size; 0 when the process is gone."""
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * _PAGE_BYTES
        except (OSError, IndexError):
            return 0

    def failure(self, kind: FailureKind, what: str) -> Failure:
        """A failure that quotes the end of the worker's output."""
        self._drain()
        tail = one_line(self._tail.decode(errors="replace"))
        return Failure(kind, f"{what}; its last output: {tail}" if tail else what)

    def post_mortem(self, memory_bytes: int) -> Failure:
        """Why the process closed the pipe."""
        code = self.kill(grace=1.0)
        self.killed_from_outside = code == -signal.SIGKILL
        self._drain()
        if any(sign in self._tail.decode(errors="replace") for sign in _OUT_OF_MEMORY):
            return self.failure("memory", f"worker needed more than {memory_bytes >> 20} MiB")
        if code >= 0:
            return self.failure("crash", f"worker exited with status {code} in the middle of a task")
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        meaning = _MEANINGS.get(-code)
        return self.failure("crash", f"worker died with {name}" + (f" ({meaning})" if meaning else ""))

    def kill(self, grace: float = 0.0) -> int:
        """Kill the whole session, reap, close; returns the exit code. `grace`: seconds to die by itself."""
        ended = self._spawned.returncode is not None
        code = self._spawned.kill(grace)
        if not ended:
            self._drain()
            self._selector.close()
            self._spawned.close()
        return code

    def _read(self) -> None:
        try:
            chunk = self._channel.recv(1 << 20)
        except BlockingIOError:
            return
        except ConnectionError:
            chunk = b""
        if not chunk:
            self.closed = True
        self._messages.extend(self._decoder.feed(chunk))

    def _write(self) -> None:
        try:
            sent = self._channel.send(self._outgoing)
        except BlockingIOError:
            return
        except ConnectionError:
            self.closed = True
            return
        self._outgoing = self._outgoing[sent:]
        if not self._outgoing:
            self._selector.modify(self._channel, selectors.EVENT_READ)

    def _drain(self) -> None:
        """Keep the last bytes of what the worker printed; a full pipe would stop it."""
        if self._output.closed:
            return
        for _ in range(64):  # bounded: a worker that prints without end must not hold us here
            try:
                chunk = os.read(self._output.fileno(), 1 << 16)
            except BlockingIOError:
                return
            if not chunk:
                if self._output in self._selector.get_map():
                    self._selector.unregister(self._output)
                return
            self._tail += chunk
            del self._tail[:-_TAIL_BYTES]


def one_line(text: str) -> str:
    """Several lines of output as one, for a message."""
    return " | ".join(line.strip() for line in text.splitlines() if line.strip())
