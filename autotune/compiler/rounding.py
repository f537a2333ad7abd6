"""How exact a program should be: the rounding errors of its kernels' sums, before anything is run.

Roundings are taken for independent. A sum of n terms of either sign then errs like the roundings of its partial sums
(docs/adr/0032), and errors of kernels add up in quadrature, each as if nothing behind it averaged or amplified.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from autotune.ops import winograd
from autotune.ops.conv import Conv
from autotune.ops.registry import compute_def, known_algorithm
from autotune.ops.workload import Workload
from autotune.tensor.rounding import sum_error, terms_of_a_part


def expected(workload: Workload, algorithm: str = "direct") -> float:
    """Root mean square error of a kernel's result by that of the result itself; 0 where all is exact."""
    definition = compute_def(workload)
    if not any(t.dtype.is_float for stage in definition.stages for t in stage.outputs):
        return 0.0
    terms, amplified, part = _longest_sum(workload), 1.0, None
    anchor = workload.anchor
    if anchor is not None and algorithm in winograd.TILES:
        types = workload.types()
        x, weight = (types[i].shape for i in anchor.inputs[:2])
        size = Conv.of(anchor.op, x, weight, dict(anchor.attrs))
        terms, amplified = (
            winograd.terms(size),
            winograd.amplification(winograd.TILES[algorithm], winograd.taps(size)),
        )
        part = terms_of_a_part(amplified)
    elif (known := known_algorithm(workload, algorithm)) is not None:
        amplified = known.error
    return sum_error(terms, amplified, part)


def together(errors: Iterable[float]) -> float:
    """Error of a program, by the range of its outputs, of those of its kernels.

    The largest of many errors is about as many deviations off as the largest value.
    """
    return math.sqrt(sum(error * error for error in errors))


def _longest_sum(workload: Workload) -> int:
    stages = compute_def(workload).stages
    sums = (s for s in stages if s.reducer is not None and s.reducer.name == "sum")
    return max((math.prod(axis.extent for axis in s.reduce_axes) for s in sums), default=1) or 1
