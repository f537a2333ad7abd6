"""CPUs by name: our list against LLVM's own, and its features against what is publicly known."""

from __future__ import annotations

import subprocess
import sys

import pytest

from autotune import cpus

# A process of its own: LLVM writes its list to the real stderr.
LIST = f"""
import llvmlite.binding as llvm
llvm.initialize_native_target()
llvm.Target.from_triple({cpus.TRIPLE!r}).create_target_machine(cpu="help")
"""
AVX512 = {"avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512cd"}


def test_the_list_is_llvms() -> None:
    done = subprocess.run([sys.executable, "-c", LIST], capture_output=True, text=True, check=True, timeout=60)
    listed = done.stderr.split("Available features")[0].splitlines()
    names = {line.split()[0] for line in listed if line.startswith("  ")}
    assert len(names) > 100
    assert set(cpus.CPUS) <= names


@pytest.mark.parametrize("cpu", cpus.CPUS)
def test_every_cpu_has_what_autotune_needs(cpu: str) -> None:
    features = cpus.features_of(cpu)
    assert {"64bit", "sse4.2", "avx", "avx2", "fma", "f16c", "bmi2"} <= set(features)
    assert list(features) == sorted(features)


@pytest.mark.parametrize(
    ("cpu", "present", "absent"),
    [
        ("haswell", {"avx2", "movbe"}, AVX512 | {"adx", "avxvnni"}),
        ("broadwell", {"avx2", "adx"}, AVX512),
        ("skylake", {"avx2", "adx", "clflushopt"}, AVX512),
        ("skylake-avx512", AVX512, {"avx512vnni", "avx512bf16"}),
        ("cascadelake", AVX512 | {"avx512vnni"}, {"avx512bf16", "avx512vbmi"}),
        ("cooperlake", AVX512 | {"avx512vnni", "avx512bf16"}, {"avx512vbmi", "amx-tile"}),
        ("icelake-server", AVX512 | {"avx512vnni", "avx512vbmi", "gfni"}, {"avx512bf16", "amx-tile"}),
        ("sapphirerapids", AVX512 | {"avx512bf16", "avx512fp16", "amx-int8", "avxvnni"}, {"amx-fp16"}),
        ("alderlake", {"avxvnni", "gfni", "vaes"}, AVX512),
        ("znver1", {"sse4a", "sha"}, AVX512 | {"vaes", "fma4"}),
        ("znver2", {"sse4a", "sha"}, AVX512 | {"vaes"}),
        ("znver3", {"vaes", "vpclmulqdq"}, AVX512),
        ("znver4", AVX512 | {"avx512vnni", "avx512bf16"}, {"avxvnni", "avx512vp2intersect", "avx512fp16"}),
        ("znver5", AVX512 | {"avx512vnni", "avx512bf16", "avxvnni", "avx512vp2intersect"}, {"avx512fp16"}),
    ],
)
def test_features_are_exact(cpu: str, present: set[str], absent: set[str]) -> None:
    features = set(cpus.features_of(cpu))
    assert present <= features
    assert absent.isdisjoint(features)
