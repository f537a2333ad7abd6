"""NumPy evaluation of a ComputeDef: the reference that every kernel is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from autotune.errors import WorkloadError
from autotune.tensor.compute_def import ComputeDef
from autotune.tensor.contraction import contract, factors
from autotune.tensor.digits import split_digits
from autotune.tensor.dtype import DType
from autotune.tensor.externs import evaluate_extern
from autotune.tensor.interpret import Array, Box, Interpreter
from autotune.tensor.reducer import Reducer, is_builtin
from autotune.tensor.stage import Axis, Stage

BLOCK = 1 << 22  # points whose values are held at once
_FOLDS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "largest": np.fmax}


def evaluate(
    compute_def: ComputeDef, arrays: Mapping[str, Array], dtype: DType | None = None, *, all_tensors: bool = False
) -> dict[str, Array]:
    """The outputs of a definition.

    Integer division by zero gives 0, integers wrap, max and min propagate NaN.

    Args:
        compute_def: what to compute.
        arrays: contents of each input by name.
        dtype: compute and store every floating-point tensor in this dtype; f64 gives the reference. None keeps
            each tensor's own, with f16 and bf16 computed in f32 and rounded when stored.
        all_tensors: return the inputs and the intermediate tensors too.

    Raises:
        WorkloadError: for a missing input, one of the wrong shape, or a read outside of a tensor.
    """
    held = _inputs(compute_def, arrays)
    interpreter = Interpreter(held, dtype)
    with np.errstate(all="ignore"):
        for stage in compute_def.stages:
            if stage.scan_axis is not None:
                if not any(t.name in held for t in stage.outputs):
                    _in_turns(interpreter, held, [s for s in compute_def.stages if _takes_turns(s, stage)])
                continue
            if stage.extern is not None:
                for t, found in zip(stage.outputs, evaluate_extern(stage, held), strict=True):
                    held[t.name] = found.astype(interpreter.storage(t.dtype)).reshape(t.shape)
                continue
            small = split_digits(stage)
            for t, found in zip(stage.outputs, _block(interpreter, small, Box.of(small.axes)), strict=True):
                held[t.name] = found.astype(interpreter.storage(t.dtype)).reshape(t.shape)
    return held if all_tensors else {name: held[name] for name in compute_def.outputs}


def evaluate_parts(
    compute_def: ComputeDef, arrays: Mapping[str, Array], dtype: DType | None, dimension: int, extent: int
) -> Iterator[Array]:
    """The only output of a definition, `extent` indices of one dimension at a time; arguments as for `evaluate`.

    A definition of one stage is computed part by part, in little memory.
    """
    (stage, *others), (name,) = compute_def.stages, compute_def.outputs
    size = compute_def.tensor(name).shape[dimension]
    if others or stage.scan_axis is not None or stage.extern is not None or split_digits(stage) is not stage:
        whole = evaluate(compute_def, arrays, dtype)[name]
        for start in range(0, size, extent):
            yield whole[(slice(None),) * dimension + (slice(start, start + extent),)]
        return
    interpreter = Interpreter(_inputs(compute_def, arrays), dtype)
    for start in range(0, size, extent):
        with np.errstate(all="ignore"):
            part = Box.of(stage.axes).part(dimension, start, min(extent, size - start))
            (found,) = _block(interpreter, stage, part)
        yield found.astype(interpreter.storage(stage.outputs[0].dtype), copy=False)


def _inputs(compute_def: ComputeDef, arrays: Mapping[str, Array]) -> dict[str, Array]:
    for t in compute_def.inputs:
        if t.name not in arrays:
            raise WorkloadError(f"evaluate needs an array for the input {t.name}, got {sorted(arrays)}")
        if arrays[t.name].shape != t.shape:
            raise WorkloadError(f"input {t.name} has shape {t.shape}, got an array of shape {arrays[t.name].shape}")
    return {t.name: np.asarray(arrays[t.name]) for t in compute_def.inputs}


def _block(interpreter: Interpreter, stage: Stage, box: Box) -> list[Array]:
    """The values of every output at the points of `box`."""
    if box.points == 0:
        return [np.zeros(box.extents, interpreter.number(t.dtype)) for t in stage.outputs]
    if stage.reducer is None:
        return [np.broadcast_to(interpreter.value(e, box), box.extents) for e in stage.body]
    pair = factors(stage)
    if pair is not None and all(a.extent for a in stage.reduce_axes):
        return [contract(interpreter, stage, pair, box, Box.of(stage.reduce_axes))]
    if box.points > BLOCK:
        d = int(np.argmax(box.extents))
        half = box.extents[d] // 2
        parts = [box.part(d, 0, half), box.part(d, half, box.extents[d] - half)]
        found = [_block(interpreter, stage, p) for p in parts]
        return [np.concatenate(halves, axis=d) for halves in zip(*found, strict=True)]
    return _fold(interpreter, stage, stage.reducer, box)


def _fold(interpreter: Interpreter, stage: Stage, reducer: Reducer, box: Box) -> list[Array]:
    """The reduction, in order, some points of the reduce axes at a time."""
    result = [np.full(box.extents, e.value, interpreter.number(e.dtype)) for e in reducer.identity]
    ufunc = _FOLDS[reducer.name] if is_builtin(reducer) else None
    rank = len(box.names)
    for over in _blocks(stage.reduce_axes, max(1, BLOCK // box.points)):
        whole = box + over
        values = [np.broadcast_to(interpreter.value(e, whole), whole.extents) for e in stage.body]
        if ufunc is not None:
            part = ufunc.reduce(values[0], axis=tuple(range(rank, values[0].ndim)), dtype=result[0].dtype)
            result = [np.asarray(ufunc(result[0], part))]
            continue
        flat = [np.moveaxis(v.reshape(*box.extents, over.points), -1, 0) for v in values]
        while len(flat[0]) > 1:  # neighbours in pairs: reducers are associative
            even = len(flat[0]) // 2 * 2
            paired = _combine(interpreter, reducer, [v[:even:2] for v in flat], [v[1:even:2] for v in flat])
            flat = [np.concatenate([p, v[even:]]) for p, v in zip(paired, flat, strict=True)]
        result = _combine(interpreter, reducer, result, [v[0] for v in flat])
    return result


def _combine(interpreter: Interpreter, reducer: Reducer, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
    named = {f"lhs{n}": v for n, v in enumerate(left)} | {f"rhs{n}": v for n, v in enumerate(right)}
    bound, nowhere = interpreter.bind(named), Box((), (), ())
    return [np.broadcast_to(bound.value(e, nowhere), left[0].shape) for e in reducer.combine]


def _blocks(axes: Sequence[Axis], budget: int) -> Iterator[Box]:
    """Boxes that cover `axes` in order, each of at most `budget` points."""
    steps: list[int] = []
    for axis in reversed(axes):
        step = max(1, min(axis.extent, budget))
        budget = budget // step if step == axis.extent else 1
        steps.insert(0, step)

    def cover(done: Box, rest: int) -> Iterator[Box]:
        if rest == len(axes):
            yield done
            return
        axis = axes[rest]
        for start in range(0, axis.extent, steps[rest]):
            piece = Box((axis.name,), (start,), (min(steps[rest], axis.extent - start),))
            yield from cover(done + piece, rest + 1)

    return cover(Box((), (), ()), 0)


def _takes_turns(s: Stage, other: Stage) -> bool:
    return s is other or (s.recurrence is not None and s.recurrence == other.recurrence)


def _in_turns(interpreter: Interpreter, held: dict[str, Array], stages: Sequence[Stage]) -> None:
    """One point of the scan axis after the other; the stages' own outputs are filled as it goes."""
    for stage in stages:
        for t in stage.outputs:
            held[t.name] = np.zeros(t.shape, interpreter.storage(t.dtype))
    for step in range(stages[0].axis(str(stages[0].scan_axis)).extent):
        for stage in stages:
            d = [a.name for a in stage.axes].index(str(stage.scan_axis))
            here = (slice(None),) * d + (slice(step, step + 1),)
            point = Box.of(stage.axes).part(d, step, 1)
            if point.points:
                for t, found in zip(stage.outputs, _block(interpreter, stage, point), strict=True):
                    held[t.name][here] = found
