"""What disturbs measurements on this machine: one finding for each thing that can, and what to do about it.

The cores do for some seconds what they do between the rounds of a trial (`Gauge`), while a `Watch` looks at who else
runs: what a trial would have met is what is told.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

from autotune import machine
from autotune.core import Core
from autotune.measure.finding import Finding
from autotune.measure.gauge import Gauge
from autotune.measure.peaks import Peaks
from autotune.measure.quiet import QUIET_SHARE, QUIET_STEAL, Disturbance, Watch
from autotune.measure.rounds import LEAST_OF_USUAL, Moment
from autotune.runtime.threads import ThreadPool
from autotune.target import Target

FAR = 2.0
"""Times as many bytes as the memory gives that a description may promise."""
_LEAST_QUIET = 0.5
"""Of the looks, that have to be quiet: trials go on until a few of their rounds were, and are marked where few are."""
_HIDDEN = 0.1  # of the looks, that no counter explains: somebody is on the cores' other hardware threads, or the host


@dataclass(frozen=True, slots=True)
class Observation:
    """What the cores gave for some seconds, and who else ran on them.

    Attributes:
        moments: looks that followed one another, and `quiet`, which of them a trial's round could have stood beside.
        usual: what the cores usually gave.
    """

    disturbance: Disturbance
    moments: tuple[Moment, ...]
    quiet: tuple[bool, ...]
    usual: Moment


def observe(target: Target, seconds: float) -> Observation:
    """Looks at the cores of a target for so many seconds.

    Raises:
        TargetError: this machine lacks a feature of the target.
    """
    pool = ThreadPool(target.num_threads, machine.allowed_cores())
    try:
        gauge = Gauge(target, pool)
        watch, moments, end = Watch(target.num_threads), [gauge.look()], time.monotonic() + seconds
        while time.monotonic() < end:
            moments.append(gauge.look())
        quiet = tuple(gauge.quiet(moment) for moment in moments)
        return Observation(watch.look(), tuple(moments), quiet, gauge.usual)
    finally:
        pool.close()


def disturbers(seen: Observation, core: Core) -> Iterator[Finding]:
    """Who disturbs, by what was seen.

    Args:
        core: what is known of this CPU's.
    """
    yield _programs(seen.disturbance)
    yield _host(seen.disturbance)
    yield _limit(seen.disturbance)
    yield _clock(seen, core)
    yield _neighbours(seen)
    share = sum(seen.quiet) / len(seen.quiet)
    few = share < _LEAST_QUIET
    yield Finding(
        "quiet moments",
        f"{100 * share:.0f} % of {len(seen.quiet)} looks",
        "trials take longer, and more of them are marked as disturbed: measure when it is quiet" if few else "",
        few,
    )


def _programs(found: Disturbance) -> Finding:
    harmful = found.crowded > QUIET_SHARE
    names = f", mostly {' and '.join(found.by)}" if found.by and harmful else ""
    advice = "let them end, or stop them, before you measure; -t with fewer threads leaves them a core"
    share = f"took {100 * found.crowded:.0f} % of the cores' time{names} (load {found.load:.1f})"
    return Finding("other programs", share, advice if harmful else "", harmful)


def _host(found: Disturbance) -> Finding:
    harmful = found.stolen > QUIET_STEAL
    advice = "other guests want the same cores: measure at another hour, or on a machine whose cores are your own"
    text = f"took {100 * found.stolen:.1f} % of the cores' time"
    return Finding("virtual machine's host", text, advice if harmful else "", harmful)


def _limit(found: Disturbance) -> Finding:
    harmful = found.limited > QUIET_STEAL
    text = f"stopped us for {100 * found.limited:.0f} % of the time" if found.limited else "did not stop us"
    advice = "give the container more CPU time, or use fewer threads: -t"
    return Finding("control group's limit", text, advice if harmful else "", harmful)


def _clock(seen: Observation, core: Core) -> Finding:
    rates = [moment.ghz for moment in seen.moments]
    usual = statistics.median(rates)
    slow = sum(rate < LEAST_OF_USUAL * usual for rate in rates) / len(rates)
    text = f"{usual:.2f} GHz"
    if seen.disturbance.throttled:
        return Finding("clock", f"{text}, lowered for heat", "let the machine cool, or cool it better", True)
    if core.source != "features" and usual < LEAST_OF_USUAL * core.ghz:
        how = " (governor powersave)" if machine.governor() == "powersave" else ""
        advice = (
            "the cores may save power, be hot, or all be busy; choose the governor performance, or keep what this"
            " machine has by autotune machine --measure"
        )
        return Finding("clock", f"{text}{how}, where this CPU should have {core.ghz:.2f}", advice)
    wanders = slow > _HIDDEN
    return Finding(
        "clock",
        f"{text}, a tenth lower in {100 * slow:.0f} % of the looks" if wanders else f"{text}, steady",
        "times are told for the usual clock; a fixed one makes them narrower" if wanders else "",
    )


def _neighbours(seen: Observation) -> Finding:
    """Who runs on our cores though neither the kernel nor its clock says so."""
    usual = seen.usual
    hidden = sum(
        not quiet
        and moment.ghz >= LEAST_OF_USUAL * usual.ghz
        and (moment.gflops < LEAST_OF_USUAL * usual.gflops or moment.loads < LEAST_OF_USUAL * usual.loads)
        for moment, quiet in zip(seen.moments, seen.quiet, strict=True)
    ) / len(seen.moments)
    told = hidden > _HIDDEN
    text = f"slowed the cores in {100 * hidden:.0f} % of the looks" if hidden >= 0.005 else "none seen"
    advice = (
        "something else runs on the other hardware threads of these cores, as other guests of the same host do;"
        " rounds beside it do not count, which takes time: measure at another hour, or on cores of your own"
    )
    return Finding("hidden neighbours", text, advice if told else "", hidden > 1 - _LEAST_QUIET)


def limits_found(core: Core, limits: Peaks, native: bool) -> Iterator[Finding]:
    """Whether the machine gives what it should.

    Args:
        native: the limits are of code for this very CPU.
    """
    text = f"{limits.fp32.all_cores:.0f} GFLOP/s of fp32, {limits.dram.all_cores:.0f} GB/s from memory"
    doubts = "; ".join(limits.doubts)
    yield Finding("limits", text, f"in doubt: {doubts}; look again when it is quiet" if doubts else "", bool(doubts))
    far = slow_memory(core, limits) if native else ""
    if far:
        yield Finding("memory", f"{limits.l3.one_core:.0f} GB/s from L3 for one core", far)


def slow_memory(core: Core, limits: Peaks) -> str:
    """What to do where the memory of this machine, which others may use, too, is far from what its CPU's should be."""
    if core.source == "measured":
        return ""
    rates = (("L3", limits.l3, core.l3), ("DRAM", limits.dram, core.dram))
    slow = [
        (name, f"{rate.one_core:.0f}", f"{per_cycle * core.ghz:.0f}")
        for name, rate, per_cycle in rates
        if FAR * rate.one_core < per_cycle * core.ghz
    ]
    if not slow:
        return ""
    names, here, known = (" and ".join(words) for words in zip(*slow))
    return (
        f"untuned kernels are chosen for {known} GB/s from {names}, which gave {here} here: if that is so in quiet,"
        " too, autotune machine --measure keeps what this machine has"
    )


def large_pages() -> Finding:
    """Whether Linux gives large pages to who asks for them, as buffers and weights do."""
    mode = machine.large_pages()
    off = mode == "never"
    return Finding(
        "large pages",
        "not given" if off else f"given ({mode})" if mode else "nobody says",
        "kernels that read much memory are some percent slower without them: echo madvise >"
        " /sys/kernel/mm/transparent_hugepage/enabled" if off else "",
    )  # fmt: skip
