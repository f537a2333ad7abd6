"""Runs a command as on a lesser CPU: what this one has more is hidden, and caches have that CPU's sizes.

python -m tests.as_cpu znver3 .venv/bin/python -m pytest tests/report
python -m tests.as_cpu alderlake .venv/bin/python -m benchmarks.fuzz --quantized 1000

Hidden from native code, too, other engines' among it, and from all processes that the command starts: `cpuid` faults,
which the system and the CPU must be able to let it do (`cpuid_fault` in /proc/cpuinfo), and is answered by a library
that is loaded first (as_cpu.c, built by `cc`). Instructions are not taken away: code that uses them unasked runs.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from autotune.cpuid import BITS

WIDE = frozenset(name for name in BITS if name.startswith(("avx512", "avx10", "amx")))
NARROW = frozenset({"avxvnni", "avxvnniint8", "avxvnniint16", "avxifma", "avxneconvert", "sha512", "sm3", "sm4"})
"""What there is of AVX-512 for vectors of 256 bits, and younger features than it."""
BASE = frozenset({"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"})
GALOIS, CRYPTO = frozenset({"gfni"}), frozenset({"gfni", "vaes", "vpclmulqdq", "sha"})
ALL = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Cpu:
    """What to show.

    Attributes:
        vendor: as leaf 0 of cpuid says it.
        signature: family, model and stepping, register a of leaf 1: LLVM's name for the CPU follows from it.
        hidden: features, under LLVM's names.
        kib: sizes of the caches: L1 of data, L1 of code, L2, L3.
    """

    vendor: str
    signature: int
    hidden: frozenset[str]
    kib: tuple[int, int, int, int]

    def words(self) -> str:
        """For each leaf and subleaf: what is kept of its registers, and what is added."""
        b, d, c = struct.unpack("<3I", self.vendor.encode())
        rows = {(0, 0): ([ALL, 0, 0, 0], [0, b, c, d]), (1, 0): ([0, ALL, ALL, ALL], [self.signature, 0, 0, 0])}
        for name in self.hidden:
            leaf, subleaf, register, bit = BITS[name]
            keep, _ = rows.setdefault((leaf, subleaf), ([ALL] * 4, [0] * 4))
            keep["abcd".index(register)] &= ~(1 << bit)
        return "".join(f"{leaf:x}.{sub:x}:{_hex(keep)}:{_hex(add)};" for (leaf, sub), (keep, add) in rows.items())


INTEL, AMD = "GenuineIntel", "AuthenticAMD"
CPUS = {
    "haswell": Cpu(INTEL, 0x306F2, WIDE | NARROW | CRYPTO, (32, 32, 256, 30720)),
    "znver3": Cpu(AMD, 0xA00F11, WIDE | NARROW | GALOIS, (32, 32, 512, 32768)),
    "alderlake": Cpu(INTEL, 0x90672, WIDE | NARROW - {"avxvnni"}, (48, 32, 1280, 30720)),
    "skylake-avx512": Cpu(INTEL, 0x50654, WIDE - BASE | NARROW | CRYPTO, (32, 32, 1024, 28160)),
    "cascadelake": Cpu(INTEL, 0x50657, WIDE - BASE - {"avx512vnni"} | NARROW | CRYPTO, (32, 32, 1024, 36608)),
}


def _hex(words: Iterable[int]) -> str:
    return ",".join(f"{word:x}" for word in words)


def possible() -> str:
    """Why no other CPU can be shown here; empty where one can."""
    if "cpuid_fault" not in Path("/proc/cpuinfo").read_text().split():
        return "this CPU, or its system, lets no process see another one (no cpuid_fault in /proc/cpuinfo)"
    return "" if shutil.which("cc") else "there is no C compiler `cc`"


def environment(cpu: Cpu, folder: Path) -> dict[str, str]:
    """This process's, and what shows a CPU to a command; the library and the sizes of caches lie in `folder`."""
    library = folder / "as_cpu.so"
    subprocess.run(
        ["cc", "-O1", "-shared", "-fPIC", "-o", library, Path(__file__).with_suffix(".c"), "-ldl"], check=True
    )
    for index, kib in enumerate(cpu.kib):
        (folder / f"index{index}").write_text(f"{kib}K\n")
    own = {"AS_CPU_WORDS": cpu.words(), "AS_CPU_CACHES": str(folder), "LD_PRELOAD": str(library)}
    return os.environ | own


def main(arguments: list[str]) -> int:
    if len(arguments) < 2 or arguments[0] not in CPUS:
        sys.exit(f"usage: python -m tests.as_cpu {'|'.join(CPUS)} COMMAND...")
    if why := possible():
        sys.exit(why)
    with tempfile.TemporaryDirectory(prefix="as-cpu-") as folder:
        return subprocess.run(arguments[1:], env=environment(CPUS[arguments[0]], Path(folder)), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
