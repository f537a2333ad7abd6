"""What the CPU says of itself is what LLVM reads in it."""

from __future__ import annotations

from autotune import cpuid, machine


def test_features_are_those_that_llvm_finds() -> None:
    known = set(machine.known_features())
    ours = cpuid.features() & known
    assert ours == {name for name in machine.cpu_features() if name in cpuid.BITS or name in cpuid.EVERYWHERE}
    assert cpuid.EVERYWHERE <= cpuid.features()
