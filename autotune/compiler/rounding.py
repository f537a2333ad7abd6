"""How exact a program should be: the rounding errors of its kernels' sums, before anything is run.

Roundings are taken for independent. A sum of n terms of either sign then errs like the roundings of its partial sums
(docs/adr/0032), and errors of kernels add up in quadrature, each as if nothing behind it averaged or amplified. What is
stored in 16 bits is another matter, which `compiler.precise` tries on inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from autotune.ops import winograd, winograd_matrices
from autotune.ops.conv import Conv
from autotune.ops.registry import compute_def, known_algorithm
from autotune.ops.workload import Workload
from autotune.tensor.rounding import sum_error


def expected(workload: Workload, algorithm: str = "direct") -> float:
    """Root mean square error of a kernel's result by that of the result itself; 0 where all is exact."""
    definition = compute_def(workload)
    if not any(t.dtype.is_float for stage in definition.stages for t in stage.outputs):
        return 0.0
    anchor = workload.anchor
    if anchor is not None and anchor.op in winograd.OPERATORS:
        types = workload.types()
        x, weight = (types[i].shape for i in anchor.inputs[:2])
        tile = winograd.TILES.get(algorithm) or winograd_matrices.ALGORITHMS.get(algorithm, (None,))[0]
        if tile is not None:
            return winograd.error(Conv.of(anchor.op, x, weight, dict(anchor.attrs)), tile)
    known = known_algorithm(workload, algorithm)
    return sum_error(_longest_sum(workload), 1.0 if known is None else known.error)


def together(errors: Iterable[float]) -> float:
    """Error of a program, by the range of its outputs, of those of its kernels.

    The largest of many errors is about as many deviations off as the largest value.
    """
    return math.sqrt(sum(error * error for error in errors))


def _longest_sum(workload: Workload) -> int:
    stages = compute_def(workload).stages
    sums = (s for s in stages if s.reducer is not None and s.reducer.name == "sum")
    return max((math.prod(axis.extent for axis in s.reduce_axes) for s in sums), default=1) or 1
