"""Steps of register tiles follow from the core."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.search_spaces.library.register_tile import Steps, unrolled_steps
from autotune.target import Target
from autotune.tensor.dtype import DType

ZEN4 = Target.parse("x86 -mcpu=znver4 -num-cores=1")
SERVER = Target.parse("x86 -mcpu=sapphirerapids -num-cores=1")
HASWELL = Target.parse("x86 -mcpu=haswell -num-cores=1")


@pytest.mark.parametrize(
    ("target", "lanes", "sums", "loads", "cycles"),
    [
        (ZEN4, 16, 28, 16, 28),  # one multiply-add a cycle
        (ZEN4, 8, 28, 16, 14),  # narrow ones twice as often
        (ZEN4, 16, 4, 8, 8),  # one load a cycle
        (ZEN4, 8, 4, 8, 4),
        (ZEN4, 16, 2, 2, 4),  # each sum waits for its last addition
        (SERVER, 16, 28, 16, 14),
        (SERVER, 16, 6, 4, 4),
        (HASWELL, 8, 8, 6, 5),
    ],
)
def test_multiply_adds_or_loads_or_latency(target: Target, lanes: int, sums: int, loads: int, cycles: float) -> None:
    steps = Steps.of(target, lanes=lanes)
    assert steps.cycles(sums, loads) == cycles


def test_the_widest_vectors_unless_said_otherwise() -> None:
    assert Steps.of(ZEN4) == Steps.of(ZEN4, lanes=16)
    assert Steps.of(ZEN4, DType.f64).pipe.kind == "fma.f64"
    slow = replace(ZEN4.core, pipes=tuple(replace(pipe, per_cycle=0.5) for pipe in ZEN4.core.pipes))
    assert Steps.of(replace(ZEN4, core=slow)).cycles(28, 1) == 56


def test_a_tile_that_fills_the_registers_takes_one_step_at_a_time() -> None:
    assert [unrolled_steps(held, HASWELL) for held in (13, 15, 16)] == [2, 2, 1]
    assert unrolled_steps(16, ZEN4) == 2
