"""Where a tuning run builds and measures: this machine, or another one like it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from autotune.engines.race import Racer, RacerLike
from autotune.errors import ClusterError
from autotune.measure.peaks import Peak
from autotune.measure.pipeline import Pipeline, RunnerLike, pipeline_of
from autotune.measure.runner import Runner
from autotune.target import Target


class PeakRunner(RunnerLike, Protocol):
    """A runner that knows how fast its machine can be."""

    def peak(self, patience: float) -> Peak:
        """fp32 FMA throughput of the target's threads; a quiet moment is waited for, so many seconds at most."""


class Workplace(Protocol):
    """Builders, runners and racers for one target; each lives as long as its context."""

    @property
    def target(self) -> Target:
        """What code is made for."""

    def runner(self) -> AbstractContextManager[PeakRunner]:
        """Whoever times kernels."""

    def pipeline(self, runner: PeakRunner, weight_bytes: int) -> AbstractContextManager[Pipeline]:
        """Builders, and the way from them to the runner; see `RunOptions` for the weights."""

    def racer(self) -> AbstractContextManager[RacerLike]:
        """Whoever times programs."""


class ThisMachine:
    """Worker processes of this machine's own."""

    def __init__(self, target: Target, imports: Sequence[str] = ()) -> None:
        """
        Args:
            imports: modules or Python files with the user's own operators and templates.

        Raises:
            TargetError: this machine cannot run code for `target`.
        """
        target.require_host()
        self.target = target
        self._imports = tuple(imports)

    def runner(self) -> AbstractContextManager[PeakRunner]:
        return Runner(self.target, imports=self._imports)

    def pipeline(self, runner: PeakRunner, weight_bytes: int) -> AbstractContextManager[Pipeline]:
        return pipeline_of(runner, self.target, weight_bytes=weight_bytes, imports=self._imports)

    def racer(self) -> AbstractContextManager[RacerLike]:
        return Racer(self.target)


@contextmanager
def open_workplace(
    target: str | Target | None, cluster: str | None = None, imports: Sequence[str] = ()
) -> Iterator[Workplace]:
    """This machine, or the cluster whose scheduler has that address.

    Raises:
        TargetError: nobody there can run code for `target`.
        ClusterError: there is no scheduler, no worker, or no Dask.
    """
    if cluster is None:
        yield ThisMachine(Target.parse(target), imports)
        return
    require_dask()
    from autotune.fleet.place import open_fleet

    with open_fleet(cluster, target, imports) as place:
        yield place


def require_dask() -> None:
    """
    Raises:
        ClusterError: it is not installed.
    """
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise ClusterError(
            f"a cluster needs Dask ({error}): pip install 'autotune-compiler[distributed]' on every machine"
        ) from error
