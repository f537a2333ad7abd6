"""Programs in f32 within an error: what is expected, what is found, and what is given up for it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.compiler.rounding import expected, together
from autotune.errors import InputError, ModelError
from autotune.graph import load_model
from autotune.graph.evaluate import evaluate_graph
from autotune.ops import parse_workload
from autotune.runtime.difference import max_error
from autotune.search_spaces import Config
from autotune.tensor import DType

TARGET = "native -num-cores=1"
CHANNELS, SIDE, LAYERS = 64, 28, 3


def chain() -> bytes:
    """Convolutions of 3 x 3, one after another."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    for layer in range(LAYERS):
        shape = (CHANNELS, CHANNELS, 3, 3)
        weight = rng.standard_normal(shape, dtype=np.float32) * np.float32((2 / (9 * CHANNELS)) ** 0.5)
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        nodes.append(helper.make_node("Conv", [f"x{layer}", f"w{layer}"], [f"c{layer}"], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{layer}"], [f"x{layer + 1}"]))
    image = [1, CHANNELS, SIDE, SIDE]
    graph = helper.make_graph(
        nodes, "chain", [helper.make_tensor_value_info("x0", TensorProto.FLOAT, image)],
        [helper.make_tensor_value_info(f"x{LAYERS}", TensorProto.FLOAT, image)], weights,
    )  # fmt: skip
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)]).SerializeToString())


def algorithms(compiled: autotune.CompiledModel) -> list[str]:
    names = [str(Config.from_json(kernel.config).template) for kernel in compiled.kernels]
    return [name for name in names if "winograd" in name]


def test_expected_errors_grow_with_sums_and_with_tiles() -> None:
    short, long = (parse_workload(f"matmul a=8,{k} b={k},8") for k in (16, 256))
    assert 0 < expected(short) < expected(long)
    conv = parse_workload("conv2d data=1,64,28,28 weight=64,64,3,3 pad=1")
    errors = [expected(conv, f"winograd_{tile}") for tile in ("f2", "f4x2", "f4", "f5", "f6")]
    assert errors == sorted(errors)
    assert errors[0] < 1.1 * expected(conv)
    product = parse_workload("matmul a=64,512 b=512,64")
    assert 1.2 * expected(product) < expected(product, "strassen") < 1.8 * expected(product)
    of_bytes = parse_workload("matmul a=64,512:u8 b=512,64:i8 + cast to=f32 + exp")
    assert expected(of_bytes, "strassen_exact") == expected(of_bytes) > 0, "its sums are as exact as the plain ones"
    assert expected(parse_workload("add a=8:i32 b=8:i32")) == 0.0


def test_long_sums_err_like_their_parts() -> None:
    parts, whole = (parse_workload(f"matmul a=8,{k} b={k},8") for k in (256, 4096))
    assert expected(whole) < 1.1 * expected(parts)


def test_errors_of_kernels_add_up_in_quadrature() -> None:
    assert together([3e-7, 4e-7]) == pytest.approx(together([5e-7]))


def test_what_is_expected_is_found_within_an_order_of_magnitude() -> None:
    model = chain()
    compiled = autotune.compile(model, TARGET, False)
    assert algorithms(compiled)
    feeds = {"x0": np.random.default_rng(1).standard_normal((1, CHANNELS, SIDE, SIDE), dtype=np.float32)}
    right = list(evaluate_graph(load_model(model), feeds, DType.f64).values())
    found = max_error(compiled.run(feeds), right)
    assert compiled.expected_error / 8 < found < 2 * compiled.expected_error


def test_a_small_error_makes_kernels_give_up_winograd() -> None:
    model = chain()
    free = autotune.compile(model, TARGET, False, max_error=1e-4)
    strict = autotune.compile(model, TARGET, False, strict_fp=True, max_error=1e-4)
    assert algorithms(free)
    assert free.precise.error is not None
    assert strict.precise.error is not None
    between = (free.precise.error + strict.precise.error) / 2
    careful = autotune.compile(model, TARGET, False, max_error=between)
    assert careful.precise.error is not None
    assert careful.precise.error <= between
    assert len(algorithms(careful)) < len(algorithms(free))
    assert "give up Winograd" in str(careful.precise)


def test_an_error_that_f32_cannot_keep_is_refused_in_one_line() -> None:
    with pytest.raises(ModelError, match="without Winograd and its like, too, more than the 1e-09 allowed") as refused:
        autotune.compile(chain(), TARGET, False, max_error=1e-9)
    assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="precisions model, f32 and auto heed"):
        autotune.compile(chain(), TARGET, False, precision="bf16", max_error=0.1)


def test_for_another_cpu_the_expected_error_counts() -> None:
    foreign = "x86 -mcpu=znver4 -num-cores=1"
    if not autotune.Target.parse(foreign).missing_features():
        pytest.skip("this CPU can run it")
    compiled = autotune.compile(chain(), foreign, False, max_error=1e-4)
    assert compiled.precise.error == compiled.expected_error
    assert "not tried" in compiled.precise.note
