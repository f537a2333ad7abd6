"""A process that is shown another CPU: its native code sees that one, and so do the processes that it starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.target import Target
from tests.as_cpu import CPUS, environment, possible

pytestmark = pytest.mark.skipif(bool(possible()), reason=possible() or "possible")

# Isolated, as workers are; behind a fault of its own, which is the program's to handle.
SEEN = """
import faulthandler, json, llvmlite.binding as llvm
from autotune import cpuid, machine
faulthandler.enable()
caches = machine.read_caches()
sizes = caches.l1_bytes, caches.l2_bytes, caches.l3_bytes
print(json.dumps([llvm.get_host_cpu_name(), sorted(cpuid.features()), sizes]))
"""


@pytest.mark.parametrize("name", CPUS)
def test_what_a_process_sees(name: str, tmp_path: Path) -> None:
    cpu = CPUS[name]
    if any(feature.startswith("avx") for feature in Target.parse(f"x86 -mcpu={name}").missing_features()):
        pytest.skip("this CPU is the lesser one")
    inner = [sys.executable, "-I", "-c", SEEN]
    outer = [sys.executable, "-c", f"import subprocess; subprocess.run({inner!r}, check=True)"]
    done = subprocess.run(outer, env=environment(cpu, tmp_path), capture_output=True, text=True, check=True)
    seen, features, caches = json.loads(done.stdout)
    assert seen == name
    assert not cpu.hidden & set(features)
    assert "avx2" in features
    assert caches == [cpu.kib[n] * 1024 for n in (0, 2, 3)]


def test_a_process_that_crashes_says_where(tmp_path: Path) -> None:
    crash = "import ctypes, faulthandler; faulthandler.enable(); ctypes.string_at(0)"
    shown = environment(CPUS["haswell"], tmp_path)
    done = subprocess.run([sys.executable, "-c", crash], env=shown, capture_output=True, text=True, check=False)
    assert done.returncode == -11
    assert "Fatal Python error: Segmentation fault" in done.stderr
