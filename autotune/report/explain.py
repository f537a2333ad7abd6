"""Explanation: why a kernel is as fast as it is: schedule, loops beside caches, code, and the cost model's view."""

from __future__ import annotations

import difflib
import random
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autotune.codegen.jit import assembly
from autotune.codegen.kernel import KernelObject, KernelSource, compile_source, generate
from autotune.compiler.choose import Choice
from autotune.cost_model.features import FEATURES_VERSION, Features
from autotune.cost_model.prior import on_tiles, prior
from autotune.lower.printer import print_program
from autotune.ops.workload import Workload
from autotune.report.assembly import HotLoop, hot_loop
from autotune.report.footprint import LoopFootprint, footprints
from autotune.schedule import Schedule
from autotune.search_spaces import Interface
from autotune.search_spaces.space.limit import Limit, limit
from autotune.search_spaces.space.registry import lookup
from autotune.target import Target

SAMPLES = 256
"""Configs of the space that a schedule is compared with, in what the cost model makes of it."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the cost model makes of one number of a loop nest.

    Attributes:
        name: of the number; `value`: of this schedule; `usual`: the median over random schedules, if this one is of
            tiles over such.
        factor: by how much faster it expects this schedule to be than one with the usual value, all else equal.
    """

    name: str
    value: float
    usual: float
    factor: float


@dataclass(frozen=True)
class Explanation:
    """One kernel as it would be compiled.

    Attributes:
        workload, target, interface: what was asked for; interface None: the template's own layouts.
        choice: the config and where it came from.
        schedule: its steps.
    """

    workload: Workload
    target: Target
    interface: Interface | None
    choice: Choice
    schedule: Schedule

    @staticmethod
    def of(workload: Workload, target: Target, choice: Choice, interface: Interface | None = None) -> Explanation:
        """Raises ScheduleError when the choice makes no schedule in these layouts."""
        return Explanation(workload, target, interface, choice, choice.schedule(workload, target, interface))

    @cached_property
    def limit(self) -> Limit:
        """The least that any schedule of an algorithm as precise as this one could take."""
        name = self.choice.config.template
        return limit(self.workload, self.target, strict_fp=name is None or lookup(name).strict)

    @cached_property
    def source(self) -> KernelSource:
        """Loops and IR. Raises LoweringError or CodegenError when there is no code for the target."""
        return generate(self.schedule, self.target)

    @cached_property
    def kernel(self) -> KernelObject:
        """Compiled code."""
        return compile_source(self.source, self.target)

    @property
    def nest(self) -> str:
        return print_program(self.source.program)

    @property
    def steps(self) -> list[str]:
        """One line per step."""
        return [f"{name}({', '.join(map(_argument, arguments))})" for name, *arguments in self.schedule.steps]

    @property
    def footprints(self) -> list[LoopFootprint]:
        return footprints(self.source.program)

    @cached_property
    def assembly(self) -> str:
        return assembly(self.source.ir, cpu=self.target.cpu, features=self.target.llvm_features)

    @property
    def hot_loop(self) -> HotLoop | None:
        return hot_loop(self.assembly)

    def opinions(self, count: int = 6) -> list[Opinion]:
        """What the cost model likes and dislikes, the strongest first; nothing for templates that it does not know."""
        name = self.choice.config.template
        space = None if name is None else lookup(name).space(self.workload, self.target)
        if space is None or not space.portable:
            return []
        forest = prior(tuple(space.feature_names), FEATURES_VERSION)
        if forest is None:
            return []
        rng = random.Random(0)
        inner = self.choice.config.without("template")
        rows = np.asarray(space.encode_all([inner, *(space.sample(rng) for _ in range(SAMPLES))]), np.float32)
        here, tiled = rows[0], on_tiles(Features(tuple(space.feature_names), rows))
        like = rows[1:][tiled[1:] == tiled[0]]  # nests of the other kind are known by another model
        usual = np.median(like if len(like) else rows, axis=0)
        varied = np.repeat(here[None], len(here) + 1, axis=0)
        varied[np.arange(len(here)), np.arange(len(here))] = usual
        expected = forest.predict(Features(tuple(space.feature_names), varied))
        factors = np.exp(expected[-1] - expected[:-1])
        order = np.argsort(-np.abs(np.log(factors)))[:count]
        return [
            Opinion(space.feature_names[n], float(here[n]), float(usual[n]), float(factors[n]))
            for n in order if factors[n] != 1.0
        ]  # fmt: skip

    def to_dict(self) -> dict[str, object]:
        """All of it, as JSON can hold it."""
        loop = self.hot_loop
        return {
            "workload": self.workload.key,
            "operator": self.workload.describe(),
            "target": str(self.target),
            "flops": self.workload.flops,
            "limit": {"arithmetic_seconds": self.limit.arithmetic, "memory_seconds": self.limit.memory},
            "config": dict(self.choice.config),
            "tier": self.choice.tier.value,
            "reason": self.choice.reason,
            "seconds": self.choice.seconds,
            "steps": self.steps,
            "nest": self.nest,
            "loops": [
                {"depth": f.depth, "loop": f.var, "turns": f.extent, "mark": f.mark, "touched": dict(f.touched)}
                for f in self.footprints
            ],
            "spills": self.kernel.spills,
            "multiply_adds": self.kernel.fmas,
            "code_bytes": len(self.kernel.object_code),
            "densest_loop": loop and {"instructions": loop.instructions, "vector": loop.vector,
                                      "multiply_adds": loop.arithmetic, "stack": loop.stack},
            "cost_model": [{"number": o.name, "here": o.value, "usual": o.usual, "factor": o.factor}
                           for o in self.opinions()],
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"<Explanation of {self.workload.describe()}: {self.choice.tier.value}, for {self.target}>"

    def _repr_html_(self) -> str:
        from autotune.report.notebook import html_table
        from autotune.report.text import duration, percent

        choice, measured = self.choice, self.choice.seconds
        rows = [
            ("work", f"{self.workload.flops / 1e6:.2f} MFLOP, at least {duration(self.limit.seconds)}"),
            ("schedule", f"{choice.config.template or 'stored steps'}, {choice.tier.value}: {choice.reason}"),
            ("measured", "-" if measured is None
             else f"{duration(measured)}, {percent(self.limit.seconds / measured)} of what the limit allows"),
            ("code", f"{len(self.kernel.object_code)} bytes, {self.kernel.fmas} vector multiply-adds"),
            ("spills", str(self.kernel.spills)),
            *((f"cost model: {one.name}", f"{one.value:.3g}, usual {one.usual:.3g}: {one.factor:.2f}×")
              for one in self.opinions()),
        ]  # fmt: skip
        return html_table(self.workload.describe(), ("what", "is"), rows, [f"for {self.target}"])

    def difference(self, other: Explanation) -> list[str]:
        """How the loops of another schedule differ: a unified diff from the other to this."""
        return _diff(other.nest, self.nest)


def _diff(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "other", "this", lineterm="", n=2)
    return list(lines)


def _argument(value: object) -> str:
    if isinstance(value, tuple) and value and all(isinstance(part, str) for part in value):
        return " ".join(value)
    return str(value)
