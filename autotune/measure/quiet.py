"""How quiet is this machine: what other programs, and the host under a virtual machine, take of the cores we may use.

The protocol is two readings of the kernel's counters and the difference between them. Counted as others' is every
moment in which our cores were busy with anything but this process and what it started; as stolen, what the hypervisor
gave to somebody else. Others matter when they leave fewer cores than the kernels' threads need. The load average is
told and decides nothing: it follows half a minute late, and counts who waits for a disk.

    watch = Watch(target.num_threads)
    ... measure ...
    found = watch.look()          # since the last look
    if not found.quiet: ... found.describe()
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from autotune import machine

QUIET_SHARE = 0.1
"""Of the time that our threads need, what others may take: more, and they have met them."""
QUIET_STEAL = 0.03
_WINDOW_SECONDS = 0.25  # of one look while waiting: the counters advance by hundredths of a second
_IDLE = (3, 4)  # columns of /proc/stat: idle, and waiting for a disk
_STEAL = 7
_COUNTERS_BYTES = 128  # three numbers of 64 bits
_MOST = 0.25  # of what others took: a program that took so much is named
_COLUMNS = 8  # those behind them are parts of the first
_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What happened on our cores between two looks.

    Attributes:
        crowded: cores' worth that others took of what our threads need, by the threads: 0 where enough were left.
        stolen: share of the cores' time that the host of a virtual machine gave away.
        load: the system's load average of the last minute, our own threads included.
        by: the programs that took most of what others took.
        throttled: a core was too hot for its clock.
        limited: share of the cores' time in which a control group's limit stopped us.
    """

    crowded: float = 0.0
    stolen: float = 0.0
    load: float = 0.0
    by: tuple[str, ...] = ()
    throttled: bool = False
    limited: float = 0.0

    @property
    def quiet(self) -> bool:
        taken = max(self.stolen, self.limited)
        return self.crowded <= QUIET_SHARE and taken <= QUIET_STEAL and not self.throttled

    def describe(self) -> str:
        """In words; empty when it was quiet."""
        names = f", mostly {' and '.join(self.by)}," if self.by else ""
        found = (
            [f"other programs{names} took {100 * self.crowded:.0f} % of the cores' time"]
            if self.crowded > QUIET_SHARE
            else []
        )
        found += [f"the virtual machine's host took {100 * self.stolen:.0f} %"] if self.stolen > QUIET_STEAL else []
        stopped = f"the control group's limit stopped us for {100 * self.limited:.0f} %"
        found += [stopped] if self.limited > QUIET_STEAL else []
        found += ["cores lowered their clock because they were hot"] if self.throttled else []
        return f"{' and '.join(found)} (load {self.load:.1f})" if found else ""


@dataclass(frozen=True, slots=True)
class _Reading:
    """Seconds since the start of time, in sums over the cores we may use.

    `ours`: of this process and its children; `others`: name and seconds of every other process, by number. `throttles`:
    how often a core was too hot. `stopped`: of our group, because its CPU time was used up.
    """

    busy: float
    stolen: float
    total: float
    ours: float
    others: Mapping[int, tuple[str, float]]
    throttles: int
    stopped: float


@final
class Watch:
    """Looks at the machine from its making on.

    Args:
        threads: of the kernels that are measured meanwhile.
        root: of the file system with /proc.
        cpus, cores: logical CPUs that we may use, and how many threads are worth running on them; by default, this
            machine's.
        own: the process that everything of ours descends from.
    """

    def __init__(
        self,
        threads: int,
        root: Path = _ROOT,
        cpus: Collection[int] | None = None,
        cores: int | None = None,
        own: int | None = None,
    ) -> None:
        self._threads, self._root, self._proc = threads, root, root / "proc"
        self._cpus = frozenset(machine.affinity() if cpus is None else cpus)
        self._cores = machine.allowed_cores() if cores is None else cores
        self._own = os.getpid() if own is None else own
        self._tick = 1 / os.sysconf("SC_CLK_TCK")
        self._last = self._read()

    def look(self) -> Disturbance:
        """What happened since the last look; nothing where the counters cannot be read."""
        now, before = self._read(), self._last
        self._last = now
        total = now.total - before.total
        load = _first_number(self._proc / "loadavg")
        throttled = now.throttles > before.throttles
        if total <= 0:
            return Disturbance(load=load, throttled=throttled)
        others = max(0.0, (now.busy - before.busy) - max(0.0, now.ours - before.ours)) / total * len(self._cpus)
        needed = min(self._threads, self._cores)
        crowded = max(0.0, others - (self._cores - needed)) / needed
        by = tuple(_most_of(now.others, before.others)) if crowded > QUIET_SHARE else ()
        limited = max(0.0, now.stopped - before.stopped) / total
        return Disturbance(crowded, (now.stolen - before.stolen) / total, load, by, throttled, limited)

    def _read(self) -> _Reading:
        busy = stolen = total = 0
        for line in _text(self._proc / "stat").splitlines():
            name, *values = line.split()
            if name[:3] != "cpu" or not name[3:].isdigit() or int(name[3:]) not in self._cpus:
                continue
            ticks = [int(value) for value in values[:_COLUMNS] if value.isdigit()]
            if len(ticks) < _COLUMNS:
                continue
            total += sum(ticks)
            stolen += ticks[_STEAL]
            busy += sum(ticks) - ticks[_STEAL] - sum(ticks[place] for place in _IDLE)
        ours, others = self._processes()
        stopped = machine.stopped_seconds(self._root)
        return _Reading(
            busy * self._tick, stolen * self._tick, total * self._tick, ours, others, self._throttles(), stopped
        )

    def _throttles(self) -> int:
        """How often the cores were too hot, where the CPU counts it."""
        folders = (self._root / f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle" for cpu in self._cpus)
        counts = [_text(folder / "core_throttle_count").strip() for folder in folders]
        return sum(int(count) for count in counts if count.isdigit())

    def _processes(self) -> tuple[float, dict[int, tuple[str, float]]]:
        """CPU seconds of our process, its living descendants, and those that have ended and been waited for; and each
        other process's name and seconds."""
        parents: dict[int, int] = {}
        found: dict[int, tuple[str, float]] = {}
        for folder in self._proc.glob("[0-9]*"):
            # The name, in brackets, may hold anything; then state, parent, ...; the times are columns 14 to 17.
            head, _, tail = _text(folder / "stat").rpartition(")")
            values = tail.split()
            if len(values) > 14 and folder.name.isdigit():
                number, name = int(folder.name), head.partition("(")[2]
                parents[number] = int(values[1])
                found[number] = name, sum(int(value) for value in values[11:15]) * self._tick
        ours = {self._own}
        while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= more
        own = sum(found.pop(pid, ("", 0.0))[1] for pid in ours)
        return own, found


def _most_of(now: Mapping[int, tuple[str, float]], before: Mapping[int, tuple[str, float]]) -> Iterator[str]:
    """The names of those programs that took at least a quarter each of what all took, most first."""
    spent: dict[str, float] = {}
    for pid, (name, seconds) in now.items():
        printable = "".join(letter if letter.isprintable() else "?" for letter in name)
        spent[printable] = spent.get(printable, 0.0) + seconds - before.get(pid, (name, 0.0))[1]
    total = sum(spent.values())
    for name in sorted(spent, key=lambda name: -spent[name]):
        if total > 0 and spent[name] >= _MOST * total:
            yield name


@final
class Waiting:
    """How long threads of this process have waited for a core that others had, all together.

    Exact to the nanosecond, unlike a `Watch`, so it tells of a single trial; 0 where the kernel does not count it. The
    threads are those that live when it is made, and whoever asks: their counters stay open, for this is asked between
    any two rounds of a trial.

    Args:
        root: of the file system with /proc.
    """

    def __init__(self, root: Path = _ROOT) -> None:
        self._tasks = root / "proc/self/task"
        self._files: dict[int, int] = {}  # descriptors by thread
        self._last: dict[int, int] = {}  # nanoseconds by thread
        self._others = 0  # of threads that have ended; less what one had waited before it was counted
        self._finalizer = weakref.finalize(self, _close, self._files)
        for folder in self._tasks.glob("[0-9]*"):
            self._open(int(folder.name))

    def seconds(self) -> float:
        """Until now; never less than before."""
        own = threading.get_native_id()
        if own not in self._files:
            self._open(own)
            self._others -= self._read(own)
        for thread in list(self._files):
            self._read(thread)
        return (self._others + sum(self._last.values())) * 1e-9

    def _open(self, thread: int) -> None:
        with contextlib.suppress(OSError):  # it has ended, or nothing is counted here
            self._files[thread] = os.open(self._tasks / str(thread) / "schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def _read(self, thread: int) -> int:
        if thread not in self._files:
            return 0
        try:
            fields = os.pread(self._files[thread], _COUNTERS_BYTES, 0).split()  # nanoseconds on a core, waiting; turns
        except OSError:  # it has ended
            os.close(self._files.pop(thread))
            self._others += self._last.pop(thread, 0)
            return 0
        self._last[thread] = int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0
        return self._last[thread]


def _close(files: dict[int, int]) -> None:
    for file in files.values():
        os.close(file)


def wait_until_quiet(
    watch: Watch,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Disturbance:
    """Looks until a moment is quiet, for so many seconds at most; the last look."""
    end = clock() + seconds
    watch.look()
    while True:
        pause(_WINDOW_SECONDS)
        found = watch.look()
        if found.quiet or clock() >= end:
            return found


def _text(path: Path) -> str:
    """Empty where the file is not there, or belongs to a process that has just ended."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _first_number(path: Path) -> float:
    try:
        return float(_text(path).split()[0])
    except (IndexError, ValueError):
        return 0.0
