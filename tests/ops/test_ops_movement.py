"""Operators that move elements, against NumPy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import WorkloadError

Call = Callable[..., Any]
shapes = st.lists(st.sampled_from([1, 2, 3, 4, 5, 7]), min_size=1, max_size=4)


def numbered(shape: Any) -> Any:
    return np.arange(math.prod(shape), dtype=np.int32).reshape(shape)


@settings(max_examples=40, deadline=None)
@given(shape=shapes, parts=st.lists(st.integers(0, 4), min_size=1, max_size=4), data=st.data())
def test_concat(shape: list[int], parts: list[int], data: st.DataObject, run: Call, same: Call) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    arrays = [np.moveaxis(numbered((n, *shape[1:])) + 1000 * k, 0, axis) for k, n in enumerate(parts)]
    same(run("concat", [np.ascontiguousarray(a) for a in arrays], axis=axis), np.concatenate(arrays, axis=axis))


@settings(max_examples=30, deadline=None)
@given(shape=shapes, data=st.data())
def test_transpose(shape: list[int], data: st.DataObject, run: Call, same: Call) -> None:
    perm = tuple(data.draw(st.permutations(range(len(shape)))))
    x = numbered(shape)
    same(run("transpose", [x], perm=perm), x.transpose(perm))


@settings(max_examples=80, deadline=None)
@given(shape=st.lists(st.sampled_from([1, 2, 3, 4, 6]), max_size=4), data=st.data())
def test_reshape(shape: list[int], data: st.DataObject, run: Call, same: Call) -> None:
    """Any regrouping of the same prime factors, with ones sprinkled in."""
    factors = [f for n in shape for f in {1: [], 2: [2], 3: [3], 4: [2, 2], 6: [2, 3]}[n]]
    factors = data.draw(st.permutations(factors + [1] * data.draw(st.integers(0, 2))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(factors)), max_size=3)))
    target = tuple(math.prod(factors[a:b]) for a, b in itertools.pairwise([0, *cuts, len(factors)]))
    x = numbered(shape)
    same(run("reshape", [x], shape=target), x.reshape(target))


def test_reshape_keeps_plain_indices() -> None:
    from autotune.ops import TensorType, Workload, WorkloadInput, WorkloadNode, compute_def

    node = WorkloadNode.make("reshape", (0,), shape=(2, 64, 1, 1))
    workload = Workload((WorkloadInput(TensorType("f32", (2, 64))),), (node,), (1,))
    assert str(compute_def(workload).stages[0].body[0]) == "in0[i0, i1]"


def test_reshape_of_nothing(run: Call, same: Call) -> None:
    same(run("reshape", [np.zeros((0, 3))], shape=(3, 0, 2)), np.zeros((3, 0, 2)))


@settings(max_examples=40, deadline=None)
@given(shape=shapes, data=st.data(), value=st.sampled_from([0.0, -1.0, math.inf]))
def test_pad(shape: list[int], data: st.DataObject, value: float, run: Call, same: Call) -> None:
    ends = [data.draw(st.integers(-(n // 2), 3)) for n in shape * 2]
    x = numbered(shape).astype(np.float64)
    sides = list(zip(ends[: len(shape)], ends[len(shape) :], strict=True))
    theirs = np.pad(x, [(max(0, a), max(0, b)) for a, b in sides], constant_values=value)
    crop = tuple(slice(max(0, -a), n - max(0, -b)) for (a, b), n in zip(sides, theirs.shape, strict=True))
    same(run("pad", [x], pads=tuple(ends), value=value), theirs[crop])


@settings(max_examples=40, deadline=None)
@given(shape=shapes, data=st.data())
def test_slice(shape: list[int], data: st.DataObject, run: Call, same: Call) -> None:
    cuts = [
        slice(data.draw(st.integers(0, n - 1)), data.draw(st.one_of(st.none(), st.integers(0, n))),
              data.draw(st.sampled_from([1, 2, 3, -1, -2])))
        for n in shape
    ]  # fmt: skip
    x = numbered(shape)
    theirs = x[tuple(cuts)]
    ranges = [range(n)[c] for n, c in zip(shape, cuts, strict=True)]
    begin, step = tuple(r.start for r in ranges), tuple(r.step for r in ranges)
    same(run("slice", [x], begin=begin, size=tuple(map(len, ranges)), step=step), theirs)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_gather(axis: int, rank: int, run: Call, reference: Call, same: Call) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 5, 6))
    indices = rng.integers(-4, 4, (3, 2)[:rank])
    same(run("gather", [x, np.asarray(indices)], axis=axis), reference("Gather", [x, np.asarray(indices)], axis=axis))


def test_gather_never_reads_outside(run: Call, same: Call) -> None:
    same(run("gather", [np.arange(4.0), np.array([-99, 99])], axis=0), np.array([0.0, 3.0]))


def test_integers_are_padded_with_integers(run: Call, same: Call) -> None:
    same(run("pad", [numbered((2,))], pads=(1, 1), value=7.0), np.array([7, 0, 1, 7], np.int32))
    for value in (0.5, math.inf):
        with pytest.raises(WorkloadError, match="is no i32"):
            run("pad", [numbered((2,))], pads=(1, 1), value=value)


def test_expand_and_layout(run: Call, same: Call) -> None:
    x = numbered((3, 1))
    same(run("expand", [x], shape=(2, 3, 4)), np.broadcast_to(x, (2, 3, 4)))
    same(run("layout", [x]), x)


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "message"),
    [
        ("concat", [(2, 3), (2, 4)], {"axis": 0}, "differ outside of axis 0"),
        ("concat", [(2, 3), (2,)], {"axis": 0}, "differ outside of axis 0"),
        ("transpose", [(2, 3)], {"perm": (0, 0)}, "no permutation of 2 axes"),
        ("reshape", [(2, 3)], {"shape": (4, 2)}, "has 6 elements, .* has 8"),
        ("pad", [(2, 3)], {"pads": (-3, 0, 0, 0), "value": 0.0}, "remove more than there is"),
        ("slice", [(2, 3)], {"begin": (0, 0), "size": (1, 2), "step": (1, 0)}, "leave axis 1 of extent 3"),
        ("slice", [(2, 3)], {"begin": (0, 2), "size": (1, 2), "step": (1, 1)}, "leave axis 1 of extent 3"),
        ("expand", [(2, 3)], {"shape": (2, 4)}, "do not broadcast"),
        ("gather", [(2, 3), (2,)], {"axis": 0}, "indices must be i32 or i64"),
    ],
)
def test_impossible_moves_are_refused(op: str, shapes: Any, attrs: Any, message: str, run: Call) -> None:
    with pytest.raises(WorkloadError, match=message):
        run(op, [np.ones(s) for s in shapes], **attrs)
