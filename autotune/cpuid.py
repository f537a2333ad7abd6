"""What the CPU says of itself, by the instruction for it: the features that code may use, under LLVM's names."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
from collections.abc import Callable, Iterator

EVERYWHERE = frozenset({"64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2", "x87"})
"""What every x86-64 CPU has."""

# Where cpuid says so: (leaf, subleaf, register a b c d, bit). Intel SDM volume 2A, CPUID; AMD APM volume 3, appendix E.
BITS: dict[str, tuple[int, int, str, int]] = {
    **{name: (1, 0, "c", bit) for name, bit in {
        "sse3": 0, "pclmul": 1, "ssse3": 9, "fma": 12, "cx16": 13, "sse4.1": 19, "sse4.2": 20, "crc32": 20, "movbe": 22,
        "popcnt": 23, "aes": 25, "avx": 28, "f16c": 29}.items()},
    **{name: (7, 0, "b", bit) for name, bit in {
        "bmi": 3, "avx2": 5, "bmi2": 8, "avx512f": 16, "avx512dq": 17, "adx": 19, "avx512ifma": 21, "avx512cd": 28,
        "sha": 29, "avx512bw": 30, "avx512vl": 31}.items()},
    **{name: (7, 0, "c", bit) for name, bit in {
        "avx512vbmi": 1, "avx512vbmi2": 6, "gfni": 8, "vaes": 9, "vpclmulqdq": 10, "avx512vnni": 11,
        "avx512bitalg": 12, "avx512vpopcntdq": 14}.items()},
    **{name: (7, 0, "d", bit) for name, bit in {
        "avx512vp2intersect": 8, "amx-bf16": 22, "avx512fp16": 23, "amx-tile": 24, "amx-int8": 25}.items()},
    **{name: (7, 1, "a", bit) for name, bit in {
        "sha512": 0, "sm3": 1, "sm4": 2, "avxvnni": 4, "avx512bf16": 5, "cmpccxadd": 7, "amx-fp16": 21,
        "avxifma": 23}.items()},
    **{name: (7, 1, "d", bit) for name, bit in {"avxvnniint8": 4, "avxneconvert": 5, "amx-complex": 8,
                                                "avxvnniint16": 10, "avx10.1": 19}.items()},
    **{name: (0x80000001, 0, "c", bit) for name, bit in {
        "sahf": 0, "lzcnt": 5, "sse4a": 6, "prfchw": 8, "xop": 11, "fma4": 16, "tbm": 21}.items()},
}  # fmt: skip
# Registers that the system must save, bits of XCR0: SSE and AVX; masks and the upper half of AVX-512; tiles.
STATE = {"avx": 0x6, "avx512": 0xE6, "avx10": 0xE6, "amx": 0x60000}
TILES = "amx-tile"

_IDENTITY: tuple[tuple[int, int, str], ...] = (
    (0, 0, "abcd"), (1, 0, "acd"), (7, 0, "abcd"), (7, 1, "abcd"), (7, 2, "abcd"), (0xD, 1, "a"), (0x14, 0, "abcd"),
    (0x19, 0, "abcd"), (0x1E, 1, "abcd"), (0x24, 0, "abcd"), (0x80000000, 0, "a"), (0x80000001, 0, "abcd"),
    (0x80000008, 0, "b"), (0x80000021, 0, "a"),
)  # fmt: skip
"""Registers that name the CPU and its features, but not what differs from core to core; LLVM reads no others."""

# u64 f(leaf, subleaf, u32 words[4]): what `cpuid` leaves in a, b, c and d. u64 f(...): XCR0.
_CPUID = bytes.fromhex("53 89f8 89f1 4989d0 0fa2 418900 41895804 41894808 4189500c 5b c3")
_XGETBV = bytes.fromhex("31c9 0f01d0 48c1e220 4809d0 c3")
_OSXSAVE = 1 << 27  # of leaf 1, c: the system saves registers by XCR0


@functools.cache
def features() -> frozenset[str]:
    """The features in `BITS` and `EVERYWHERE` that this CPU has, and whose registers the system saves."""
    with _reading() as (word, saved):
        found = {name for name, (leaf, subleaf, which, bit) in BITS.items() if word(leaf, subleaf, which) >> bit & 1}
    unsaved = tuple(family for family, mask in STATE.items() if saved & mask != mask)
    return EVERYWHERE | {name for name in found if not name.startswith(unsaved)}


@functools.cache
def identity() -> str:
    """All that the name and the features of this CPU follow from, for whoever remembers them, in hex digits.

    Raises:
        OSError: the system lets this process make no memory executable.
    """
    with _reading() as (word, saved):
        found = [word(leaf, subleaf, which) for leaf, subleaf, registers in _IDENTITY for which in registers]
    return ".".join(f"{number:x}" for number in (*found, saved))


@contextlib.contextmanager
def _reading() -> Iterator[tuple[Callable[[int, int, str], int], int]]:
    """What gives a register of a leaf and subleaf, 0 where the CPU has no such leaf; and XCR0."""
    with _Code(_CPUID) as cpuid, _Code(_XGETBV) as xgetbv:
        words = (ctypes.c_uint32 * 4)()

        def word(leaf: int, subleaf: int, which: str) -> int:
            cpuid(leaf & 0x80000000, 0, words)
            if words[0] < leaf:
                return 0
            cpuid(leaf, subleaf, words)
            return int(words["abcd".index(which)])

        yield word, xgetbv(0, 0, None) if word(1, 0, "c") & _OSXSAVE else 0


class _Code:
    """A few instructions, callable while the block lasts."""

    def __init__(self, code: bytes) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self._memory.write(code)

    def __enter__(self) -> Callable[..., int]:
        self._view = ctypes.c_char.from_buffer(self._memory)
        address = ctypes.addressof(self._view)
        protect = ctypes.CDLL(None).mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        if protect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC):
            raise OSError("the system lets this process make no memory executable")
        return ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p)(address)

    def __exit__(self, *unused: object) -> None:
        del self._view
        self._memory.close()
