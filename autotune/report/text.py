"""How values look to people: one form for the command line, progress and notebooks."""

from __future__ import annotations

import math


def duration(seconds: float | None) -> str:
    """A measured time: 812.4 µs, 12.345 ms, 1.234 s; "-" where it is unknown."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    if seconds >= 1.0:
        return f"{seconds:.3f} s"
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3f} ms"


def clock(seconds: float | None) -> str:
    """A waiting time: 0:07, 4:05, 1:02:03."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def percent(share: float | None) -> str:
    """96.7 %; "-" where it is unknown."""
    return "-" if share is None or math.isnan(share) else f"{100 * share:.1f} %"


def work(flops: float) -> str:
    """Floating-point operations: 8.18 GFLOP, 352.26 kFLOP, 12 FLOP."""
    for unit, least in (("GFLOP", 1e9), ("MFLOP", 1e6), ("kFLOP", 1e3)):
        if flops >= least:
            return f"{flops / least:.2f} {unit}"
    return f"{flops:.0f} FLOP"


def counted(count: int, what: str) -> str:
    """1 kernel, 2 kernels."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
