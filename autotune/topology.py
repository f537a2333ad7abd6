"""Topology: which logical CPUs share a core, which cores share a socket and its memory, and which are the slow ones.

Linux tells all of it in sysfs. Where a virtual machine or a container hides something, each logical CPU counts as a
fast core of its own, with all memory as near.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_EFFICIENT = ("cpu_atom", "cpu_lowpower")
"""What Linux calls the counters of the slower cores of Intel's hybrid CPUs; each has the list of its CPUs."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """A logical CPU by its number.

    Attributes:
        core: the lowest number of the logical CPUs of its core, allowed or not.
        package: its socket.
        node: the NUMA node whose memory is its own.
        efficient: a slower core of a hybrid CPU.
    """

    number: int
    core: int
    package: int = 0
    node: int = 0
    efficient: bool = False


@dataclass(frozen=True, slots=True)
class Topology:
    """The logical CPUs that may be used, ascending."""

    cpus: tuple[Cpu, ...]

    @property
    def cores(self) -> tuple[tuple[Cpu, ...], ...]:
        """Physical cores as threads should take them: fast ones first, node by node."""
        found: dict[int, list[Cpu]] = {}
        for cpu in self.cpus:
            found.setdefault(cpu.core, []).append(cpu)
        return tuple(
            sorted(map(tuple, found.values()), key=lambda core: (core[0].efficient, core[0].node, core[0].number))
        )

    @property
    def fast_cores(self) -> tuple[tuple[Cpu, ...], ...]:
        """Those without the slow ones of a hybrid CPU: work is dealt in equal parts, so all would wait for these."""
        return tuple(core for core in self.cores if not core[0].efficient) or self.cores

    def seats(self, threads: int, near: int) -> tuple[tuple[int, ...], ...] | None:
        """For each of the threads of a pool, on which logical CPUs it should run; None where all are as good.

        One for each core, fast cores while there are enough; those of one node if it has as many, that of the CPU
        `near` before others. On several nodes, neighbouring threads are together, since they read neighbouring parts.
        """
        cores = self.fast_cores if threads <= len(self.fast_cores) else self.cores
        if threads > len(cores):
            return None
        nodes: dict[int, list[int]] = {}
        for core in cores:
            nodes.setdefault(core[0].node, []).append(core[0].number)
        home = next((cpu.node for cpu in self.cpus if cpu.number == near), -1)
        order = sorted(nodes, key=lambda node: (node != home, node))
        used = [nodes[node] for node in order if len(nodes[node]) >= threads][:1]
        for node in sorted(nodes):
            if sum(map(len, used)) < threads:
                used.append(nodes[node])
        places = list(itertools.chain.from_iterable(used))
        if len(places) == len(self.cpus) and len(used) == 1:
            return None
        of = [tuple(sorted(node)) for node in used for _ in node]
        return tuple(of[thread * len(places) // threads] for thread in range(threads))

    def describe(self) -> str:
        """In words: "2 sockets, 4 NUMA nodes, 64 cores, 128 logical CPUs"."""
        slow = sum(core[0].efficient for core in self.cores)
        sockets, nodes = len({cpu.package for cpu in self.cpus}), len({cpu.node for cpu in self.cpus})
        parts = [f"{sockets} sockets"] if sockets > 1 else []
        parts += [f"{nodes} NUMA nodes"] if nodes > 1 else []
        fast = len(self.cores) - slow
        parts.append(f"{fast} fast and {slow} efficient cores" if slow else _counted(fast, "core"))
        return ", ".join([*parts, _counted(len(self.cpus), "logical CPU")])


@functools.lru_cache(maxsize=16)
def read_topology(root: Path, cpus: tuple[int, ...]) -> Topology:
    """The topology of these logical CPUs from the sysfs below `root`."""
    system = root / "sys/devices/system"
    node_of = {
        cpu: int(folder.name.removeprefix("node"))
        for folder in (system / "node").glob("node[0-9]*")
        for cpu in _numbers(folder / "cpulist")
    }
    efficient = {cpu for name in _EFFICIENT for cpu in _numbers(root / "sys/devices" / name / "cpus")}

    def cpu_of(number: int) -> Cpu:
        folder = system / f"cpu/cpu{number}/topology"
        return Cpu(
            number,
            core=min(_numbers(folder / "thread_siblings_list"), default=number),
            package=min(_numbers(folder / "physical_package_id"), default=0),
            node=node_of.get(number, 0),
            efficient=number in efficient,
        )

    return Topology(tuple(map(cpu_of, sorted(cpus))))


def _numbers(path: Path) -> Iterable[int]:
    """Those of a list such as "0-3,8"; none where the file is missing or says something else."""
    try:
        ranges = [part.split("-") for part in path.read_text().strip().split(",")]
        return [cpu for ends in ranges for cpu in range(int(ends[0]), int(ends[-1]) + 1)]
    except (OSError, ValueError):
        return []


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
