"""Reading the machine: other machines are shown as folders that look like their /proc and /sys."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune import cpuid, machine
from autotune.errors import DatabaseError, TargetError
from autotune.machine import Caches

CPU = "sys/devices/system/cpu/cpu3/cache"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


def cache(index: int, level: int, kind: str, size: str) -> dict[str, str]:
    folder = f"{CPU}/index{index}"
    return {f"{folder}/level": str(level), f"{folder}/type": kind, f"{folder}/size": size}


def test_caches_leave_out_instructions_and_know_units(tmp_path: Path) -> None:
    files = cache(0, 1, "Data", "48K") | cache(1, 1, "Instruction", "64K") | cache(2, 2, "Unified", "1M")
    root = write(tmp_path, files | cache(3, 3, "Unified", "32768K"))
    assert machine.read_caches(root, core=3) == Caches(48 << 10, 1 << 20, 32 << 20)


def test_hidden_caches_get_small_defaults(tmp_path: Path) -> None:
    assert machine.read_caches(tmp_path, core=3) == Caches(32 << 10, 256 << 10, 2 << 20)


def test_a_hidden_level_is_at_least_the_level_inside_it(tmp_path: Path) -> None:
    root = write(tmp_path, cache(0, 1, "Data", "32K") | cache(2, 2, "Unified", "4M") | cache(3, 3, "Unified", "none"))
    assert machine.read_caches(root, core=3) == Caches(32 << 10, 4 << 20, 4 << 20)


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        # v2: the group's own limit, and a tighter one above it
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.max": "max 100000"}, None),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.max": "250000 100000"}, 2.5),
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/b/cpu.max": "250000 100000",
                "sys/fs/cgroup/a/cpu.max": "50000 100000",
            },
            0.5,
        ),
        # v2 in a container that names a folder of the host: the mount itself is the container's group
        ({"proc/self/cgroup": "0::/docker/f00", "sys/fs/cgroup/cpu.max": "300000 100000"}, 3.0),
        # v1, controllers mounted together; -1 is no limit
        (
            {
                "proc/self/cgroup": "4:memory:/m\n2:cpu,cpuacct:/docker/f00",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            1.5,
        ),
        (
            {
                "proc/self/cgroup": "2:cpu,cpuacct:/\n0::/",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            None,
        ),
        # not a number where one should be
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": ""}, None),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "100000 0"}, None),
    ],
)
def test_cpu_quota(files: dict[str, str], quota: float | None, tmp_path: Path) -> None:
    assert machine.cpu_quota(write(tmp_path, files)) == quota


@pytest.mark.parametrize(
    ("files", "seconds"),
    [
        ({}, 0.0),
        ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.stat": "usage_usec 9\nthrottled_usec 2500000"}, 2.5),
        (
            {
                "proc/self/cgroup": "2:cpu,cpuacct:/",
                "sys/fs/cgroup/cpu/cpu.stat": "nr_throttled 3\nthrottled_time 4000000000\n",
            },
            4.0,
        ),
        ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.stat": "throttled_usec\nthrottled_usec x"}, 0.0),
    ],
)
def test_how_long_a_control_group_was_stopped(files: dict[str, str], seconds: float, tmp_path: Path) -> None:
    assert machine.stopped_seconds(write(tmp_path, files)) == seconds


def test_governor_and_large_pages_are_read_where_they_are_told(tmp_path: Path) -> None:
    assert machine.governor(tmp_path) == machine.large_pages(tmp_path) == ""
    cpu = f"sys/devices/system/cpu/cpu{machine.affinity()[0]}/cpufreq/scaling_governor"
    root = write(tmp_path, {cpu: "powersave\n", "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never"})
    assert machine.governor(root) == "powersave"
    assert machine.large_pages(root) == "madvise"


@pytest.mark.parametrize(
    ("limit", "cores", "allowed"),
    [("max", 8, 8), ("400000", 8, 4), ("350000", 8, 3), ("50000", 8, 1), ("900000", 8, 8), ("100000", 1, 1)],
)
def test_allowed_cores_are_whole_cores_of_affinity_and_quota(
    limit: str, cores: int, allowed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write(tmp_path, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": f"{limit} 100000"})
    monkeypatch.setattr(machine, "affinity", lambda: tuple(range(cores)))
    assert machine.allowed_cores(root) == allowed


def test_logical_cpus_of_one_core_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four cores, two logical CPUs each; the mask allows both of cores 0 and 1, and one of core 2."""
    topology = {
        f"sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list": f"{n % 4},{n % 4 + 4}" for n in range(8)
    }
    root = write(tmp_path, topology)
    monkeypatch.setattr(machine, "affinity", lambda: (0, 1, 2, 4, 5))
    assert machine.allowed_cores(root) == 3
    monkeypatch.setattr(machine, "affinity", lambda: (3, 7))
    assert machine.allowed_cores(root) == 1


def test_affinity_follows_the_mask() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert machine.affinity() == (min(before),)
        assert machine.allowed_cores() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("files", "size"),
    [
        ({}, 0),
        ({"proc/meminfo": "MemTotal:        1000 kB\nMemFree: 5 kB"}, 1000 << 10),
        (
            {
                "proc/meminfo": "MemTotal:        1000 kB",
                "proc/self/cgroup": "0::/a",
                "sys/fs/cgroup/a/memory.max": "max",
                "sys/fs/cgroup/memory.max": "4096",
            },
            4096,
        ),
        (
            {
                "proc/meminfo": "MemTotal:        1000 kB",
                "proc/self/cgroup": "4:memory:/a",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "8192",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            },
            8192,
        ),
    ],
)
def test_memory(files: dict[str, str], size: int, tmp_path: Path) -> None:
    assert machine.memory_bytes(write(tmp_path, files)) == size


def test_model_name(tmp_path: Path) -> None:
    assert machine.model_name(tmp_path) == "unknown"
    write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\nflags\t: a b"})
    assert machine.model_name(tmp_path) == "Some CPU @ 3 GHz"


@pytest.mark.parametrize("host", [("Darwin", "arm64"), ("Linux", "aarch64"), ("Windows", "AMD64")])
def test_other_systems_are_refused(host: tuple[str, str]) -> None:
    with pytest.raises(TargetError, match=f"this is {host[0]} {host[1]}"):
        machine.check_supported(*host)


def test_lacking_features_are_those_that_the_cpu_has_not() -> None:
    here = machine.cpu_features()
    assert machine.lacking_features(here) == ()
    assert machine.lacking_features([*here, "zz", "no-such"]) == ("no-such", "zz")


def test_what_llvm_says_of_a_cpu_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = machine._asked
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "_asked", lambda: ("mine", ("avx2", "fma")))
    machine._remembered.cache_clear()
    assert (machine.cpu_name(), machine.cpu_features()) == ("mine", ("avx2", "fma"))
    (file,) = (tmp_path / "autotune" / "cpus").iterdir()
    machine._remembered.cache_clear()  # as another process
    monkeypatch.setattr(machine, "_asked", lambda: ("other", ("fma",)))
    assert (machine.cpu_name(), machine.cpu_features()) == ("mine", ("avx2", "fma"))
    monkeypatch.setattr(cpuid, "identity", lambda: "another CPU, or another way to show it")
    assert (machine.cpu_name(), machine.cpu_features()) == ("other", ("fma",))
    monkeypatch.undo()
    for damage in ("", "[]", "[1]", "{}", file.read_text().replace('"fma"', "3")):
        file.write_text(damage)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        machine._remembered.cache_clear()
        assert (machine.cpu_name(), set(machine.cpu_features())) == (asked()[0], machine._allowed(set(asked()[1])))


def test_features_that_cpuid_finds_are_not_asked_of_llvm() -> None:
    program = (
        "import sys; from autotune import cpuid, machine\n"
        "wanted = {name for name in cpuid.features() if not name.startswith('amx')}\n"
        "print(machine.lacking_features(wanted), 'llvmlite' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.strip() == "() False"


def test_tiles_that_the_system_does_not_give_are_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    found = frozenset({"avx2", "amx-tile"})
    monkeypatch.setattr(cpuid, "features", lambda: found)
    monkeypatch.setattr(machine, "cpu_features", lambda: ("avx2",))
    monkeypatch.setattr(machine, "allow_tiles", lambda: False)
    assert machine.lacking_features(["avx2"]) == ()
    assert machine.lacking_features(found) == ("amx-tile",)
    monkeypatch.setattr(machine, "allow_tiles", lambda: True)
    assert machine.lacking_features(found) == ()


def test_without_executable_memory_llvm_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> frozenset[str]:
        raise OSError("the system lets this process make no memory executable")

    monkeypatch.setattr(cpuid, "features", refuse)
    monkeypatch.setattr(machine, "cpu_features", lambda: ("avx2",))
    assert machine.lacking_features(["avx2", "fma"]) == ("fma",)


def test_this_machine_is_consistent() -> None:
    here = machine.this_machine()
    assert 1 <= here.allowed_cores <= len(here.cpus)
    assert set(here.features) <= set(machine.known_features())
    assert 0 < here.caches.l1_bytes <= here.caches.l2_bytes
    assert here.memory_bytes > 1 << 28


@pytest.mark.parametrize(
    "env, path",
    [
        ({"AUTOTUNE_DB": "here.sqlite", "XDG_DATA_HOME": "/data", "HOME": "/home/me"}, "here.sqlite"),
        ({"AUTOTUNE_DB": "", "XDG_DATA_HOME": "/data", "HOME": "/home/me"}, "/data/autotune/tuning.sqlite"),
        ({"XDG_DATA_HOME": "relative", "HOME": "/home/me"}, "/home/me/.local/share/autotune/tuning.sqlite"),
        ({"HOME": "/home/me"}, "/home/me/.local/share/autotune/tuning.sqlite"),
    ],
)
def test_where_the_database_is_when_nobody_says_so(env: dict[str, str], path: str) -> None:
    assert machine.user_database(env) == Path(path)


def test_without_a_home_the_user_is_asked_for_a_database() -> None:
    with pytest.raises(DatabaseError, match="give --db FILE or set AUTOTUNE_DB"):
        machine.user_database({})


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.json"
    machine.write_whole(path, b"first")
    machine.write_whole(path, b"second")
    assert path.read_bytes() == b"second"
    folder = tmp_path / "folder"
    (folder / "kept").mkdir(parents=True)
    with pytest.raises(OSError):
        machine.write_whole(folder, b"a folder is no file")
    assert sorted(found.name for found in tmp_path.rglob("*")) == ["file.json", "folder", "kept", "new"]
