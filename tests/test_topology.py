"""Topology of other machines, shown as folders that look like their /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.topology import Topology, read_topology


def tree(root: Path, siblings: dict[int, str], packages: dict[int, int], more: dict[str, str]) -> Path:
    files = {f"cpu/cpu{n}/topology/thread_siblings_list": text for n, text in siblings.items()}
    files |= {f"cpu/cpu{n}/topology/physical_package_id": str(package) for n, package in packages.items()}
    for name, text in ({f"system/{name}": text for name, text in files.items()} | more).items():
        path = root / "sys/devices" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


@pytest.fixture
def epyc(tmp_path: Path) -> Path:
    """Two sockets of four cores with two threads each: Linux numbers the second threads behind all the first."""
    return tree(
        tmp_path,
        {n: f"{n % 8},{n % 8 + 8}" for n in range(16)},
        {n: n % 8 // 4 for n in range(16)},
        {"system/node/node0/cpulist": "0-3,8-11", "system/node/node1/cpulist": "4-7,12-15"},
    )


@pytest.fixture
def alder_lake(tmp_path: Path) -> Path:
    """Two fast cores with two threads each, four efficient ones."""
    return tree(
        tmp_path,
        {**{n: f"{n // 2 * 2}-{n // 2 * 2 + 1}" for n in range(4)}, **{n: str(n) for n in range(4, 8)}},
        dict.fromkeys(range(8), 0),
        {"cpu_core/cpus": "0-3", "cpu_atom/cpus": "4-7", "system/node/node0/cpulist": "0-7"},
    )


@pytest.fixture
def laptop(tmp_path: Path) -> Path:
    return tree(
        tmp_path,
        {n: f"{n % 4},{n % 4 + 4}" for n in range(8)},
        dict.fromkeys(range(8), 0),
        {"system/node/node0/cpulist": "0-7"},
    )


def numbers(cores: tuple[tuple[object, ...], ...]) -> list[tuple[int, ...]]:
    return [tuple(cpu.number for cpu in core) for core in cores]  # type: ignore[attr-defined]


def test_sockets(epyc: Path) -> None:
    found = read_topology(epyc, tuple(range(16)))
    assert found.describe() == "2 sockets, 2 NUMA nodes, 8 cores, 16 logical CPUs"
    assert numbers(found.cores) == [(n, n + 8) for n in range(8)]
    # As many as a node has: on the node of the caller, one for each core.
    assert found.seats(4, near=0) == ((0, 1, 2, 3),) * 4
    assert found.seats(2, near=13) == ((4, 5, 6, 7),) * 2
    # More: neighbours together, wherever the caller is.
    assert found.seats(8, near=6) == ((0, 1, 2, 3),) * 4 + ((4, 5, 6, 7),) * 4
    assert found.seats(6, near=0) == ((0, 1, 2, 3),) * 3 + ((4, 5, 6, 7),) * 3
    assert found.seats(9, near=0) is None, "more threads than cores: the system decides"
    # Under a mask that leaves one logical CPU of a core.
    assert read_topology(epyc, (1, 9, 10, 4)).seats(2, near=1) == ((1, 10),) * 2


def test_hybrid(alder_lake: Path) -> None:
    found = read_topology(alder_lake, tuple(range(8)))
    assert found.describe() == "2 fast and 4 efficient cores, 8 logical CPUs"
    assert numbers(found.fast_cores) == [(0, 1), (2, 3)]
    assert numbers(found.cores)[2:] == [(4,), (5,), (6,), (7,)]
    assert found.seats(2, near=5) == ((0, 2),) * 2
    assert found.seats(3, near=0) == ((0, 2, 4, 5, 6, 7),) * 3, "asked for more than there are fast ones"
    slow = read_topology(alder_lake, (4, 5))
    assert numbers(slow.fast_cores) == [(4,), (5,)], "where nothing else is allowed"
    assert slow.seats(2, near=4) is None


def test_two_threads_a_core(laptop: Path) -> None:
    found = read_topology(laptop, tuple(range(8)))
    assert found.describe() == "4 cores, 8 logical CPUs"
    assert found.seats(4, near=7) == found.seats(4, near=0) == ((0, 1, 2, 3),) * 4
    assert found.seats(5, near=0) is None
    assert read_topology(laptop, (0, 1, 2, 3)).seats(2, near=0) is None, "every logical CPU is a core: nothing to say"


def test_what_sysfs_hides(tmp_path: Path) -> None:
    found = read_topology(tmp_path, (3, 5))
    assert numbers(found.cores) == [(3,), (5,)] and found.seats(2, near=3) is None
    assert found.describe() == "2 cores, 2 logical CPUs"
    garbled = tree(tmp_path, {3: "", 5: "x-y"}, {3: -1, 5: 0}, {"system/node/node0/cpulist": "0-"})
    assert isinstance(read_topology(garbled, (3, 5, 7)), Topology)
