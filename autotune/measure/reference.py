"""The right answer of a workload, and how far a kernel may be from it (docs/adr: reference and tolerance).

The reference is the plain definition evaluated in float64 on seeded, varied inputs. The tolerance is
absolute, one number per output:

    allowed = 4 · max(sqrt(K) · eps · scale, 4 · e)

K is the length of a stage's sum and eps the unit of the float type that it produces, of the stage where both
together are largest; scale is the largest finite reference value, and e the error that plain NumPy makes in the
workload's own dtypes (for float64: in float32, scaled by the ratio of the units): it carries the conditioning of what
surrounds the sum (exponentials, divisions, clips, differences), of which scale alone knows nothing. Rounding
errors of a sum grow like sqrt(K) (Higham and Mary, 2019), and NumPy's order of summation is up to four
times better than the worst; a lost or doubled term is larger by orders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from autotune.measure.failure import Failure
from autotune.ops.registry import compute_def, known_algorithm
from autotune.ops.workload import TensorType, Workload
from autotune.tensor import ComputeDef, DType
from autotune.tensor.evaluate import evaluate
from autotune.tensor.stage import Stage
from autotune.tensor.storage import INTEGER_BITS, integer_range

Array = npt.NDArray[Any]

_CONFIDENCE = 4.0
_ORDER = 4.0  # how much better NumPy's blocked and pairwise sums are than one accumulator
_NO_ROUNDING = ("min", "max", "largest", "argmin", "argmax", "argmin_last", "argmax_last")


@dataclass(frozen=True, slots=True)
class Reference:
    """Logical arrays of one workload: inputs in its dtypes; outputs in float64 (other than floats: exact).

    `tolerances`: the largest absolute error allowed, per output, for an algorithm of factor 1.
    """

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    tolerances: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Errors:
    """What a correct kernel was found to miss: the worst output's error, absolute and relative to its range."""

    max_abs_err: float
    max_rel_err: float
    tolerance: float


def make_reference(workload: Workload, seed: int = 0) -> Reference:
    """Inputs drawn from `seed`, and what must come out."""
    rng, definition = np.random.default_rng(seed), compute_def(workload)
    arrays = [sample(entry.type, rng) for entry in workload.inputs]
    for number, size in recurrent_weights(definition).items():
        if arrays[number].dtype.kind == "f":
            arrays[number] = (arrays[number] / math.sqrt(size)).astype(arrays[number].dtype)
    for number, extent in _ends(workload).items():
        arrays[number] = np.full_like(arrays[number], extent)
    return reference_of(definition, tuple(arrays))


def _ends(workload: Workload) -> dict[int, int]:
    """Inputs that say where results end whose rest a kernel may leave as it is, at the very end: nothing remains that
    there would be no right answer for, and what is timed is all of the kernel."""
    types = workload.types()
    return {
        node.inputs[1]: types[node.inputs[0]].shape[node.attr("axis")]
        for node in workload.nodes
        if node.op == "until" and ("rest", "any") in node.attrs and node.inputs[1] < len(workload.inputs)
    }


def recurrent_weights(definition: ComputeDef) -> dict[int, int]:
    """Inputs that sums inside recurrences multiply states by, and the lengths of these sums.

    With values of size one such a system is chaos: it blows rounding errors up from step to step.
    """
    position = {t.name: number for number, t in enumerate(definition.inputs)}
    found: dict[int, int] = {}
    for stage in definition.stages:
        if stage.recurrence is None or stage.reducer is None:
            continue
        pending = [r.tensor.name for r in stage.reads()]
        while pending:
            name = pending.pop()
            if name in position:
                found[position[name]] = math.prod(a.extent for a in stage.reduce_axes) or 1
            else:
                source = definition.stage(name)
                pending += [] if source.recurrence else [r.tensor.name for r in source.reads()]
    return found


def reference_of(definition: ComputeDef, inputs: tuple[Array, ...]) -> Reference:
    """What must come out of `definition`, whose inputs are named in0, in1, ..."""
    named = {f"in{number}": array for number, array in enumerate(inputs)}
    with np.errstate(all="ignore"):  # logarithms of negative numbers are NaN on both sides
        exact = evaluate(definition, named, DType.f64)
        double = coarsest_eps(definition) == _EPS[DType.f64]
        rough = evaluate(definition, named, DType.f32 if double else None)
    # Float64 makes no error against itself: what float32 makes, scaled, knows the conditioning just as well.
    share = _EPS[DType.f64] / _EPS[DType.f32] if double else 1.0
    outputs = tuple(exact[name] for name in definition.outputs)
    unit = rounding_unit(definition)
    tolerances = tuple(_tolerance(exact[name], rough[name], unit, share) for name in definition.outputs)
    return Reference(inputs, outputs, tolerances)


def sample(kind: TensorType, rng: np.random.Generator) -> Array:
    """Varied values, none denormal, of one tensor: standard normal floats, the full range of bytes and of u32 (words of
    codes), and small integers in other wider types (sums of their products stay exact)."""
    dtype = DType(kind.dtype)
    if dtype.is_float:
        return np.asarray(rng.standard_normal(kind.shape)).astype(dtype.numpy)
    if dtype is DType.bool:
        return rng.integers(0, 2, kind.shape).astype(np.bool_)
    if dtype in INTEGER_BITS:
        low, high = integer_range(dtype)
        return rng.integers(low, high, kind.shape, np.int8, endpoint=True).astype(dtype.numpy)
    if dtype.is_storage:
        return np.abs(rng.standard_normal(kind.shape)).astype(np.float32).astype(dtype.numpy)
    if dtype.bytes == 1 or dtype is DType.u32:
        bounds = np.iinfo(dtype.numpy)
        return rng.integers(bounds.min, bounds.max, kind.shape, dtype.numpy, endpoint=True)
    return rng.integers(0, 8, kind.shape, dtype.numpy)


def rounding_unit(definition: ComputeDef) -> float:
    """By which share of their size results may be off, for rounding: the worst stage's `sqrt(K) · eps`.

    A sum of 16-bit numbers in f32 that is stored in 16 bits is rounded to these once, not with each addition.
    """
    return max((math.sqrt(_additions(stage)) * _eps(stage) for stage in definition.stages), default=0.0)


def _additions(stage: Stage) -> int:
    """The number of rounded additions (or multiplications) that a reduction or scan makes; 1 where there is none."""
    summed = stage.reducer is not None and stage.reducer.name not in _NO_ROUNDING
    terms = math.prod(axis.extent for axis in stage.reduce_axes) if summed else 1
    return max(terms, 1 if stage.scan_axis is None else stage.axis(stage.scan_axis).extent)


def coarsest_eps(definition: ComputeDef) -> float:
    """Machine epsilon of the least precise float type that a stage produces; 0 without floats."""
    return max(map(_eps, definition.stages), default=0.0)


def _eps(stage: Stage) -> float:
    return max((_EPS[tensor.dtype] for tensor in stage.outputs if tensor.dtype.is_float), default=0.0)


_EPS = {DType.f64: 2.0**-52, DType.f32: 2.0**-23, DType.f16: 2.0**-10, DType.bf16: 2.0**-7}


class Allowance(NamedTuple):
    """What an algorithm may err by: so many times the tolerance, and at least so many times `unit` of the range."""

    factor: float = 1.0
    unit: float = 0.0


AS_THE_DEFINITION = Allowance()


def allowance(workload: Workload, algorithm: str) -> Allowance:
    """Of an algorithm by its name; the tolerance, once, for a definition of a template's own."""
    known = known_algorithm(workload, algorithm)
    if known is None:
        return AS_THE_DEFINITION
    return Allowance(known.error, 0.0 if known.rounds is None else _EPS[known.rounds])


def compare(reference: Reference, outputs: Sequence[Array], allow: Allowance, circumstances: str) -> Errors | Failure:
    """Compare logical outputs with the reference.

    Args:
        allow: what the algorithm may err by.
        circumstances: how the outputs came about, for the message of a failure.
    """
    worst = Errors(0.0, 0.0, 0.0)
    for number, (expected, got, tolerance) in enumerate(
        zip(reference.outputs, outputs, reference.tolerances, strict=True)
    ):
        scale = _scale(expected)
        allowed = allow.factor * max(tolerance, _CONFIDENCE * allow.unit * scale)
        error = _absolute_error(expected, got)
        wrong = ~(error <= allowed)
        if wrong.any():
            place = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
            return Failure(
                "incorrect",
                f"output {number} at {list(place)} is {got[place]!s}, expected {expected[place]!s} within "
                f"{allowed:.3g}; {int(wrong.sum())} of {wrong.size} elements differ ({circumstances})",
            )
        largest = float(error.max(initial=0.0))
        if largest >= worst.max_abs_err:
            worst = Errors(largest, largest / (scale or 1.0), allowed)
    return worst


def _tolerance(exact: Array, rough: Array, unit: float, share: float) -> float:
    if not np.issubdtype(exact.dtype, np.floating):
        return 0.0
    error = _absolute_error(exact, rough)
    found = float(np.where(np.isfinite(error), error, 0.0).max(initial=0.0))
    return _CONFIDENCE * max(unit * _scale(exact), _ORDER * share * found)


def _scale(values: Array) -> float:
    magnitude = np.abs(values.astype(np.float64))
    return float(np.where(np.isfinite(magnitude), magnitude, 0.0).max(initial=0.0))


def _absolute_error(expected: Array, got: Array) -> Array:
    """|got - expected| in float64: 0 where both are NaN or the same infinity, infinite where only one is."""
    wide = got.astype(np.float64)
    target = expected.astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(wide - target)
        if not np.isfinite(error).all():
            if got.dtype != np.float64:  # what overflows in the kernel's type is infinite there
                target = expected.astype(got.dtype).astype(np.float64)
            same = (wide == target) | (np.isnan(wide) & np.isnan(target))
            error = np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))
    return error
