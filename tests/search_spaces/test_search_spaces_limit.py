"""The limit: what it grows and falls with, by dtype, algorithm, bytes and threads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.ops.parse import parse_workload
from autotune.ops.workload import Workload
from autotune.search_spaces.space.limit import Speed, limit, multiplications, multiplying, products_per_cycle
from autotune.target import Target
from tests.targets import fixed

KB, MB = 1 << 10, 1 << 20
ZEN4 = replace(Target.parse("x86 -mcpu=znver4 -num-cores=1"), l1_bytes=32 * KB, l2_bytes=MB, l3_bytes=32 * MB)
ZEN3 = Target.parse("x86 -mcpu=znver3 -num-cores=1")
SERVER = replace(
    Target.parse("x86 -mcpu=sapphirerapids -num-cores=1"), l1_bytes=48 * KB, l2_bytes=2 * MB, l3_bytes=64 * MB
)
NO_TILES = replace(
    SERVER,
    features=tuple(name for name in SERVER.features if not name.startswith("amx")),
    core=replace(SERVER.core, pipes=tuple(p for p in SERVER.core.pipes if not p.kind.startswith("tile"))),
)
CONV = parse_workload("conv2d data=1,64,56,56 weight=64,64,3,3 pad=1")


def matmul(size: int, dtype: str = "f32", right: str = "", weight: str = "var:") -> Workload:
    return parse_workload(f"matmul a={size},{size}:{dtype} b={weight}{size},{size}:{right or dtype}")


def relu(size: int) -> Workload:
    return parse_workload(f"relu data={size}")


def test_arithmetic_is_multiplications_at_the_rate_of_the_core() -> None:
    found = limit(matmul(512), ZEN4)
    assert found.arithmetic == pytest.approx(512**3 / (16 * ZEN4.core.ghz * 1e9))
    assert found.seconds == found.arithmetic > found.memory
    assert limit(matmul(512), SERVER).arithmetic * SERVER.core.ghz == pytest.approx(
        found.arithmetic * ZEN4.core.ghz / 2
    )


@pytest.mark.parametrize(
    ("target", "dtype", "right", "times"),
    [
        (ZEN4, "f64", "f64", 0.5),
        (ZEN4, "f16", "f16", 1.0),  # no such arithmetic: it is done in fp32
        (ZEN4, "bf16", "bf16", 2.0),
        (ZEN4, "u8", "i8", 4.0),
        (ZEN3, "u8", "i8", 2.0),  # pairs of 16 bits fill a lane
        (SERVER, "f16", "f16", 2.0),
        (SERVER, "bf16", "bf16", 16.0),  # tiles
        (SERVER, "u8", "i8", 32.0),
        (NO_TILES, "bf16", "bf16", 1.0),  # its instruction is slower than two of fp32
        (NO_TILES, "u8", "i8", 4.0),
    ],
)
def test_each_dtype_has_its_rate(target: Target, dtype: str, right: str, times: float) -> None:
    found, plain = limit(matmul(512, dtype, right), target), limit(matmul(512), target)
    assert plain.arithmetic / found.arithmetic == pytest.approx(times, rel=1e-3)
    assert products_per_cycle(target.core, dtype, right) == times * products_per_cycle(target.core, "f32")


def test_winograd_saves_what_its_largest_tiles_save() -> None:
    whole = parse_workload("conv2d data=1,64,54,54 weight=64,64,3,3 pad=1")
    inside = 64 * 64 * (54 * 3 - 2) ** 2
    assert multiplications(whole, strict_fp=True) == inside, "taps in padding are none"
    assert 64 * 64 * 9 * 54 * 54 / multiplications(whole) == pytest.approx(81 / 16)
    assert limit(whole, ZEN4).arithmetic < limit(whole, ZEN4, strict_fp=True).arithmetic


@pytest.mark.parametrize(("dtype", "strict"), [("f32", False), ("u8", True)])
def test_products_with_weights_take_seven_of_eight(dtype: str, strict: bool) -> None:
    """Strassen's: of bytes exactly, where pairs of 16 bits are as fast as they get."""
    plain, fewer = matmul(512, dtype, dtype.replace("u", "i")), matmul(512, dtype, dtype.replace("u", "i"), "const:")
    assert limit(fewer, ZEN3).arithmetic == pytest.approx(limit(plain, ZEN3).arithmetic * 7 / 8)
    assert (limit(fewer, ZEN3, strict_fp=True).arithmetic < limit(plain, ZEN3).arithmetic) == strict


@pytest.mark.parametrize("mcpu, saved", [("znver3", 4.0), ("znver4", 2.0)])
def test_winograd_of_bytes_saves_less_where_bytes_are_multiplied_by_fours(mcpu: str, saved: float) -> None:
    workload, target = (
        parse_workload("conv2d data=1,64,56,56:u8 weight=64,64,3,3:i8"),
        Target.parse(f"x86 -mcpu={mcpu}"),
    )
    plain, best = multiplying(workload, target.core)
    assert plain / best == pytest.approx(saved, rel=0.1)
    assert multiplying(workload, target.core, strict_fp=True) == (plain, best)
    of_the_run = parse_workload("conv2d data=1,64,56,56:u8 weight=var:64,64,3,3:i8")
    assert multiplying(of_the_run, target.core) == (plain, plain), "what it makes of weights takes too long in a run"


@pytest.mark.parametrize(
    ("text", "saved"),
    [
        ("conv2d data=1,64,56,56 weight=64,64,1,1", 8 / 7),
        ("conv2d data=1,64,56,56 weight=var:64,64,1,1", 1.0),
        ("conv2d data=1,64,56,56 weight=64,64,3,3 dilation=2", 1.0),
        ("conv2d data=1,64,56,56 weight=64,2,3,3 groups=32", 1.0),
        ("conv2d data=1,64,56,56 weight=64,1,3,3 groups=64", 1.5),
        ("conv1d data=1,64,56 weight=64,64,3", 1.0),
    ],
)
def test_who_saves_nothing_or_less(text: str, saved: float) -> None:
    workload = parse_workload(text)
    assert multiplications(workload, strict_fp=True) == workload.flops / 2
    assert multiplications(workload) * saved == pytest.approx(workload.flops / 2)


@pytest.mark.parametrize("target", [ZEN4, SERVER], ids=["znver4", "sapphirerapids"])
def test_more_work_takes_longer(target: Target) -> None:
    sizes = [limit(matmul(size), target).seconds for size in (16, 64, 256, 1024)]
    assert sizes == sorted(set(sizes))
    moved = [limit(relu(size), target).seconds for size in (KB, 16 * KB, 128 * KB, 2 * MB, 64 * MB)]
    assert moved == sorted(set(moved))


def test_bytes_come_from_the_smallest_level_that_holds_them() -> None:
    speed = Speed.of(ZEN4)
    for size, rate in ((KB, speed.l1), (64 * KB, speed.l2), (MB, speed.l3), (16 * MB, speed.dram)):
        assert limit(relu(size), ZEN4).memory == pytest.approx(8 * size / rate)


def test_weights_come_from_where_they_are() -> None:
    vector = parse_workload("matmul a=1,512 b=512,256")
    hot, *cold = (limit(vector, ZEN4, residency=where).seconds for where in ("", "L2", "L3", "DRAM"))
    assert hot == pytest.approx(cold[0], rel=0.02) and cold == sorted(set(cold))
    assert limit(vector, ZEN4, residency="DRAM").memory == pytest.approx(512 * 256 * 4 / Speed.of(ZEN4).dram)


def test_threads_share_what_is_far() -> None:
    both = ZEN4.with_threads(2)
    assert limit(matmul(512), both).arithmetic == limit(matmul(512), ZEN4).arithmetic / 2
    far = limit(relu(64 * MB), ZEN4).memory / limit(relu(64 * MB), both).memory
    assert far == pytest.approx(ZEN4.core.dram_shared / ZEN4.core.dram) and far < 2


def test_a_measured_peak_sets_the_clock() -> None:
    speed = Speed.of(ZEN4)
    fast = speed.at_peak(ZEN4, 2 * 32 * ZEN4.core.ghz * 1e9)
    assert fast == replace(speed, clock=2 * speed.clock)
    assert limit(CONV, ZEN4, fast).arithmetic == pytest.approx(limit(CONV, ZEN4).arithmetic / 2)
    assert limit(CONV, ZEN4, fast).memory == limit(CONV, ZEN4).memory
    assert speed.at_peak(ZEN4, 32 * ZEN4.core.ghz * 1e9 / 2) == speed, "somebody else was running"


def test_what_is_not_read_is_not_counted() -> None:
    rows = parse_workload("gather data=30000,768 indices=8:i64")
    assert limit(rows, ZEN4).memory < 1e-3 * limit(relu(30000 * 768), ZEN4).memory


def test_tiles_bound_products_of_f32_too_unless_their_own_algorithms_alone_are_asked_for() -> None:
    """Six products of bf16 for one, sixteen times as fast."""
    server, work = fixed("x86 -mcpu=graniterapids -num-cores=1"), parse_workload("matmul a=128,768 b=768,3072")
    own, every = limit(work, server, own=True).arithmetic, limit(work, server).arithmetic
    assert 2 < own / every < 3
    assert limit(work, server, strict_fp=True).arithmetic >= own
    assert limit(work, fixed("x86 -mcpu=znver5 -num-cores=1"), own=True) == limit(
        work, fixed("x86 -mcpu=znver5 -num-cores=1")
    )
