"""Random workloads of which some do not fit together: drawn until one does."""

from __future__ import annotations

import random
from collections.abc import Callable

from autotune.errors import WorkloadError
from autotune.ops import parse_workload
from autotune.ops.workload import Workload


def first_that_fits(line: Callable[[random.Random], str], rng: random.Random) -> Workload:
    """The first of the lines drawn whose window fits into its image."""
    while True:
        try:
            return parse_workload(line(rng))
        except WorkloadError:
            continue
