"""The one place that looks at the CPU: its name and features, its caches, and how much of it this process may use.

Everything is read, nothing is measured (measured peaks: `autotune.measure.peaks`). Functions that read the file
system take its root, so that tests show them other machines.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import itertools
import json
import os
import platform
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from autotune import cpuid, packages
from autotune.errors import DatabaseError, TargetError
from autotune.topology import Topology, read_topology

_ROOT = Path("/")
_TILES = "amx-"  # what the names of features begin with that need tile registers
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18  # syscall; ARCH_REQ_XCOMP_PERM; the state component
_KIB = 1024
# What a level is taken for where sysfs hides it, as some virtual machines do: small for any CPU with AVX2, because
# a tile that is too small costs a little and one that is too large costs a lot.
_FALLBACK_BYTES = {1: 32 * _KIB, 2: 256 * _KIB, 3: 2048 * _KIB}


@dataclass(frozen=True, slots=True)
class Caches:
    """Data cache sizes in bytes as one core sees them: its own L1 and L2, the L3 that it shares."""

    l1_bytes: int
    l2_bytes: int
    l3_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine, as this process may use it.

    Attributes:
        cpu: LLVM's name for the CPU.
        model: the vendor's name for it, from /proc/cpuinfo.
        features: every feature that LLVM finds, sorted.
        topology: the logical CPUs that the affinity mask allows, and how they are related.
        quota: CPU time per wall time that the control groups allow; None without a limit.
        allowed_cores: how many threads are worth running: see `allowed_cores()`.
        memory_bytes: installed memory, cut to the control group's limit.
    """

    cpu: str
    model: str
    features: tuple[str, ...]
    caches: Caches
    topology: Topology
    quota: float | None
    allowed_cores: int
    memory_bytes: int

    @property
    def cpus(self) -> tuple[int, ...]:
        """The numbers of the logical CPUs that the affinity mask allows."""
        return tuple(cpu.number for cpu in self.topology.cpus)


def this_machine() -> Machine:
    """Look at this machine.

    Raises:
        TargetError: not Linux on x86-64.
    """
    check_supported(platform.system(), platform.machine())
    return Machine(
        cpu=cpu_name(),
        model=model_name(),
        features=cpu_features(),
        caches=read_caches(),
        topology=topology(),
        quota=cpu_quota(),
        allowed_cores=allowed_cores(),
        memory_bytes=memory_bytes(),
    )


def environment() -> Mapping[str, str]:
    """The process's environment variables: nothing else in the library reads them."""
    return os.environ


def user_cache(env: Mapping[str, str]) -> Path | None:
    """The user's folder for what may always be deleted, by the XDG specification; None without a home."""
    # The XDG specification: a relative path is to be ignored.
    if Path(env.get("XDG_CACHE_HOME") or ".").is_absolute():
        return Path(env["XDG_CACHE_HOME"]) / "autotune"
    return Path(env["HOME"]) / ".cache" / "autotune" if env.get("HOME") else None


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all, whoever else writes it; its folder is made. Nothing else is left of a failure.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.new")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def user_database(env: Mapping[str, str]) -> Path:
    """The tuning database when nobody names one: `$AUTOTUNE_DB`, else in the user's data folder; it may not exist yet.

    Raises:
        DatabaseError: `env` names no home folder either.
    """
    if env.get("AUTOTUNE_DB"):
        return Path(env["AUTOTUNE_DB"])
    # As above.
    if Path(env.get("XDG_DATA_HOME") or ".").is_absolute():
        return Path(env["XDG_DATA_HOME"]) / "autotune" / "tuning.sqlite"
    if env.get("HOME"):
        return Path(env["HOME"]) / ".local" / "share" / "autotune" / "tuning.sqlite"
    raise DatabaseError("no tuning database is named and HOME is not set; give --db FILE or set AUTOTUNE_DB")


def check_supported(system: str, architecture: str) -> None:
    """Refuse any system but Linux on x86-64, by the names that `platform` gives.

    Raises:
        TargetError: another system or architecture.
    """
    if (system, architecture) != ("Linux", "x86_64"):
        raise TargetError(f"autotune runs on Linux x86_64, and this is {system} {architecture}: use such a machine")


def cpu_name() -> str:
    """LLVM's name for this CPU, e.g. 'znver4'."""
    return _told()[0]


def cpu_features() -> tuple[str, ...]:
    """LLVM's names of all features that this CPU has and the system enables for this process, sorted.

    Without LLVM they are those of `cpuid`, which are all that compiled files ask for.
    """
    try:
        found = set(_told()[1])
    except ModuleNotFoundError:
        found = set(cpuid.features())
    return tuple(sorted(_allowed(found)))


def _told() -> tuple[str, tuple[str, ...]]:
    """LLVM's name and features of this CPU. Raises ModuleNotFoundError: there is no LLVM."""
    folder, release = user_cache(environment()), packages.version("llvmlite")
    with contextlib.suppress(OSError):  # no memory may be made executable
        if folder is not None and release is not None:
            return _remembered(folder / "cpus", f"{release} {cpuid.identity()}")
    return _asked()


@functools.lru_cache(maxsize=8)
def _remembered(folder: Path, identity: str) -> tuple[str, tuple[str, ...]]:
    """As the user's cache knows it, by all that it follows from: LLVM takes 30 ms to load."""
    path = folder / f"{hashlib.sha256(identity.encode()).hexdigest()}.json"
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(path.read_text())
        if (
            isinstance(known, list)
            and len(known) > 1
            and known[0] == identity
            and all(type(word) is str for word in known)
        ):
            return known[1], tuple(known[2:])
    name, features = _asked()
    with contextlib.suppress(OSError):
        write_whole(path, json.dumps([identity, name, *features]).encode())
    return name, features


def _asked() -> tuple[str, tuple[str, ...]]:
    import llvmlite.binding as llvm  # here and below: a compiled file, and a program that is kept, run without it

    features = llvm.get_host_cpu_features().items()
    return str(llvm.get_host_cpu_name()), tuple(sorted(name for name, present in features if present))


def lacking_features(wanted: Collection[str]) -> tuple[str, ...]:
    """Those of some features that `cpu_features` has not, sorted.

    LLVM, which takes 30 ms to load, is asked only where `cpuid` does not find them all.
    """
    with contextlib.suppress(OSError):  # no memory may be made executable
        if _allowed(cpuid.features() & set(wanted)) == set(wanted):
            return ()
    return tuple(sorted(set(wanted) - set(cpu_features())))


def _allowed(found: Set[str]) -> Set[str]:
    """The features but for those that need tile registers, where the system gives this process none."""
    if any(name.startswith(_TILES) for name in found) and not allow_tiles():
        return {name for name in found if not name.startswith(_TILES)}
    return found


@functools.cache
def allow_tiles() -> bool:
    """Ask the system for tile registers (AMX) for this process and all that it starts; whether it has them.

    Linux gives their 8 KiB of state to processes that ask, once for all of their threads.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return False
    system = ctypes.CDLL(None, use_errno=True)
    return int(system.syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)) == 0


def known_features() -> tuple[str, ...]:
    """LLVM's names of all CPU features of this architecture, present or not, sorted."""
    import llvmlite.binding as llvm

    return tuple(sorted(llvm.get_host_cpu_features()))


def model_name(root: Path = _ROOT) -> str:
    """The vendor's name of the CPU, or 'unknown'."""
    match = re.search(r"^model name\s*: *(.+)$", _read(root / "proc/cpuinfo"), re.MULTILINE)
    return match[1].strip() if match else "unknown"


def read_caches(root: Path = _ROOT, core: int | None = None) -> Caches:
    """Cache sizes from sysfs, as `core` (default: the first of the fast ones) sees them.

    A level that sysfs does not list gets a small default, and at least the size of the level inside it.
    """
    if core is None:
        core = topology(root).cores[0][0].number
    sizes: dict[int, int] = {}
    for index in sorted((root / f"sys/devices/system/cpu/cpu{core}/cache").glob("index[0-9]*")):
        size = re.fullmatch(r"(\d+)([KMG]?)", _read(index / "size"))
        level = _read(index / "level")
        if size and level.isdigit() and _read(index / "type") in {"Data", "Unified"}:
            sizes[int(level)] = int(size[1]) * _KIB ** " KMG".index(size[2] or " ")
    levels = [0]
    for level_number, fallback in _FALLBACK_BYTES.items():
        levels.append(sizes.get(level_number) or max(fallback, levels[-1]))
    return Caches(*levels[1:])


def affinity() -> tuple[int, ...]:
    """The logical CPUs that this process may run on, sorted."""
    return tuple(sorted(os.sched_getaffinity(0)))


def topology(root: Path = _ROOT) -> Topology:
    """How the logical CPUs are related that this process may run on."""
    return read_topology(root, affinity())


def allowed_cores(root: Path = _ROOT) -> int:
    """How many threads are worth running: the fast cores under the affinity mask, cut to the CPU quota; at least 1.

    Two threads on the two logical CPUs of one core share its multiply-adders and its L1: a second one gains nothing.
    """
    cores = len(topology(root).fast_cores)
    quota = cpu_quota(root)
    return cores if quota is None else max(1, min(cores, int(quota)))


def core_sets(parts: int, root: Path = _ROOT) -> list[tuple[int, ...]]:
    """The logical CPUs that this process may run on, in so many disjoint sets of whole physical cores.

    Raises:
        TargetError: there are fewer cores.
    """
    cores = topology(root).cores
    if parts > len(cores):
        raise TargetError(f"{parts} streams need as many cores; this process may use {len(cores)}")
    ends = [len(cores) * n // parts for n in range(parts + 1)]
    return [tuple(cpu.number for core in cores[a:b] for cpu in core) for a, b in itertools.pairwise(ends)]


def cpu_quota(root: Path = _ROOT) -> float | None:
    """Cores' worth of CPU time that the control groups (v1 or v2) of this process allow; None without a limit."""
    limits = []
    for group in _control_groups("cpu", root):
        if (group / "cpu.max").exists():  # v2: "<quota|max> <period>"
            quota, period = (_read(group / "cpu.max").split() + ["", ""])[:2]
        else:  # v1: a quota of -1 is none
            quota, period = _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def stopped_seconds(root: Path = _ROOT) -> float:
    """How long the control groups (v1 or v2) have stopped this process's group because its CPU time was used up, in
    sums over its cores; of nested groups, the one that was stopped longest."""
    found = [0.0]
    for group in _control_groups("cpu", root):
        values = dict(line.split()[:2] for line in _read(group / "cpu.stat").splitlines() if len(line.split()) > 1)
        for name, unit in (("throttled_usec", 1e-6), ("throttled_time", 1e-9)):  # v2, v1
            if values.get(name, "").isdigit():
                found.append(int(values[name]) * unit)
    return max(found)


def governor(root: Path = _ROOT) -> str:
    """What sets the clock of the first CPU that may be used: "performance", "powersave", ...; empty where hidden."""
    return _read(root / f"sys/devices/system/cpu/cpu{affinity()[0]}/cpufreq/scaling_governor")


def large_pages(root: Path = _ROOT) -> str:
    """Who gets transparent large pages: "always", "madvise" (who asks) or "never"; empty where nobody says."""
    chosen = re.search(r"\[(\w+)\]", _read(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    return chosen[1] if chosen else ""


def memory_bytes(root: Path = _ROOT) -> int:
    """Memory that this process may use: what is installed, cut to the control groups' limits; 0 if unknown."""
    total = re.search(r"^MemTotal: *(\d+) kB", _read(root / "proc/meminfo"), re.MULTILINE)
    limits = [int(total[1]) * _KIB] if total else []
    for group in _control_groups("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _read(group / name)
            if limit.isdigit():  # not "max"
                limits.append(int(limit))
    return min(limits, default=0)


def _control_groups(controller: str, root: Path) -> Iterator[Path]:
    """The folders of the control groups that hold this process, for one controller, inner to outer.

    Inside a container, /proc/self/cgroup may name folders that only the host sees; then the walk up still meets the
    mount itself, which is the container's own group.
    """
    mount = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        names = controllers.split(",")
        if controllers == "":  # v2: one tree for all controllers; beside v1 it hangs under unified/
            tops = [mount, mount / "unified"]
        elif controller in names:
            tops = [mount / controllers, mount / controller]
        else:
            continue
        for top in tops:
            if top.is_dir():
                folder = top / path.strip("/")
                yield from (place for place in (folder, *folder.parents) if place.is_relative_to(top))
                break


def _read(path: Path) -> str:
    """The text of a small file, stripped; empty where it does not exist or cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
