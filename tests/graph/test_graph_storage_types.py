"""Element types of less than a byte and 8-bit floats: initializers, conversions and quantised operands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from autotune.api.session import InferenceSession
from autotune.errors import ModelError, UnsupportedError
from autotune.graph import load_model
from autotune.tensor import DType
from autotune.tensor.storage import integer_range
from tests.graph.graph_models import build, check, random

Array = NDArray[Any]
INTEGERS = [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2]
FLOATS = [
    ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz,
    ml_dtypes.float4_e2m1fn,
]  # fmt: skip


def kind_of(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def stored(dtype: Any, *shape: int) -> Array:
    """Numbers that a type has, among them the smallest."""
    low, high = (0, 3) if dtype in (ml_dtypes.uint4, ml_dtypes.uint2) else (-2, 1)
    return np.random.default_rng(1).integers(low, high, shape, endpoint=True).astype(np.float32).astype(dtype)


@pytest.mark.parametrize("form", ["raw", "numbers", "external"])
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_initializers(dtype: Any, form: str, tmp_path: Path) -> None:
    """Of an odd count, so that the last byte is not full."""
    values = stored(dtype, 3, 5)
    tensor = numpy_helper.from_array(values, "w")
    if form == "numbers":
        tensor = helper.make_tensor("w", kind_of(dtype), values.shape, values.astype(np.float32).ravel().tolist())
    model = build(helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT), {}, {}, opset=25)
    model.graph.initializer.append(tensor)
    path = tmp_path / "model.onnx"
    onnx.save_model(model, path, save_as_external_data=form == "external", size_threshold=0)
    (found,) = InferenceSession(str(path), database=False).run(None, {})
    np.testing.assert_array_equal(found, values.astype(np.float32))


def test_initializers_of_the_wrong_size_are_refused() -> None:
    model = build(helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT), {}, {}, opset=25)
    tensor = numpy_helper.from_array(stored(ml_dtypes.int4, 3, 5), "w")
    tensor.raw_data = tensor.raw_data[:-1]
    model.graph.initializer.append(tensor)
    with pytest.raises(ModelError, match="has 7 bytes of data, its dimensions .* need 8"):
        load_model(model.SerializeToString())


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_values_of_the_run(dtype: Any) -> None:
    """In and out as they are, moved, and converted to each other."""
    x = stored(dtype, 4, 6)
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], perm=[1, 0]),
        helper.make_node("CastLike", ["f", "x"], ["y"]),
        helper.make_node("Cast", ["turned"], ["z"], to=kind_of(ml_dtypes.float8_e5m2)),
    ]
    feeds = {"x": x, "f": random(3, 5) if dtype in FLOATS else stored(np.float32, 3, 5)}
    model = build(nodes, feeds, {}, ("turned", "y", "z"), opset=24)
    session = InferenceSession(model.SerializeToString(), database=False)
    turned, y, z = (np.asarray(a) for a in session.run(None, feeds))
    wanted = (x.T, feeds["f"].astype(dtype), x.T.astype(np.float32).astype(ml_dtypes.float8_e5m2))
    for found, expected in zip((turned, y, z), wanted, strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("block", [0, 4])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_quantised_to_fewer_bits(dtype: Any, block: int) -> None:
    """Halves to even, saturated; and back."""
    x = np.concatenate([random(8, 3) * 12, np.full((8, 1), 2.5, np.float32), np.full((8, 1), -1e9, np.float32)], 1)
    shape = (2, 5) if block else ()
    scale: Array = (
        np.asarray(np.abs(random(*shape, seed=3)) + 0.5, np.float32) if block else np.asarray(0.5, np.float32)
    )
    zero = np.full(shape, 1, np.float32).astype(dtype)
    attrs: dict[str, Any] = {"axis": 0, "block_size": block} if block else {}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attrs),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attrs),
    ]
    model = build(nodes, {"x": x}, {"s": scale, "z": zero}, ("q", "y"), opset=25)
    low, high = integer_range(DType.of(dtype))
    wide = np.repeat(scale, block, 0) if block else scale
    q = np.clip(np.rint(x / wide) + 1, low, high).astype(np.float32)
    check(model, {"x": x}, [q.astype(dtype), (q - 1) * wide])


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("dtype", FLOATS)
def test_quantised_to_8_bit_floats(dtype: Any, saturate: int) -> None:
    x = np.array([[1.0, -3.3, 0.4, 1e9, -1e9, 0.0, 2.5]], np.float32)
    node = helper.make_node("QuantizeLinear", ["x", "s"], ["y"], output_dtype=kind_of(dtype), saturate=saturate)
    check(build(node, {"x": x}, {"s": np.asarray(0.5, np.float32)}, opset=25), {"x": x})


def test_complex_numbers_are_still_refused() -> None:
    model = build(helper.make_node("Cast", ["x"], ["y"], to=TensorProto.COMPLEX64), {"x": random(2)}, opset=25)
    with pytest.raises(UnsupportedError, match="COMPLEX64"):
        load_model(model.SerializeToString())
