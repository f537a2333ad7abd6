"""Compiled host operators give what their NumPy definitions give."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from autotune.compiler.host import run_on_host
from autotune.errors import AutotuneError
from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.host import run_host
from autotune.graph.host.node import OWN
from autotune.runtime import boxes as native
from tests.graph.graph_models import FEW

Array = npt.NDArray[Any]


def node(inputs: int, **attributes: Any) -> NodeAttributes:
    proto = helper.make_node("NonMaxSuppression", [f"x{n}" for n in range(inputs)], ["y"], **attributes)
    return NodeAttributes(proto, 17, None)


def both(*arrays: Array, **attributes: Any) -> Array:
    """What compiled code finds, which is what NumPy finds."""
    asked = node(len(arrays), **attributes)
    (found,), (expected,) = run_on_host(asked, arrays), run_host(asked, arrays)
    assert isinstance(found, np.ndarray)
    assert isinstance(expected, np.ndarray)
    assert found.dtype == expected.dtype == np.int64
    np.testing.assert_array_equal(found, expected)
    return found


@given(st.data())
@FEW
def test_boxes(data: st.DataObject) -> None:
    """Few distinct coordinates and scores, so that boxes coincide and scores tie."""
    batches, classes = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 3))
    count, limit = data.draw(st.integers(0, 70)), data.draw(st.sampled_from([-1, 0, 1, 2, 15, 16, 17, 40, 2**62]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    boxes = rng.integers(0, data.draw(st.sampled_from([2, 6, 50])), (batches, count, 4)).astype(np.float32)
    scores = rng.integers(-2, data.draw(st.sampled_from([1, 4, 1000])), (batches, classes, count)).astype(np.float32)
    scores[rng.uniform(size=scores.shape) < 0.1] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf, -0.0]))
    overlap = np.asarray([data.draw(st.sampled_from([0, 0.25, 0.3, 0.5, 1]))], np.float32)
    rest = [np.asarray([data.draw(st.sampled_from([-1.0, 0.0, 2.0]))], np.float32)] if data.draw(st.booleans()) else []
    both(boxes, scores, np.asarray([limit]), overlap, *rest, center_point_box=data.draw(st.integers(0, 1)))


def test_many_boxes() -> None:
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 300, (2, 2000, 2)).astype(np.float32)
    boxes = np.concatenate([corners, corners + rng.uniform(1, 40, (2, 2000, 2)).astype(np.float32)], -1)
    scores = rng.uniform(0, 1, (2, 5, 2000)).astype(np.float32)
    found = both(boxes, scores, np.asarray([500]), np.asarray([0.3], np.float32), np.asarray([0.2], np.float32))
    assert len(found) > 1000


def test_boxes_that_are_no_numbers() -> None:
    boxes = np.asarray([[0, 0, 1, 1], [0, np.nan, 1, 1], [0, 0, np.inf, 1], [0, 0, 1, 1]], np.float32)[None]
    scores = np.asarray([4, 3, 2, 1], np.float32).reshape(1, 1, 4)
    found = both(boxes, scores, np.asarray([4]), np.asarray([0.5], np.float32))
    assert found[:, 2].tolist() == [0, 1, 2]


def test_room_for_boxes_is_that_of_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_MANY", 0)
    test_many_boxes()


@given(st.data())
@FEW
def test_nonzero(data: st.DataObject) -> None:
    """Rows of more and of less than the bytes that are looked at together."""
    shape = data.draw(st.lists(st.integers(0, 3), max_size=3)) + data.draw(
        st.sampled_from([[], [1], [63], [64], [200]])
    )
    kind = data.draw(
        st.sampled_from([np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.int64, np.bool_])
    )
    share = data.draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    x = np.where(rng.uniform(size=shape) < share, rng.choice([1, -1, np.nan], shape), 0 * rng.choice([1, -1], shape))
    with np.errstate(invalid="ignore"):
        x = x.astype(kind)
    asked = NodeAttributes(helper.make_node("NonZero", ["x"], ["y"]), 17, None)
    for array in (x, x.T):
        (found,), (expected,) = run_on_host(asked, [array]), run_host(asked, [array])
        assert isinstance(found, np.ndarray)
        assert isinstance(expected, np.ndarray)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, expected)


def results(op: str, *arrays: Array, outputs: int = 1, **attributes: Any) -> list[Array]:
    """What runs of a node give, which is what its definition gives."""
    proto = helper.make_node(op, [f"x{n}" for n in range(len(arrays))], [f"y{n}" for n in range(outputs)], **attributes)
    asked = NodeAttributes(proto, 17, None)
    found, expected = run_on_host(asked, arrays), run_host(asked, arrays)
    assert len(found) >= outputs
    for one, other in zip(found, expected, strict=False):
        assert isinstance(one, np.ndarray)
        assert isinstance(other, np.ndarray)
        assert one.dtype == other.dtype
        assert one.flags.c_contiguous
        same = one.astype(np.float64) if one.dtype.kind == "V" else one  # NumPy knows no NaN of them
        np.testing.assert_array_equal(same, other.astype(same.dtype))
    return [one for one in found if isinstance(one, np.ndarray)]


@given(st.data())
@FEW
def test_unique(data: st.DataObject) -> None:
    """Numbers of one to four bytes that count, and those that have no such keys."""
    kinds = [np.int64, np.int32, np.uint32, np.uint64, np.int8, np.bool_, np.float16, ml_dtypes.bfloat16, np.float32,
             np.float64]  # fmt: skip
    kind = data.draw(st.sampled_from(kinds))
    shape = data.draw(st.sampled_from([[], [0], [1], [20], [257], [7, 3]]))
    wide = data.draw(st.sampled_from([1, 2, 200, 2**12, 2**20, 2**31, 2**40]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = rng.integers(-wide, wide, shape)
    with np.errstate(all="ignore"):
        x = x.astype(kind)
    if x.dtype.kind not in "biu":
        x = np.where(rng.uniform(size=shape) < 0.2, rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0], shape), x / 3)
        x = np.asarray(x).astype(kind)
    for array in (x, x.T):
        results("Unique", array, outputs=data.draw(st.sampled_from([1, 4])), sorted=data.draw(st.integers(0, 1)))


def test_unique_of_the_ends_of_what_integers_can_be() -> None:
    low, high = -(2**63), 2**63 - 1
    for x in ([low, high], [low, low + 2**32 - 1], [high, high - 2**32 + 1, high], [high - 2**32, high]):
        results("Unique", np.asarray(x), outputs=4)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_compress(axis: int | None) -> None:
    x = np.arange(24).reshape(4, 6).T[:, ::-1]
    given: dict[str, Any] = {} if axis is None else {"axis": axis}
    for kept in ([True], [False, True, True], [False] * 4, []):
        results("Compress", x, np.asarray(kept, np.bool_), **given)
    strings = x.astype(str).astype(object)
    asked = NodeAttributes(helper.make_node("Compress", ["x", "c"], ["y"], **given), 17, None)
    (found,) = run_on_host(asked, [strings, np.asarray([False, True])])
    assert isinstance(found, np.ndarray)
    assert np.array_equal(found, x.compress([False, True], axis).astype(str))


def test_impossible_compress_is_refused() -> None:
    for x, kept, attributes in (
        (np.zeros(3), np.asarray([False] * 3 + [True]), {}),
        (np.zeros((3, 3)), np.ones(3, np.bool_), {"axis": 2}),
        (np.zeros(3), np.ones(3), {}),
        (np.zeros(3), np.ones((1, 3), np.bool_), {}),
    ):
        with pytest.raises(AutotuneError, match="Compress"):
            results("Compress", x, kept, **attributes)


@pytest.mark.parametrize("extents", [(4, 6), (4,), (4, 1), (2, 6), (), (1, 1, 1), (5,)])
@pytest.mark.parametrize("kind", ["?", "f4"])
def test_masked_select(extents: tuple[int, ...], kind: str) -> None:
    x = np.arange(24).reshape(6, 4).T[:, ::-1]
    asked = NodeAttributes(helper.make_node("MaskedSelect", ["x", "m"], ["y"], domain=OWN), 17, None)
    for share in (0.5, 0.0, 1.0):
        mask = np.asarray(np.random.default_rng(0).random(extents) < share).astype(kind)
        try:
            wanted = run_host(asked, [x, mask])
        except AutotuneError as error:
            with pytest.raises(type(error), match="mask"):
                run_on_host(asked, [x, mask])
            continue
        np.testing.assert_array_equal(run_on_host(asked, [x, mask])[0], wanted[0])


def test_values_that_are_no_tensors_are_refused() -> None:
    for op in ("Compress", "Unique", "NonZero", "NonMaxSuppression"):
        proto = helper.make_node(op, ["a", "b"], ["y"])
        with pytest.raises(AutotuneError, match="sequence"):
            run_on_host(NodeAttributes(proto, 17, None), [[np.zeros(3)], [np.zeros(3)]])


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(AutotuneError, match="boxes"):
        run_on_host(node(2), [np.zeros((1, 3, 4), np.float32), np.zeros((1, 2, 5), np.float32)])
