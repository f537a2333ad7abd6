"""Profile: where the time of a compiled model goes, kernel by kernel, and how near each is to the machine's limits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from autotune.compiler.compile import CompiledModel, KernelReport
from autotune.compiler.specialisation import ProgramStep, Step
from autotune.compiler.staged import StagedModel
from autotune.measure.peaks import Peaks
from autotune.measure.quiet import Watch
from autotune.measure.timing import latency
from autotune.report.naming import kernel_name
from autotune.runtime.executor import Array
from autotune.runtime.trace import named_track
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.limit import Speed, limit
from autotune.search_spaces.space.registry import lookup
from autotune.target import Target

SURE_SECONDS, BEYOND = 2e-5, 1.1
"""A kernel of so many seconds that is so much faster than a limit shows the limit to be wrong; operands that a cache
still holds let smaller ones seem so."""


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """One kernel call inside the model.

    Attributes:
        report: what it computes and where its schedule came from.
        start, seconds: medians over the passes, barrier included; the start counts from that of the pass.
        least: seconds that the machine needs at least, as `limit` says, for the multiplications of the kernel's
            algorithm or one that is as precise, or to move every operand once.
        busy: of each thread, the seconds until it has done its part of the kernel, and waits for the others; medians.
    """

    report: KernelReport
    start: float
    seconds: float
    least: float
    busy: tuple[float, ...] = ()

    @property
    def template(self) -> str:
        """The template of its schedule."""
        return Config.from_json(self.report.config).template or ""

    @property
    def of_limit(self) -> float:
        """Share of what the machine can do, 0 to 1."""
        return self.least / self.seconds if self.seconds else 0.0

    @property
    def gflops(self) -> float:
        """1e9 operations a second."""
        return self.report.flops / self.seconds * 1e-9 if self.seconds else 0.0

    @property
    def against_record(self) -> float | None:
        """Time in the model over the time that was recorded when it was tuned; None without a record."""
        return self.seconds / self.report.seconds if self.report.seconds else None


@dataclass(frozen=True, slots=True)
class HostProfile:
    """One host function: the node, and its median seconds; the start counts from that of the pass."""

    label: str
    start: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """One pass over a model.

    Attributes:
        kernels, hosts: in the order in which they run.
        programs: how many the pass was made of.
        latency: seconds of a run as a caller sees it, median; what it has beyond `seconds` is spent around kernels.
        fp32, levels: the limits used, in GFLOP/s, and GB/s per level, of all threads.
        doubts: in words, why these limits are likely too low; empty when nothing speaks against them.
        disturbance: what other programs took of the cores during the passes, in words; empty when it was quiet.
    """

    kernels: tuple[KernelProfile, ...]
    hosts: tuple[HostProfile, ...]
    programs: int
    latency: float
    fp32: float
    levels: tuple[tuple[str, int, float], ...]
    doubts: tuple[str, ...] = ()
    disturbance: str = ""

    @property
    def seconds(self) -> float:
        """Of all kernels and host functions together."""
        return sum(kernel.seconds for kernel in self.kernels) + sum(host.seconds for host in self.hosts)

    @property
    def disturbed(self) -> bool:
        """Whether the limits are too low for sure, as kernels beat them, or likely so."""
        return bool(self.doubts) or any(k.of_limit > BEYOND for k in self.kernels if k.seconds > SURE_SECONDS)

    def limit_share(self, kernel: KernelProfile) -> float | None:
        """The kernel's `of_limit`; None when the limits are in doubt, and nothing should be compared with them."""
        return None if self.disturbed else kernel.of_limit

    @property
    def recorded(self) -> tuple[int, float, float]:
        """The kernels with a record: how many, their seconds in the model, and those on record."""
        found = [(kernel.seconds, kernel.report.seconds) for kernel in self.kernels if kernel.report.seconds]
        return len(found), sum(here for here, _ in found), sum(record for _, record in found)

    @property
    def waiting(self) -> float | None:
        """Share of the kernels' time that threads wait for the slowest one; None on a single thread."""
        waits = [(k.seconds - busy, k.seconds) for k in self.kernels if len(k.busy) > 1 for busy in k.busy]
        total = sum(seconds for _, seconds in waits)
        return sum(wait for wait, _ in waits) / total if total else None

    def share(self, kernel: KernelProfile | HostProfile) -> float:
        return kernel.seconds / self.seconds if self.seconds else 0.0

    def by_template(self) -> list[tuple[str, int, float]]:
        """(template, calls, seconds), the most expensive first."""
        found: dict[str, tuple[int, float]] = {}
        for kernel in self.kernels:
            calls, seconds = found.get(kernel.template, (0, 0.0))
            found[kernel.template] = (calls + 1, seconds + kernel.seconds)
        return sorted(((name, *rest) for name, rest in found.items()), key=lambda row: -row[2])

    def to_dict(self) -> dict[str, object]:
        """All of it, as JSON can hold it."""
        return {
            "seconds": self.seconds,
            "latency": self.latency,
            "programs": self.programs,
            "waiting": self.waiting,
            "disturbed": self.disturbed or bool(self.disturbance),
            "doubts": list(self.doubts),
            "disturbance": self.disturbance,
            "recorded": dict(zip(("kernels", "seconds", "record_seconds"), self.recorded)),
            "peak_gflops": self.fp32,
            "bandwidth": {name: rate for name, _, rate in self.levels},
            "kernels": [
                {
                    "kernel": kernel.report.description,
                    "nodes": kernel.report.origins,
                    "start": kernel.start,
                    "seconds": kernel.seconds,
                    "busy": list(kernel.busy),
                    "share": self.share(kernel),
                    "gflops": kernel.gflops,
                    "bytes": kernel.report.nbytes,
                    "of_limit": kernel.of_limit,
                    "record_seconds": kernel.report.seconds,
                    "against_record": kernel.against_record,
                    "template": kernel.template,
                    "tier": kernel.report.tier.value,
                }
                for kernel in self.kernels
            ],
            "hosts": [{"node": host.label, "start": host.start, "seconds": host.seconds} for host in self.hosts],
        }

    def __repr__(self) -> str:
        from autotune.report.text import counted, duration

        return f"<Profile of {counted(len(self.kernels), 'kernel')}: {duration(self.latency)} a run>"

    def _repr_html_(self) -> str:
        from autotune.report.notebook import html_table
        from autotune.report.text import duration, percent

        def row(step: KernelProfile | HostProfile) -> tuple[str, ...]:
            taken = duration(step.seconds), percent(self.share(step))
            if isinstance(step, HostProfile):
                return *taken, "-", step.label, "on the host"
            report = step.report
            return *taken, percent(self.limit_share(step)), kernel_name(report.origins), report.description

        steps: list[KernelProfile | HostProfile] = [*self.kernels, *self.hosts]
        rows = [row(step) for step in sorted(steps, key=lambda step: -step.seconds)]
        title = f"{duration(self.latency)} a run, {duration(self.seconds)} of it in kernels and host functions"
        notes = [f"the limits are in doubt: {'; '.join(self.doubts)}"] if self.doubts else []
        notes += [f"disturbed: {self.disturbance}"] if self.disturbance else []
        return html_table(title, ("time", "share", "of limit", "node", "operator"), rows, notes)

    def trace(self) -> dict[str, object]:
        """One pass in Chrome's trace format (chrome://tracing, Perfetto), in microseconds: kernels by ONNX nodes, on a
        track for each thread, as long as that thread has something to do."""
        tracks = max((len(k.busy) for k in self.kernels), default=1)
        events: list[dict[str, object]] = [
            named_track(track, f"helper {track}" if track else "caller") for track in range(tracks)
        ]
        events += [
            {"name": kernel_name(k.report.origins) or k.report.description, "cat": k.template, "ph": "X",
             "pid": os.getpid(), "tid": track, "ts": k.start * 1e6, "dur": busy * 1e6,
             "args": {"operator": k.report.description, "nodes": k.report.origins, "us": k.seconds * 1e6,
                      "gflops": k.gflops, "bytes": k.report.nbytes,
                      "of_limit": k.of_limit, "record_us": k.report.seconds and k.report.seconds * 1e6,
                      "schedule": k.report.config, "tier": k.report.tier.value}}
            for k in self.kernels for track, busy in enumerate(k.busy or (k.seconds,))
        ]  # fmt: skip
        events += [
            {"name": h.label, "cat": "host", "ph": "X", "pid": os.getpid(), "tid": 0, "ts": h.start * 1e6,
             "dur": h.seconds * 1e6}
            for h in self.hosts
        ]  # fmt: skip
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def profile(
    model: CompiledModel | StagedModel,
    feeds: Mapping[str, Array],
    peaks: Peaks,
    passes: int = 30,
    watch: Watch | None = None,
) -> Profile:
    """Run the model with a clock reading after each kernel.

    Args:
        model: one that falls into several programs is profiled for what these feeds decide.
        feeds: one array per input.
        peaks: of the model's target, from `measure_peaks`.
        passes: how many; medians are reported.
        watch: looks at what else runs meanwhile.

    Raises:
        InputError, ModelError: a feed does not fit.
    """
    steps: list[Step] = []
    if watch is not None:
        watch.look()
    if isinstance(model, StagedModel):
        model.run(feeds)  # makes the programs
        model.run(feeds, steps.append)
    else:
        steps.append(ProgramStep(model, feeds))
    kernels: list[KernelProfile] = []
    hosts: list[HostProfile] = []
    levels: tuple[tuple[str, int, float], ...] = ()
    now = 0.0
    for step in steps:
        if isinstance(step, ProgramStep):
            target = Target.from_json(step.program.program.target)
            speed = _speed(target, peaks)
            levels = _levels(target, speed)
            found = _program(step.program, step.feeds, passes, now, target, speed)
            kernels += found
            now += sum(kernel.seconds for kernel in found)
        else:
            seconds = latency([_timed(step.run) for _ in range(passes)])
            hosts.append(HostProfile(step.label, now, seconds))
            now += seconds
    whole = latency([_timed(lambda: model.run(feeds)) for _ in range(passes)])
    programs = sum(isinstance(step, ProgramStep) for step in steps)
    disturbance = watch.look().describe() if watch is not None else ""
    return Profile(
        tuple(kernels), tuple(hosts), programs, whole, peaks.fp32.all_cores, levels, peaks.doubts, disturbance
    )


def _program(
    model: CompiledModel,
    feeds: Mapping[str, Array],
    passes: int,
    begin: float,
    target: Target,
    speed: Speed,
) -> list[KernelProfile]:
    executor = model.executor
    executor.run(feeds)  # checks the feeds, and warms up
    context = executor.context()
    try:
        context.read_from([np.ascontiguousarray(feeds[spec.name]) for spec in model.program.inputs])
        found = [context.pool.trace_plan(context.plan) for _ in range(passes)]
    finally:
        context.own_buffers()
        executor.release(context)
    seconds = [latency(column) for column in np.array([times.seconds for times in found]).T]
    busy = np.median([times.busy for times in found], axis=0)
    starts = np.cumsum([begin, *seconds])
    return [
        KernelProfile(report, float(start), one, _least(report, target, speed), tuple(np.minimum(parts, one).tolist()))
        for report, start, one, parts in zip(model.kernels, starts, seconds, busy)
    ]


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _speed(target: Target, peaks: Peaks) -> Speed:
    """As measured."""
    levels = (rate.all_cores * 1e9 for rate in (peaks.l1, peaks.l2, peaks.l3, peaks.dram))
    return Speed(0.0, *levels).at_peak(target, peaks.fp32.all_cores * 1e9)


def _levels(target: Target, speed: Speed) -> tuple[tuple[str, int, float], ...]:
    return (
        ("L2", target.l2_bytes * target.num_threads, speed.l2 * 1e-9),
        ("L3", target.l3_bytes, speed.l3 * 1e-9),
        ("memory", 1 << 62, speed.dram * 1e-9),
    )


def _least(report: KernelReport, target: Target, speed: Speed) -> float:
    template = Config.from_json(report.config).template
    strict = template is None or lookup(template).strict
    return limit(report.workload, target, speed, strict_fp=strict).seconds
