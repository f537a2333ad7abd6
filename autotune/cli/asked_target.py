"""For which CPU and how many threads, as all commands that make code are asked, and how it is typed again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.cli.options import TargetOption, ThreadsOption

if TYPE_CHECKING:
    from autotune.target import Target

_CORES = "-num-cores="


@dataclass(frozen=True, slots=True)
class AskedTarget:
    """
    Attributes:
        target: as typed, with as many threads as `threads` says.
    """

    target: TargetOption = "native"
    threads: ThreadsOption = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", with_threads(self.target, self.threads))

    def parsed_target(self) -> Target:
        """Raises TargetError where it is none."""
        from autotune.target import Target

        return Target.parse(self.target)


def with_threads(target: str, threads: int | None) -> str:
    """The text of a target, with another number of threads where one is given."""
    if threads is None:
        return target
    return " ".join([*(word for word in target.split() if not word.startswith(_CORES)), f"{_CORES}{threads}"])


def target_words(target: str) -> list[str]:
    """The options that ask for the target of this text; nothing for what is usual."""
    words = target.split()
    threads = [word.removeprefix(_CORES) for word in words if word.startswith(_CORES)]
    cpu = " ".join(word for word in words if not word.startswith(_CORES))
    if len(threads) > 1:  # no target at all
        return ["--target", target]
    return [*([] if cpu == "native" else ["--target", cpu]), *(["--threads", *threads] if threads else [])]
