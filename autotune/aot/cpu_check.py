"""C code that tells whether the CPU it runs on has the features that kernels were compiled for."""

from __future__ import annotations

from collections.abc import Collection

from autotune.errors import TargetError

EVERYWHERE = frozenset({"64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2", "x87"})
"""What every x86-64 CPU has."""

# Where cpuid says so: (leaf, subleaf, register a b c d, bit). Intel SDM volume 2A, CPUID; AMD APM volume 3, appendix E.
_BITS: dict[str, tuple[int, int, str, int]] = {
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
_STATE = {"avx": 0x6, "avx512": 0xE6, "avx10": 0xE6, "amx": 0x60000}
TILES = "amx-tile"

CHECKER = """\
static unsigned cpu_word(unsigned leaf, unsigned subleaf, char which) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_max(leaf & 0x80000000u, 0) < leaf) return 0;
  __cpuid_count(leaf, subleaf, a, b, c, d);
  return which == 'a' ? a : which == 'b' ? b : which == 'c' ? c : d;
}

static unsigned long long cpu_saved(void) {
  if (!(cpu_word(1, 0, 'c') & (1u << 27))) return 0;
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return ((unsigned long long)high << 32) | low;
}
"""


def check_function(name: str, features: Collection[str]) -> str:
    """C text of `static const char *NAME(void)`: the first feature that this CPU lacks, NULL where it has all.

    It needs `CHECKER`, and <cpuid.h>, <unistd.h> and <sys/syscall.h>.

    Raises:
        TargetError: nobody here knows how to ask for a feature.
    """
    wanted = sorted(set(features) - EVERYWHERE)
    unknown = [feature for feature in wanted if feature not in _BITS]
    if unknown:
        raise TargetError(f"a library cannot check its CPU for {', '.join(unknown)}: leave it out of --target")
    lines = [f"static const char *{name}(void) {{"]
    saved: dict[int, str] = {}
    for feature in wanted:
        for family, mask in _STATE.items():
            if feature.startswith(family):
                saved.setdefault(mask, feature)
    for feature in wanted:
        leaf, subleaf, register, bit = _BITS[feature]
        lines.append(f"  if (!(cpu_word({leaf:#x}u, {subleaf}u, '{register}') & (1u << {bit}))) return \"{feature}\";")
    for mask, feature in saved.items():
        lines.append(f'  if ((cpu_saved() & {mask:#x}u) != {mask:#x}u) return "{feature} (the system keeps it off)";')
    if TILES in features:  # a process asks for the tiles' 8 KiB before it uses them (Linux, arch_prctl)
        lines.append(f'  if (syscall(SYS_arch_prctl, 0x1023, 18)) return "{TILES} (the system keeps it off)";')
    return "\n".join([*lines, "  return 0;", "}", ""])
