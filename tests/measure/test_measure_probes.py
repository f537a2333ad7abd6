"""The probes do the work that they count, with the instructions that they name. How fast is not tested."""

from __future__ import annotations

import ctypes
import itertools
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

from autotune.codegen.jit import assembly, compile_ir
from autotune.codegen.link import load_objects
from autotune.errors import TargetError
from autotune.measure.peaks import Peak, doubt_of, expected_peak, fma_peak, measure_peaks, settle, steady_peak
from autotune.measure.probes import (
    Kernel,
    Probe,
    bf16_kernel,
    fma_kernel,
    int8_kernel,
    read_kernel,
)
from autotune.measure.seen_peaks import forget_peaks, keep_peak, seen_peak
from autotune.target import Target

Bytes: TypeAlias = npt.NDArray[np.uint8]

HOST = replace(Target.parse("native"), num_threads=1)
AVX2 = Target.parse("x86 -mcpu=haswell -num-cores=1")


@pytest.fixture(autouse=True, scope="module")
def hasty() -> None:
    """Here, limits are measured as they are for users."""


@pytest.fixture(autouse=True)
def nothing_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No peak that this machine was seen to reach."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def loop_of(kernel: Kernel, target: Target) -> str:
    """The assembly of the innermost loop: the label that the first backward jump goes to, up to that jump."""
    text = assembly(kernel.ir, cpu=target.cpu, features=target.llvm_features)
    jump = re.search(r"^\tj\w+\t(\.LBB0_\d+)$", text, re.MULTILINE)
    assert jump
    return text[text.index(f"{jump[1]}:") : jump.start()]


def aligned(array: Bytes) -> Bytes:
    """A copy that starts on a 64-byte boundary."""
    space = np.zeros(array.size + 64, np.uint8)
    view = space[-space.ctypes.data % 64 :][: array.size]
    view[:] = array
    return view


def run(kernel: Kernel, target: Target, data: Bytes, size: int, repeats: int) -> None:
    with load_objects([compile_ir(kernel.ir, cpu=target.cpu, features=target.llvm_features).object_code]) as library:
        probe = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(library.address("probe"))
        probe(data.ctypes.data, size, repeats)


@pytest.mark.parametrize(
    ("cpu", "kernel", "instruction", "register", "operations"),
    [
        ("haswell", fma_kernel, "vfmadd", "ymm", 16),
        ("znver4", fma_kernel, "vfmadd", "zmm", 32),
        ("alderlake", int8_kernel, "vpdpbusd", "ymm", 64),
        ("cascadelake", int8_kernel, "vpdpbusd", "zmm", 128),
        ("cooperlake", bf16_kernel, "vdpbf16ps", "zmm", 64),
    ],
)
def test_a_loop_is_multiply_adds_and_nothing_else(
    cpu: str, kernel: Callable[[Target], Kernel | None], instruction: str, register: str, operations: int
) -> None:
    target = Target.parse(f"x86 -mcpu={cpu}")
    made = kernel(target)
    assert made
    body = loop_of(made, target)
    found = re.findall(rf"^\t(?:{{vex}}\s+)?{instruction}\S*\t.*%{register}\d+$", body, re.MULTILINE)
    assert len(found) * operations == made.operations, "LLVM merged or split the chains"
    assert "(%" not in body, "an operand comes from memory"


@pytest.mark.parametrize("cpu", ["haswell", "skylake-avx512"])
def test_no_kernel_for_an_instruction_that_is_not_there(cpu: str) -> None:
    target = Target.parse(f"x86 -mcpu={cpu}")
    assert int8_kernel(target) is None
    assert bf16_kernel(target) is None


@pytest.mark.parametrize("target", [HOST, AVX2], ids=["host", "avx2"])
def test_fma_repeats_as_often_as_asked(target: Target) -> None:
    kernel = fma_kernel(target)
    data = aligned(np.zeros(2048, np.uint8))
    values = data.view(np.float32)
    values[: target.lanes(4)] = 2.0
    run(kernel, target, data, 1024, repeats=5)
    # each chain is c = 2 * 2 + c, five times
    for chain in range(12):
        assert (values[16 + 16 * chain :][: target.lanes(4)] == 20.0).all()
    assert kernel.operations == 12 * 2 * target.lanes(4)


@pytest.mark.parametrize("target", [HOST, AVX2], ids=["host", "avx2"])
def test_read_reads_every_byte(target: Target) -> None:
    """Setting any one byte of the buffer changes the result, which the OR of all vectors is."""
    size, width = 2048, target.vector_bits // 8
    rng = np.random.default_rng(0)
    for place in [0, 1, size - 1, *rng.integers(0, size, 20).tolist()]:
        data = aligned(np.zeros(size + 64, np.uint8))
        data[place] = 0x81
        run(read_kernel(target), target, data, size, repeats=2)
        expected = np.zeros(width, np.uint8)
        expected[place % width] = 0x81
        assert (data[size:][:width] == expected).all()


def test_work_is_operations_or_bytes() -> None:
    assert Probe(fma_kernel(HOST), HOST).work(10) == 10 * fma_kernel(HOST).operations
    assert Probe(read_kernel(HOST), HOST, size=4096).work(10) == 40960


def test_longer_asks_for_more_repeats() -> None:
    probe = Probe(fma_kernel(HOST), HOST)
    assert probe.repeats_for(1e-3) > 1000


def test_a_probe_for_another_cpu_is_refused() -> None:
    foreign = replace(HOST, features=(*HOST.features, "made-up"))
    with pytest.raises(TargetError, match="needs made-up, which this machine's .* lacks"):
        Probe(fma_kernel(foreign), foreign)


class Limit:
    """Plausible after so many sweeps."""

    def __init__(self, good_after: int) -> None:
        self.sweeps, self.good_after = 0, good_after

    @property
    def plausible(self) -> bool:
        return self.sweeps >= self.good_after

    def sweep(self) -> None:
        self.sweeps += 1


def test_what_cannot_be_the_limit_is_measured_again_later() -> None:
    pauses: list[float] = []
    good, slow, never = limits = [Limit(0), Limit(4), Limit(99)]
    settle(limits, pauses.append)
    assert (good.sweeps, slow.sweeps) == (2, 4)
    assert 4 < never.sweeps < 10, "it gives up"
    assert len(pauses) == never.sweeps - 2 and pauses == sorted(pauses)
    late = Limit(99)
    settle([late], pauses.append, clock=itertools.count(step=5).__next__)
    assert late.sweeps == 2, "on a busy machine a sweep takes long"


@pytest.mark.parametrize("source", ["measured", "shipped", "given", "features"])
def test_a_peak_that_is_too_low_for_the_cpu_is_in_doubt(source: str) -> None:
    """As when "FMA peak 35 GFLOP/s" was printed as a fact."""
    target = replace(AVX2, core=replace(AVX2.core, source=source), num_threads=2)
    expected = expected_peak(target)
    assert expected == pytest.approx(2 * 2 * target.core.ghz * target.core.best_lane_rate("fma.f32") / 32)
    assert doubt_of(target, expected) == doubt_of(target, 1.3 * expected) == ""
    assert f"should reach {expected:.0f} GFLOP/s" in doubt_of(target, 0.3 * expected)


def test_a_peak_that_was_measured_in_quiet_is_held_to_three_percent() -> None:
    measured = replace(AVX2, core=replace(AVX2.core, source="measured", peaks=((AVX2.num_threads, 100.0),)))
    assert doubt_of(measured, 98.0) == "" and doubt_of(measured, 96.0) == "this CPU should reach 100 GFLOP/s"
    other = measured.with_threads(AVX2.num_threads + 1)
    assert expected_peak(other) == expected_peak(AVX2.with_threads(AVX2.num_threads + 1)), "not measured with so many"


def test_a_low_peak_is_measured_again_in_a_quiet_moment() -> None:
    expected, now = expected_peak(AVX2), 0.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += 1.0

    def peak(quiet_from: float) -> Peak:
        def probe() -> float:
            return expected * (1.0 if now >= quiet_from else 0.2)

        return steady_peak(AVX2, probe, wait, 5.0, lambda: now)

    assert peak(0.0) == Peak(expected)
    assert now == 0.0, "nothing is waited for when there is no doubt"
    assert peak(3.0) == Peak(expected)
    assert now == 3.0
    found = peak(99.0)
    assert found.gflops == 0.2 * expected and found.doubt
    assert now == 8.0, "patience has an end"


def test_a_peak_that_was_never_measured_in_quiet_is_in_doubt() -> None:
    expected, now = expected_peak(AVX2), 0.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += 1.0

    def quiet_from(moment: float) -> Peak:
        return steady_peak(AVX2, lambda: expected, wait, 5.0, lambda: now, lambda: now >= moment)

    assert quiet_from(0.0) == Peak(expected)
    assert quiet_from(2.0) == Peak(expected) and now == 2.0
    assert quiet_from(99.0).doubt == "other programs ran, and it was never measured in quiet"


def test_the_first_peak_takes_its_time_since_clocks_wander() -> None:
    expected, now = expected_peak(AVX2), 0.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += 1.0

    found = steady_peak(AVX2, lambda: expected * (1 + now / 100), wait, 3.0, lambda: now, first=True)
    assert found == Peak(1.03 * expected)


def test_one_round_that_no_other_comes_near_is_no_peak() -> None:
    expected = expected_peak(AVX2)
    rates = iter([9 * expected, 8 * expected, *[expected] * 999])
    assert steady_peak(AVX2, lambda: next(rates), lambda seconds: None, 0.0) == Peak(expected)


def test_what_was_seen_is_not_waited_for_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("autotune.measure.peaks.wait_until_quiet", lambda watch, seconds: waits.append(seconds))
    keep_peak(HOST, 1e6)
    assert fma_peak(HOST, 5.0).doubt
    forget_peaks()
    assert max(waits, default=0.0) < 1.0  # a sweep may take all of it


def test_what_was_seen_once_is_what_later_peaks_are_held_against() -> None:
    first = fma_peak(HOST, 0.0).gflops
    keep_peak(HOST, 2 * first)
    keep_peak(HOST, first)
    assert seen_peak(HOST) == expected_peak(HOST) == 2 * first
    assert doubt_of(HOST, 1.96 * first) == ""
    assert doubt_of(HOST, 1.93 * first) == f"this CPU should reach {2 * first:.0f} GFLOP/s"
    assert fma_peak(HOST, 0.0).doubt
    assert seen_peak(HOST) == 2 * first
    for other in (HOST.with_threads(7), replace(HOST, cpu="i486")):
        assert seen_peak(other) == 0.0
    forget_peaks()
    assert seen_peak(HOST) == 0.0
    forget_peaks()


@pytest.mark.parametrize("change", [None, {"model": "Opteron"}, {"peaks": 3}, {"peaks": {"1 x 512 bits": "fast"}}])
def test_what_was_seen_elsewhere_or_is_damaged_does_not_count(tmp_path: Path, change: dict[str, object] | None) -> None:
    keep_peak(HOST, 100.0)
    (path,) = (tmp_path / "autotune" / "cores").iterdir()
    path.write_text("damaged" if change is None else json.dumps({**json.loads(path.read_text()), **change}))
    assert seen_peak(HOST) == 0.0
    keep_peak(HOST, 90.0)
    assert seen_peak(HOST) == 90.0


def test_what_cannot_be_remembered_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    keep_peak(HOST, 90.0)
    assert seen_peak(HOST) == 0.0


def test_a_peak_that_a_kernel_beats_is_in_doubt() -> None:
    """As when kernels reached 557.7 % of it."""
    assert Peak(100.0).against(99.0) == Peak(100.0).against(104.0) == Peak(100.0)
    assert Peak(100.0).against(557.7) == Peak(100.0, "a kernel reaches 558 GFLOP/s")
    assert Peak(100.0, "low").against(557.7).doubt == "low"


@pytest.mark.parametrize("threads", [1, 2])
def test_peaks(threads: int) -> None:
    peaks = measure_peaks(replace(AVX2, num_threads=threads))
    assert peaks.int8 is None
    assert peaks.bf16 is None
    for rate in (peaks.fp32, peaks.l1, peaks.l2, peaks.l3, peaks.dram):
        assert rate.one_core > 0
        assert rate.all_cores > 0
        assert threads > 1 or rate.all_cores == rate.one_core
