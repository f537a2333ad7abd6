"""A stray access must be seen: each test commits one, the faulting ones in a process of their own."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autotune.measure.buffers import ALIGNMENT, GuardedBuffer, SpareBuffers

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("size", [0, 1, 64, 100, 4096, 5000, 1 << 20, 1 << 21, (1 << 21) + 100])
def test_aligned_poisoned_and_writable(size: int) -> None:
    buffer = GuardedBuffer(size)
    assert buffer.address % ALIGNMENT == 0
    assert buffer.bytes.size == size
    assert (buffer.bytes == 0xFF).all()
    buffer.bytes[:] = 7
    assert buffer.slack_intact()
    buffer.poison()
    assert (buffer.bytes == 0xFF).all()


def test_poison_is_nan_and_views_share_memory() -> None:
    buffer = GuardedBuffer(24 * 4)
    view = buffer.view(np.float32, (2, 3, 4))
    assert np.isnan(view).all()
    view[1, 2, 3] = 1.0
    assert buffer.bytes[-1] == 0x3F
    assert view.ctypes.data == buffer.address


@pytest.mark.parametrize("offset", [100, -1, 127, -64])
def test_a_write_into_the_slack_is_found(offset: int) -> None:
    buffer = GuardedBuffer(100)
    inside = np.ctypeslib.as_array((ctypes.c_uint8 * 192).from_address(buffer.address - 64))
    inside[64 + offset] = 0
    assert not buffer.slack_intact()


@pytest.mark.parametrize("access", ["write", "read"])
@pytest.mark.parametrize(("size", "offset"), [(4096, 4096), (4096, -1), (1 << 21, 1 << 21), (1 << 21, -1)])
def test_beyond_the_guards_is_a_fault(size: int, offset: int, access: str) -> None:
    act = "memset(address, 0, 1)" if access == "write" else "string_at(address, 1)"
    code = f"""
import ctypes
from autotune.measure.buffers import GuardedBuffer
buffer = GuardedBuffer({size})
address = buffer.address + {offset}
ctypes.{act}
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert done.returncode == -11


@pytest.mark.parametrize("size", [100, 4096, 1 << 21])
def test_while_kernels_are_timed_the_page_behind_may_be_read(size: int) -> None:
    code = f"""
import ctypes
from autotune.measure.buffers import GuardedBuffer
buffer = GuardedBuffer({size})
with buffer.readable_behind():
    ctypes.string_at(buffer.address + {-(-size // ALIGNMENT) * ALIGNMENT}, 4096)
print("read", flush=True)
ctypes.string_at(buffer.address + {-(-size // ALIGNMENT) * ALIGNMENT}, 1)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("read\n", -11)


def test_a_spare_buffer_serves_again_those_of_its_size() -> None:
    spare = SpareBuffers(1000)
    one = spare.take(100)
    spare.give(one)
    assert spare.take(101) is not one
    assert spare.take(100) is one
    assert spare.take(100) is not one, "it is in use"


def test_spares_are_bounded_and_sound() -> None:
    spare = SpareBuffers(250)
    first, second, third = (spare.take(100) for _ in range(3))
    for buffer in (first, second, third):
        spare.give(buffer)
    assert {id(spare.take(100)), id(spare.take(100))} == {id(second), id(third)}
    ctypes.memset(second.address - 1, 0, 1)
    spare.give(second)
    assert spare.take(100) is not second, "somebody wrote beside its data"
