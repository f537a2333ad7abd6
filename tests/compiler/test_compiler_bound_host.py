"""Host operators on a way of their own give what their NumPy definitions give, run after run."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper

from autotune.compiler.bound_host import FEW, bound
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.host import run_host
from autotune.graph.host.node import OWN
from tests.compiler.test_compiler_staged import check, data, model_of

Array = npt.NDArray[Any]


def node(op: str, inputs: int, outputs: int = 1, **attributes: Any) -> NodeAttributes:
    names, results = [f"x{n}" for n in range(inputs)], [f"y{n}" for n in range(outputs)]
    proto = helper.make_node(op, names, results, domain=OWN if op == "MaskedSelect" else "", **attributes)
    return NodeAttributes(proto, 17, None)


def on_way(asked: NodeAttributes, runs: list[list[Array]], fixed: tuple[str, ...] = ()) -> int:
    """Compares the runs, which are of one form, with the definition; how many of them it was left to."""
    names = list(asked.proto.input)
    found = bound(asked, names, dict(zip(names, runs[0])), fixed)
    assert found is not None
    left = 0
    for arrays in runs:
        results, wanted = found[0](dict(zip(names, arrays))), run_host(asked, arrays)
        if results is None:
            left += 1
            assert not found[1]
            continue
        for one, other in zip(results, wanted):
            assert isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
            assert one.dtype == other.dtype and one.flags.c_contiguous
            np.testing.assert_array_equal(one, other)
    return left


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "f2", "i4", "f4", "u8", "i8", "f8"])
@pytest.mark.parametrize("shape", [(1,), (70,), (3, 65), (2, 3, 4), (5, 1), (2, 1, 3, 7)])
def test_nonzero(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(0)
    runs: list[Array] = [(rng.integers(0, 200, shape) * (rng.random(shape) < share)).astype(dtype)
                         for share in (0.5, 0.0, 1.0, 0.2, 0.5)]  # fmt: skip
    if dtype.startswith("f"):
        runs[0].flat[0], runs[2].flat[0], runs[3].flat[-1] = -0.0, np.nan, -np.inf
    if dtype == "i8":
        runs[0].flat[0] = -(2**63)
    runs.append(np.asfortranarray(runs[4]))
    assert on_way(node("NonZero", 1), [[run] for run in runs]) == 0
    assert on_way(node("NonZero", 1), [[runs[0]]] * 2, ("x0",)) == 0


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("fixed", [("x1",), ("x0", "x1")])
def test_masked_select(rank: int, fixed: tuple[str, ...]) -> None:
    rng = np.random.default_rng(0)
    x, mask = rng.random((6, 7), np.float32), rng.random((6, 7)[:rank]) < 0.5
    runs = [[x if "x0" in fixed else rng.random((6, 7), np.float32), mask] for _ in range(4)]
    runs.append([runs[-1][0] if "x0" in fixed else np.asfortranarray(x), mask])
    asked = node("MaskedSelect", 2)
    assert on_way(asked, runs, fixed) == 0
    found = bound(asked, ["x0", "x1"], dict(zip(("x0", "x1"), runs[0])), fixed)
    assert found is not None and found.fresh and not found.places
    mask[:] = ~mask  # as another run of what computes it leaves it
    assert on_way(asked, runs[:1], fixed) == 0


@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("dtype", ["f4", "i8"])
def test_unique(dtype: str, outputs: int) -> None:
    rng = np.random.default_rng(0)
    runs = [rng.integers(-9, 9, (6, 7)).astype(dtype) for _ in range(4)]
    assert on_way(node("Unique", 1, outputs), [[run] for run in runs]) == 0
    assert on_way(node("Unique", 1, outputs), [[runs[0]]] * 2, ("x0",)) == 0
    assert on_way(node("Unique", 1, outputs), [[run.T[:, ::2]] for run in runs]) == len(runs)


def test_unique_of_integers_far_apart_is_left_to_the_definition() -> None:
    assert on_way(node("Unique", 1), [[np.asarray([1, 2])], [np.asarray([0, 2**40])], [np.asarray([5, 5])]]) == 1


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("limits", [(), (20,), (3, 0.5), (20, 0.5, 0.3)])
def test_boxes(limits: tuple[float, ...], centred: int) -> None:
    rng = np.random.default_rng(0)
    rest = [np.asarray([number], np.float32 if n else np.int64) for n, number in enumerate(limits)]
    runs = [[rng.random((2, 30, 4), np.float32), rng.random((2, 3, 30), np.float32), *rest] for _ in range(4)]
    asked, fixed = node("NonMaxSuppression", len(runs[0]), center_point_box=centred), ("x2", "x3", "x4")
    if not limits:
        assert bound(asked, ["x0", "x1"], {"x0": runs[0][0], "x1": runs[0][1]}, fixed) is None
    else:
        assert on_way(asked, runs, fixed) == 0


def test_what_has_no_way() -> None:
    x, large = np.zeros((3, 4), np.float32), np.zeros(FEW + 1, np.float32)
    limits = {"x2": np.asarray([3]), "x3": np.asarray([2.0], np.float32)}
    boxes = {"x0": np.zeros((1, 5, 4), np.float32), "x1": np.zeros((1, 1, 5), np.float32)}
    suppress = node("NonMaxSuppression", 4)
    for asked, known, fixed in (
        (node("NonZero", 1), {}, ()), (node("NonZero", 1), {"x0": large}, ()),
        (node("NonZero", 1), {"x0": x[:0]}, ()), (node("NonZero", 1), {"x0": np.asarray(1.0)}, ()),
        (node("NonZero", 1), {"x0": np.asarray(["a"], object)}, ()), (node("NonZero", 1), {"x0": [x]}, ()),
        (node("Unique", 1, axis=0), {"x0": x}, ()), (node("Unique", 1, sorted=0), {"x0": x}, ()),
        (node("Compress", 2), {"x0": x, "x1": x > 0}, ()),
        (node("MaskedSelect", 2), {"x0": x, "x1": x > 0}, ("x0",)),
        (node("MaskedSelect", 2), {"x0": x, "x1": x}, ("x1",)),
        (node("MaskedSelect", 2), {"x0": x, "x1": x[:2] > 0}, ("x1",)),
        (node("MaskedSelect", 2), {"x0": x.astype(object), "x1": x > 0}, ("x1",)),
        (suppress, {**boxes, **limits}, ("x2",)), (suppress, {**boxes, **limits}, ("x2", "x3")),
        (suppress, {**boxes, **limits, "x0": x}, ("x2", "x3")),
    ):  # fmt: skip
        assert bound(asked, list(asked.proto.input), known, fixed) is None


def test_what_is_found_stays_when_the_next_run_finds_other() -> None:
    model = model_of(
        [helper.make_node("NonZero", ["x"], ["places"]), helper.make_node("Unique", ["x"], ["y", "", "where"])],
        {"x": (TensorProto.FLOAT, [8])}, ["places", "y", "where"],
    )  # fmt: skip
    runs = [{"x": np.round(data(8, seed=seed)) * (data(8, seed=seed) > 0)} for seed in (0, 1, 0, 2)]
    runs.append({"x": np.repeat(runs[0]["x"], 2)[::2]})
    found = check(model, runs)
    kept = [found.run(run) for run in runs]
    for run, (places, y, where) in zip(runs, kept):
        np.testing.assert_array_equal(places, np.nonzero(run["x"]))
        np.testing.assert_array_equal(y[where], run["x"])
