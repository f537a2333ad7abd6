"""Measuring a core: the probes are the instructions that they name, and what is found is a core. Not how fast it is."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from autotune.codegen.jit import assembly
from autotune.core import KINDS, TILE_DEPTH, WIDTHS, has_instruction
from autotune.measure import calibrate
from autotune.measure.calibrate import measure_core
from autotune.measure.core_probes import (
    BESIDE_ADDS,
    BESIDE_MULTIPLIES,
    CLOCK_STEPS,
    clock_kernel,
    latency_kernel,
    load_kernel,
    mixed_kernel,
    store_kernel,
    throughput_kernel,
)
from autotune.measure.probes import CHAINS, Kernel, Probe
from autotune.target import Target

AVX2 = Target.parse("x86 -mcpu=haswell -num-cores=1")
SERVER = Target.parse("x86 -mcpu=sapphirerapids -num-cores=1")
NAMES = {
    "fma.f32": r"vfmadd\w+ps",
    "fma.f64": r"vfmadd\w+pd",
    "fma.f16": r"vfmadd\w+ph",
    "dot.u8": "vpdpbusd",
    "dot.bf16": "vdpbf16ps",
}
REGISTERS = {128: "xmm", 256: "ymm", 512: "zmm"}


def loop_of(kernel: Kernel, target: Target) -> str:
    """The assembly of the innermost loop."""
    text = assembly(kernel.ir, cpu=target.cpu, features=target.llvm_features)
    jump = re.search(r"^\tj\w+\t(\.LBB0_\d+)$", text, re.MULTILINE)
    assert jump
    return text[text.index(f"{jump[1]}:") : jump.start()]


def count(pattern: str, text: str) -> int:
    return len(re.findall(rf"^\t(?:{{vex}}\s+)?{pattern}\s", text, re.MULTILINE))


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("kind", NAMES)
def test_a_chain_is_the_instruction_and_nothing_else(kind: str, bits: int) -> None:
    for kernel, chains in ((throughput_kernel(kind, bits), CHAINS), (latency_kernel(kind, bits), 1)):
        body = loop_of(kernel, SERVER)
        assert count(NAMES[kind], body) == kernel.operations == chains
        assert len(re.findall(rf"%{REGISTERS[bits]}\d+$", body, re.MULTILINE)) == chains
        assert "(%" not in body, "an operand comes from memory"


@pytest.mark.parametrize("kind", TILE_DEPTH)
def test_tiles_are_multiplied_and_nothing_else(kind: str) -> None:
    """Whole ones, and of one row."""
    server = Target.parse("x86 -mcpu=graniterapids -num-cores=1")
    for kernel, rows in ((throughput_kernel(kind, 512), 16), (latency_kernel(kind, 512), 1)):
        body = loop_of(kernel, server)
        assert count(r"tdp\w+", body) * rows == kernel.operations
        assert "(%" not in body, "an operand comes from memory"
    assert {*NAMES, *TILE_DEPTH} == {*KINDS}


def test_additions_beside_multiply_adds() -> None:
    body = loop_of(mixed_kernel(256, BESIDE_ADDS), AVX2)
    assert count(NAMES["fma.f32"], body) == BESIDE_MULTIPLIES == mixed_kernel(256, BESIDE_ADDS).operations
    assert count("vaddps", body) == BESIDE_ADDS
    assert "(%" not in body, "more registers than there are"


@pytest.mark.parametrize(("target", "bits"), [(AVX2, 256), (SERVER, 512)], ids=["avx2", "avx512"])
def test_the_clock_is_one_chain(target: Target, bits: int) -> None:
    body = loop_of(clock_kernel(bits), target)
    assert count("(?:xorq|addq)", body) >= CLOCK_STEPS == clock_kernel(bits).operations
    assert 0 < count(NAMES["fma.f32"], body) <= CLOCK_STEPS // 4


@pytest.mark.parametrize("target", [AVX2, SERVER], ids=["avx2", "avx512"])
def test_loads_stay_in_the_loop(target: Target) -> None:
    body = loop_of(load_kernel(target), target)
    assert len(re.findall(rf"\(%.*%{REGISTERS[target.vector_bits]}", body)) == load_kernel(target).operations


def test_stores_write_the_whole_buffer() -> None:
    probe = Probe(store_kernel(AVX2), AVX2, 2048)
    probe._space[:32] = np.arange(32)
    probe.seconds(1)
    assert (probe._space[:2048].reshape(-1, 32) == np.arange(32)).all()
    assert (probe._space[2048:3072] == 0x3C).all(), "it wrote behind the buffer"


def test_a_core_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "_MOST_SWEEPS", 2)
    monkeypatch.setattr(calibrate, "_SECONDS", 1e-4)
    target = replace(AVX2, num_threads=2)
    found = measure_core(target)
    kinds = {(kind, bits) for kind in KINDS for bits in WIDTHS if has_instruction(kind, bits, AVX2.features)}
    assert {(pipe.kind, pipe.bits) for pipe in found.core.pipes} == kinds
    assert found.core.source == "measured"
    rounded = found.core.rounded()
    assert rounded.rounded() == rounded, "a record of a calibration is one of its steps"
    assert found.core.rounded(rounded) == rounded


def test_one_thread_has_no_barrier_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "_MOST_SWEEPS", 1)
    monkeypatch.setattr(calibrate, "_SECONDS", 1e-4)
    assert measure_core(AVX2).core.barrier_cycles == AVX2.core.barrier_cycles
