"""C code that tells whether the CPU it runs on has the features that kernels were compiled for."""

from __future__ import annotations

from collections.abc import Collection

from autotune.cpuid import BITS, EVERYWHERE, STATE, TILES
from autotune.errors import TargetError

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
    unknown = [feature for feature in wanted if feature not in BITS]
    if unknown:
        raise TargetError(f"a library cannot check its CPU for {', '.join(unknown)}: leave it out of --target")
    lines = [f"static const char *{name}(void) {{"]
    saved: dict[int, str] = {}
    for feature in wanted:
        for family, mask in STATE.items():
            if feature.startswith(family):
                saved.setdefault(mask, feature)
    for feature in wanted:
        leaf, subleaf, register, bit = BITS[feature]
        lines.append(f"  if (!(cpu_word({leaf:#x}u, {subleaf}u, '{register}') & (1u << {bit}))) return \"{feature}\";")
    for mask, feature in saved.items():
        lines.append(f'  if ((cpu_saved() & {mask:#x}u) != {mask:#x}u) return "{feature} (the system keeps it off)";')
    if TILES in features:  # a process asks for the tiles' 8 KiB before it uses them (Linux, arch_prctl)
        lines.append(f'  if (syscall(SYS_arch_prctl, 0x1023, 18)) return "{TILES} (the system keeps it off)";')
    return "\n".join([*lines, "  return 0;", "}", ""])
