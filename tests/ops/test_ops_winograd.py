"""Winograd computes the same convolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import WorkloadError
from autotune.ops import (
    TensorType,
    Workload,
    WorkloadInput,
    WorkloadNode,
    algorithms,
    compute_def,
    winograd,
    winograd_exact,
    winograd_matrices,
    winograd_rows,
    winograd_transforms,
)
from autotune.ops.conv import Conv
from autotune.tensor import DType

Call = Callable[..., Any]
FLOATS = (*winograd.TILES, *(name for name, (_, rounds) in winograd_matrices.ALGORITHMS.items() if rounds is None))
PLAIN: dict[str, Any] = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}


@settings(max_examples=40, deadline=None)
@given(
    algorithm=st.sampled_from(FLOATS), sizes=st.tuples(*[st.integers(1, 3)] * 3),
    image=st.tuples(st.integers(3, 11), st.integers(3, 11)), pad=st.tuples(*[st.integers(0, 3)] * 4),
)  # fmt: skip
def test_winograd_is_direct(
    algorithm: str, sizes: tuple[int, int, int], image: tuple[int, int], pad: tuple[int, ...], run: Call, same: Call
) -> None:
    rng = np.random.default_rng(0)
    n, c, k = sizes
    arrays = [rng.standard_normal((n, c, *image)), rng.standard_normal((k, c, 3, 3))]
    attrs = {**PLAIN, "pad": pad}
    same(run("conv2d", arrays, algorithm=algorithm, **attrs), run("conv2d", arrays, **attrs), 1e-11)


@pytest.mark.parametrize(("name", "most"), [("f2", 0.005), ("f4x2", 0.0085), ("f4", 0.014), ("f6", 0.06)])
def test_tiles_rounded_to_bf16_err_as_their_transforms_amplify(name: str, most: float, run: Call) -> None:
    """Root mean square of the error by that of the result: two roundings, which the last transforms amplify."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((1, 64, 24, 24)).astype("f"), rng.standard_normal((8, 64, 3, 3)).astype("f")]
    right = run("conv2d", [a.astype("d") for a in arrays], **PLAIN)
    found = run("conv2d", arrays, algorithm=f"winograd_{name}_bf16", **PLAIN, rounded=8)
    error = np.sqrt(np.mean((found - right) ** 2) / np.mean(right**2))
    assert most / 3 < error < most


@pytest.mark.parametrize("allowed", [{}, {"rounded": 4}])
def test_tiles_are_rounded_only_where_they_may_be(allowed: dict[str, int], run: Call) -> None:
    arrays = [np.ones((1, 2, 8, 8), "f"), np.ones((2, 2, 3, 3), "f")]
    with pytest.raises(WorkloadError, match="as many points as its tiles have"):
        run("conv2d", arrays, algorithm="winograd_f4_bf16", **PLAIN, **allowed)
    with pytest.raises(WorkloadError, match="rounded=9 is more than the 8 points"):
        run("conv2d", arrays, **PLAIN, rounded=9)


@settings(max_examples=60, deadline=None)
@given(
    algorithm=st.sampled_from(list(winograd_exact.TILES)), sizes=st.tuples(*[st.integers(1, 3)] * 3),
    image=st.tuples(st.integers(3, 11), st.integers(3, 11)), pad=st.tuples(*[st.integers(0, 3)] * 4),
    kinds=st.tuples(*[st.sampled_from(["u8", "i8"])] * 2), extreme=st.booleans(),
)  # fmt: skip
def test_winograd_of_bytes_is_exact(
    algorithm: str, sizes: tuple[int, int, int], image: tuple[int, int], pad: tuple[int, ...],
    kinds: tuple[str, str], extreme: bool, run: Call,
) -> None:  # fmt: skip
    rng = np.random.default_rng(0)
    n, c, k = sizes
    arrays = []
    for kind, shape in zip(kinds, ((n, c, *image), (k, c, 3, 3)), strict=True):
        ends = np.iinfo(DType(kind).numpy)
        drawn = rng.choice([ends.min, ends.max], shape) if extreme else rng.integers(ends.min, ends.max + 1, shape)
        arrays.append(drawn.astype(DType(kind).numpy))
    attrs = {**PLAIN, "pad": pad} | ({} if kinds[0] == "i8" else {"pad_value": 131})
    assert np.array_equal(run("conv2d", arrays, algorithm=algorithm, **attrs), run("conv2d", arrays, **attrs))


@settings(max_examples=60, deadline=None)
@given(
    algorithm=st.sampled_from([*FLOATS, *winograd_exact.TILES]), sizes=st.tuples(*[st.integers(1, 3)] * 3),
    deep=st.tuples(*[st.integers(1, 3)] * 3), side=st.integers(1, 2), data=st.data(),
)  # fmt: skip
def test_volumes_are_direct(
    algorithm: str, sizes: tuple[int, int, int], deep: tuple[int, int, int], side: int, data: st.DataObject, run: Call,
    same: Call,
) -> None:  # fmt: skip
    """Whatever taps, stride and dilation along the depth are; of bytes exactly."""
    exact, (n, c, k), (taps, stride, dilation) = algorithm in winograd_exact.TILES, sizes, deep
    across = 1 if exact else side
    window = 3 if exact else 3 * across
    pad = data.draw(st.tuples(*[st.integers(0, 3)] * 6))
    depth = data.draw(st.integers(max(1, (taps - 1) * dilation + 1 - pad[0] - pad[3]), 7))
    shapes = (n, c, depth, *data.draw(st.tuples(*[st.integers(window, 13)] * 2))), (k, c, taps, window, window)
    rng = np.random.default_rng(0)
    attrs = {"stride": (stride, across, across), "pad": pad, "dilation": (dilation, 1, 1), "groups": 1}
    arrays: list[Any] = [rng.standard_normal(shape) for shape in shapes]
    if exact:
        arrays = [rng.integers(0, 256, shapes[0]).astype(np.uint8), rng.integers(-128, 128, shapes[1]).astype(np.int8)]
        attrs["pad_value"] = 131
    found, wanted = (run("conv3d", arrays, algorithm=name, **attrs) for name in (algorithm, "direct"))
    if exact:
        assert np.array_equal(found, wanted)
    else:
        same(found, wanted, 1e-10)


@pytest.mark.parametrize("algorithm, channels", [("winograd_exact_f4", 114), ("winograd_exact_f4x2", 456)])
def test_sums_of_bytes_that_could_lose_their_sign_are_refused(algorithm: str, channels: int, run: Call) -> None:
    """Just before, all bytes at their ends are right still."""
    tile = winograd_exact.TILES[algorithm]
    arrays = [np.full((1, channels, 4, 4), 255, np.uint8), np.full((1, channels, 3, 3), -128, np.int8)]
    assert np.array_equal(run("conv2d", arrays, algorithm=algorithm, **PLAIN), run("conv2d", arrays, **PLAIN))
    size = Conv.of("conv2d", (1, channels + 1, 4, 4), (1, channels + 1, 3, 3), PLAIN)
    assert not winograd_exact.applies_exactly(size, tile, DType.u8, DType.i8)
    more = [np.zeros((1, channels + 1, 4, 4), np.uint8), np.zeros((1, channels + 1, 3, 3), np.int8)]
    with pytest.raises(WorkloadError, match="so few channels"):
        run("conv2d", more, algorithm=algorithm, **PLAIN)


@settings(max_examples=60, deadline=None)
@given(
    algorithm=st.sampled_from(list(winograd.TILES)), sizes=st.tuples(*[st.integers(1, 3)] * 3),
    stride=st.integers(1, 4), data=st.data(),
)  # fmt: skip
def test_strides_and_larger_windows_are_direct(
    algorithm: str, sizes: tuple[int, int, int], stride: int, data: st.DataObject, run: Call, same: Call
) -> None:
    window = data.draw(st.integers(stride + 1, stride * winograd.most_taps(winograd.TILES[algorithm])))
    h, w = (data.draw(st.integers(window, window + 9 * stride)) for _ in range(2))
    pad = data.draw(st.tuples(*[st.integers(0, window)] * 4))
    rng = np.random.default_rng(0)
    n, c, k = sizes
    arrays = [rng.standard_normal((n, c, h, w)), rng.standard_normal((k, c, window, window))]
    attrs = {**PLAIN, "pad": pad, "stride": (stride, stride)}
    same(run("conv2d", arrays, algorithm=algorithm, **attrs), run("conv2d", arrays, **attrs), 1e-10)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 2), channels=st.integers(1, 3), image=st.tuples(st.integers(8, 12), st.integers(8, 12)),
    window=st.tuples(st.integers(2, 8), st.integers(1, 5)), pad=st.tuples(*[st.integers(0, 3)] * 4),
)  # fmt: skip
def test_rows_are_direct(
    n: int, channels: int, image: tuple[int, int], window: tuple[int, int], pad: tuple[int, ...], run: Call, same: Call
) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((n, channels, *image)), rng.standard_normal((channels, 1, *window))]
    attrs = {**PLAIN, "pad": pad, "groups": channels}
    same(run("conv2d", arrays, algorithm="winograd_rows", **attrs), run("conv2d", arrays, **attrs), 1e-12)


def test_rows_of_a_depthwise_convolution_err_like_the_direct_sum(run: Call) -> None:
    rng = np.random.default_rng(0)
    attrs = {**PLAIN, "pad": (2, 2, 2, 2), "groups": 32}
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((1, 32, 14, 14), (32, 1, 5, 5))]
    exact = run("conv2d", arrays, DType.f64, **attrs)
    rows, direct = (  # of all elements: the largest depends on NumPy's order of sums, which depends on the CPU
        np.sqrt(np.square(run("conv2d", arrays, algorithm=a, **attrs) - exact).mean())
        for a in ("winograd_rows", "direct")
    )
    assert 0 < rows < 3 * direct


@pytest.mark.parametrize(
    ("window", "products", "additions"), [(2, 3, 2), (3, 4, 4), (4, 6, 4), (5, 7, 6), (7, 10, 8), (9, 12, 12)]
)
def test_rows_take_fewer_products(window: int, products: int, additions: int) -> None:
    assert winograd_rows.products(window) == products < 2 * window
    assert winograd_rows.additions(window) == additions


@pytest.mark.parametrize("attrs", [{"groups": 4}, {"groups": 8, "stride": (2, 2)}, {"groups": 8, "dilation": (1, 2)}])
def test_rows_refuse_other_convolutions(attrs: dict[str, Any]) -> None:
    weight = WorkloadInput(TensorType("f32", (8, 8 // attrs["groups"], 3, 3)), True)
    node = WorkloadNode.make("conv2d", (0, 1), **{**PLAIN, **attrs})
    workload = Workload((WorkloadInput(TensorType("f32", (1, 8, 14, 14))), weight), (node,), (2,))
    with pytest.raises(WorkloadError, match="winograd_rows needs a depthwise convolution"):
        compute_def(workload, "winograd_rows")


@pytest.mark.parametrize(("m", "window", "stride"), [(2, 3, 1), (4, 3, 1), (6, 3, 1), (4, 7, 2), (4, 5, 1), (6, 5, 2)])
def test_single_precision_error_is_small(m: int, window: int, stride: int, run: Call) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((1, 64, 14, 14), (64, 64, window, window))]
    attrs = {**PLAIN, "stride": (stride, stride)}
    exact = run("conv2d", arrays, DType.f64, **attrs)
    error = np.abs(run("conv2d", arrays, algorithm=f"winograd_f{m}", **attrs) - exact).max()
    assert 0 < error < 1e-4 * np.abs(exact).max()


@pytest.mark.parametrize(
    ("m", "taps"), [(m, taps) for m, most in winograd.MOST.items() for taps in range(2, most + 2 - m)]
)
def test_transforms_err_about_as_those_of_the_largest_tile_at_most(m: int, taps: int) -> None:
    largest = winograd.Tile(6, 6)
    error = winograd.amplification(winograd.Tile(m, m), taps) / taps
    assert error <= winograd.amplification(largest, 3) / 3


def one(**attrs: Any) -> Workload:
    inputs = WorkloadInput(TensorType("f32", (1, 8, 14, 14))), WorkloadInput(TensorType("f32", (8, 8, 3, 3)), True)
    return Workload(inputs, (WorkloadNode.make("conv2d", (0, 1), **{**PLAIN, **attrs}),), (2,))


def test_stages_have_the_names_that_the_template_schedules() -> None:
    definition = compute_def(one(), "winograd_f4")
    transforms = ("wino_t", "wino_v", "wino_s", "wino_y")
    names = ["wino_u", *transforms, *(f"{name}p" for name in transforms), "wino_m", "out0"]
    assert sorted(s.name for s in definition.stages) == sorted(names)
    assert definition.stage("wino_u").outputs[0].shape == (6, 6, 8, 8)
    assert definition.stage("wino_m").outputs[0].shape == (1, 8, 4, 4, 6, 6)


def test_flops_are_those_of_the_definition() -> None:
    assert one().flops == 2 * 8 * 8 * 9 * 14 * 14


def test_algorithms_are_listed_and_refused() -> None:
    others = ("bands", "pixels", "rows", "strassen", "pieces")
    known = [name for name in algorithms("conv2d") if not name.startswith(others)]
    assert known == ["direct", *winograd.TILES, *winograd_exact.TILES, *winograd_matrices.ALGORITHMS, "winograd_rows"]
    with pytest.raises(WorkloadError, match=f"no algorithm 'fft'; known: {', '.join(algorithms('conv2d'))}"):
        compute_def(one(), "fft")
    for attrs in ({"stride": (1, 2)}, {"dilation": (2, 2)}, {"stride": (3, 3)}):
        with pytest.raises(WorkloadError, match="winograd_f4 needs a square kernel of 2 to 5 taps per stride"):
            compute_def(one(**attrs), "winograd_f4")


@pytest.mark.parametrize(("m", "taps"), [(2, 3), (4, 3), (6, 3), (4, 4), (4, 5), (6, 2)])
def test_transforms_are_products_of_sparse_halves(m: int, taps: int) -> None:
    matrices = winograd_transforms.transforms(m, taps)
    for matrix in (np.array(matrices.BT), np.array(matrices.AT).T):
        signs, parts = (np.array(half) for half in winograd_transforms.halves(tuple(map(tuple, matrix))))
        np.testing.assert_array_equal(signs @ parts, matrix)
        assert set(np.unique(signs)) <= {-1.0, 0.0, 1.0}
        assert np.count_nonzero(parts) < np.count_nonzero(matrix)


@pytest.mark.parametrize(("m", "taps"), [(2, 3), (4, 3), (6, 3), (4, 4), (4, 5), (6, 2)])
def test_odd_parts_of_inputs_may_end_in_one(m: int, taps: int) -> None:
    matrix = winograd_transforms.transforms(m, taps).BT
    signs, parts = (np.array(half) for half in winograd_transforms.halves(matrix, monic=True))
    np.testing.assert_array_equal(signs @ parts, np.array(matrix))
    assert np.count_nonzero(parts == 1) >= (m + taps - 2) // 2
