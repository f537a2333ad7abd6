"""Equal stages become one; what differs in anything that matters stays apart."""

from __future__ import annotations

import numpy as np

from autotune.tensor import ComputeDef, DType, Output, Tensor, compute, extern, placeholder, reduce_axis, sum_
from autotune.tensor.evaluate import evaluate
from autotune.tensor.merge import merge_equal_stages

X = placeholder((4, 6), "f32", "in0")


def total(name: str, fold: str) -> Tensor:
    k = reduce_axis(6, fold)
    return compute((4,), lambda i: sum_(X[i, k], k), name)


def definition(*tensors: Tensor) -> ComputeDef:
    return ComputeDef.build([X], merge_equal_stages(tensors))


def test_names_do_not_matter() -> None:
    a, b = total("a", "k"), total("b", "other")
    centred = compute((4, 6), lambda i, j: X[i, j] - a[i], "centred")
    scaled = compute((4, 6), lambda p, q: X[p, q] * b[p], "scaled")
    merged = definition(centred, scaled)
    assert [stage.name for stage in merged.stages] == ["a", "centred", "scaled"]
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    got = evaluate(merged, {"in0": x})
    np.testing.assert_array_equal(got["scaled"], x * x.sum(1, keepdims=True))


def test_two_outputs_of_one_function() -> None:
    def top() -> tuple[Tensor, ...]:
        return extern("top_k", [X], (4,), (Output("value", (2,), DType.f32), Output("place", (2,), DType.i64)), k=2)

    merged = definition(top()[1], top()[0])
    assert len(merged.stages) == 1
    assert merged.outputs == ("place", "value")


def test_chains_merge_from_the_front() -> None:
    def chain(name: str) -> Tensor:
        t = X
        for _ in range(3):
            t = compute((4, 6), lambda i, j, t=t: t[i, j] + 1.0, name)
        return t

    left, right = chain("left"), chain("right")
    both = compute((4, 6), lambda i, j: left[i, j] * right[i, j], "both")
    assert len(definition(both).stages) == 4


def test_zeros_of_either_sign_and_other_operands_differ() -> None:
    plus = compute((4, 6), lambda i, j: X[i, j] * 0.0, "plus")
    minus = compute((4, 6), lambda i, j: X[i, j] * -0.0, "minus")
    mirrored = compute((4, 6), lambda i, j: X[i, 5 - j] * 0.0, "mirrored")
    assert len(definition(plus, minus, mirrored).stages) == 3


def test_nothing_equal_nothing_changed() -> None:
    a = total("a", "k")
    doubled = compute((4,), lambda i: a[i] + a[i], "doubled")
    assert merge_equal_stages([doubled])[0] is doubled
