"""Coverage: how much of a model runs on schedules that were measured on this very target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from autotune.compiler.compile import KernelReport
from autotune.records import Tier
from autotune.report.text import counted
from autotune.search_spaces import Config
from autotune.search_spaces.operators.plain import PLAIN

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Part:
    """The kernels whose schedules are of one tier.

    Attributes:
        tier: exact; compatible or foreign (a record exists and is not applied: the default runs); default (no record).
        kernels: how many calls.
        flops: of these calls.
        share: of the model's flops, 0 to 1.
        seconds: sum of the recorded times, for exact ones.
    """

    tier: str
    kernels: int
    flops: int
    share: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Coverage:
    """All tiers that occur, the best first, and why kernels have no exact record, most flops first.

    `plain`: why kernels that nobody measured are plain loops, and how many: nothing better could be built for them.
    """

    parts: tuple[Part, ...]
    reasons: tuple[tuple[str, int], ...]
    plain: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(kernels: Sequence[KernelReport]) -> Coverage:
        total = sum(kernel.flops for kernel in kernels) or 1
        parts = []
        for tier in (Tier.EXACT, Tier.COMPATIBLE, Tier.FOREIGN, Tier.MISS):
            members = [kernel for kernel in kernels if kernel.tier is tier]
            if members:
                flops = sum(kernel.flops for kernel in members)
                times = [kernel.seconds for kernel in members if kernel.seconds is not None]
                name = DEFAULT if tier is Tier.MISS else tier.value
                parts.append(Part(name, len(members), flops, flops / total, sum(times) if times else None))
        untuned = [kernel for kernel in kernels if kernel.tier is not Tier.EXACT]
        plain = [kernel for kernel in untuned if Config.from_json(kernel.config).template == PLAIN]
        return Coverage(tuple(parts), _by_reason(untuned), _by_reason(plain))

    @property
    def exact(self) -> float:
        """Share of the flops that run on exact records, 0 to 1."""
        return sum(part.share for part in self.parts if part.tier == Tier.EXACT.value)

    @property
    def complete(self) -> bool:
        """Whether every kernel has an exact record."""
        return not self.reasons

    def line(self) -> str:
        """One line: "exact 93.1 % of flops in 20 kernels, default 6.9 % in 4"."""
        shown = [f"{part.tier} {100 * part.share:.1f} % in {counted(part.kernels, 'kernel')}" for part in self.parts]
        return f"schedules by share of flops: {', '.join(shown) or 'no kernels'}"

    def to_dict(self) -> dict[str, object]:
        """All of it, as JSON can hold it."""
        return {
            "exact": self.exact,
            "parts": [asdict(part) for part in self.parts],
            "reasons": [{"reason": reason, "kernels": count} for reason, count in self.reasons],
            "plain": [{"reason": reason, "kernels": count} for reason, count in self.plain],
        }

    def _repr_html_(self) -> str:
        from autotune.report.notebook import html_table
        from autotune.report.text import duration, percent

        rows = [(part.tier, percent(part.share), str(part.kernels), duration(part.seconds)) for part in self.parts]
        notes = [f"{counted(count, 'kernel')}: {reason}" for reason, count in self.reasons]
        headings = ("schedules", "share of FLOP", "kernels", "as measured")
        return html_table("coverage", headings, rows, [*notes, *self.plain_lines()])

    def plain_lines(self) -> list[str]:
        """One line per reason: "1 kernel uses plain loops: ..."."""
        return [
            f"{count} {'kernel uses' if count == 1 else 'kernels use'} plain loops: {reason}"
            for reason, count in self.plain
        ]


def _by_reason(kernels: Sequence[KernelReport]) -> tuple[tuple[str, int], ...]:
    """Reasons and how many kernels have each, most flops first."""
    weights: dict[str, tuple[int, int]] = {}
    for kernel in kernels:
        flops, count = weights.get(kernel.reason, (0, 0))
        weights[kernel.reason] = (flops + kernel.flops, count + 1)
    return tuple((reason, weights[reason][1]) for reason in sorted(weights, key=lambda r: weights[r], reverse=True))
