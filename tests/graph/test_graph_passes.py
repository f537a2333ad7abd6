"""Graph passes: each rewrites what it says, leaves the rest alone, and preserves the result."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from autotune.errors import ModelError
from autotune.graph import Graph, Output, Value, evaluate_graph, optimize, verify
from autotune.graph.builder import GraphBuilder
from autotune.graph.passes import PASSES
from autotune.ops.workload import AttrValue
from autotune.tensor import DType

CONV: dict[str, AttrValue] = {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
DENSE: dict[str, AttrValue] = {"trans_a": False, "trans_b": False}


class Net:
    """A graph under construction, with random constants and inputs."""

    def __init__(self, *shape: int) -> None:
        self.builder = GraphBuilder("net")
        self._rng = np.random.default_rng(0)
        self.x = self.builder.input(Value("x", "f32", shape))

    def random(self, *shape: int) -> str:
        return self.builder.constant(self._rng.uniform(0.5, 2, shape).astype(np.float32))

    def const(self, value: float, *shape: int) -> str:
        return self.builder.constant(np.full(shape, value, np.float32))

    def op(self, op: str, *inputs: str, **attrs: AttrValue) -> str:
        return self.builder.emit(op, inputs, op, "", **attrs)

    def graph(self, *results: str) -> Graph:
        return self.builder.build([Output(f"out{i}", name) for i, name in enumerate(results)])


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def run_pass(graph: Graph, *names: str) -> Graph:
    """The graph after the named passes and dead-code removal; verified, and equal to before in float64."""
    result = graph
    for name in (*names, "dead-code"):
        result = PASSES[name](result)
        verify(result)
    assert_same(graph, result)
    for name in names:
        assert PASSES[name](result) is result, f"{name} is not idempotent"
    return result


def assert_same(before: Graph, after: Graph) -> None:
    rng = np.random.default_rng(1)
    feeds = {value.name: rng.standard_normal(value.shape).astype(np.float32) for value in before.inputs}
    expected, found = (evaluate_graph(graph, feeds, DType.f64) for graph in (before, after))
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name].astype(np.float64), array.astype(np.float64), rtol=1e-5, atol=1e-5)


def test_dead_code() -> None:
    net = Net(2, 2)
    kept = net.op("relu", net.x)
    net.op("add", kept, net.random(2, 2))
    graph = net.graph(kept)
    result = run_pass(graph)
    assert ops(result) == ["relu"]
    assert result.constants == {}
    assert result.inputs == graph.inputs


def test_constants_are_folded() -> None:
    net = Net(2, 2)
    weight = net.op("mul", net.op("exp", net.random(2, 2)), net.const(2.0))
    assert ops(run_pass(net.graph(net.op("add", net.x, weight)), "fold-constants")) == ["add"]


def test_a_huge_constant_expression_is_not_folded() -> None:
    net = Net(1)
    huge = net.builder.constant(np.broadcast_to(np.float32(1), (2**15, 2**15)))
    graph = net.graph(net.op("relu", huge))
    assert PASSES["fold-constants"](graph) is graph


@pytest.mark.parametrize(
    ("op", "constant", "attrs"),
    [
        ("add", 0.0, {}),
        ("sub", 0.0, {}),
        ("mul", 1.0, {}),
        ("div", 1.0, {}),
        ("pow", 1.0, {}),
        ("clip", None, {"min": -math.inf, "max": math.inf}),
        ("cast", None, {"to": "f32"}),
    ],
)
def test_noops_are_removed(op: str, constant: float | None, attrs: dict[str, AttrValue]) -> None:
    net = Net(2, 3)
    operands = [net.x] if constant is None else [net.x, net.const(constant, 1, 3)]
    graph = net.graph(net.op("relu", net.op(op, *operands, **attrs)))
    assert ops(run_pass(graph, "remove-noops")) == ["relu"]


def test_what_only_looks_like_a_noop_stays() -> None:
    net = Net(1, 3)
    broadcast = net.op("add", net.x, net.const(0.0, 2, 3))
    reverse = net.op("sub", net.const(0.0, 2, 3), broadcast)
    bounded = net.op("clip", reverse, min=0.0, max=math.inf)
    to_other_dtype = net.op("cast", bounded, to="f64")
    graph = net.graph(to_other_dtype)
    assert PASSES["remove-noops"](graph) is graph


def test_a_removed_noop_may_be_an_output() -> None:
    net = Net(2)
    graph = run_pass(net.graph(net.op("mul", net.x, net.const(1.0))), "remove-noops")
    assert graph.outputs == (Output("out0", "x"),)


@pytest.mark.parametrize("chosen", [True, False, None])
def test_a_choice_that_is_always_the_same(chosen: bool | None) -> None:
    net = Net(2, 3)
    condition = np.array([[True], [False]]) if chosen is None else np.full((2, 1), chosen)
    small = net.const(2.0, 1, 3)  # broadcast: the other side stays
    graph = net.graph(net.op("relu", net.op("where", net.builder.constant(condition), net.x, small)))
    assert ops(run_pass(graph, "remove-noops")) == (["relu"] if chosen else ["where", "relu"])


def test_idempotent_operators() -> None:
    net = Net(2, 3)
    assert ops(run_pass(net.graph(net.op("relu", net.op("relu", net.x))), "remove-noops")) == ["relu"]


def test_common_subexpressions() -> None:
    net = Net(2, 3)
    first, second = (net.op("mul", net.op("exp", net.x), net.const(3.0, 3)) for _ in range(2))
    assert ops(run_pass(net.graph(net.op("add", first, second)), "common-subexpressions")) == ["exp", "mul", "add"]


def test_different_attributes_or_dtypes_are_not_common() -> None:
    net = Net(3)
    clips = [net.op("clip", net.x, min=0.0, max=float(top)) for top in (1, 2)]
    graph = net.graph(*clips)
    assert PASSES["common-subexpressions"](graph) is graph


def test_scales_and_shifts_merge() -> None:
    net = Net(2, 3, 4, 4)
    y = net.x
    for op in ("mul", "add", "mul", "add", "sub", "mul"):
        y = net.op(op, y, net.random(1, 3, 1, 1))
    graph = net.graph(y)
    assert ops(optimize(graph)) == ["mul", "add"]
    assert_same(graph, optimize(graph))


def test_a_shift_that_others_read_is_not_merged() -> None:
    net = Net(2, 3)
    shifted = net.op("add", net.x, net.random(3))
    graph = net.graph(net.op("mul", shifted, net.random(3)), net.op("relu", shifted))
    assert PASSES["merge-affine"](graph) is graph


def test_merging_never_makes_a_larger_constant() -> None:
    net = Net(4, 5)
    graph = net.graph(net.op("add", net.op("add", net.x, net.random(4, 1)), net.random(1, 5)))
    assert PASSES["merge-affine"](graph) is graph


def batch_norm(net: Net, x: str, channels: int) -> str:
    return net.op("add", net.op("mul", x, net.random(1, channels, 1, 1)), net.random(1, channels, 1, 1))


def test_batch_norm_folds_into_a_convolution_with_bias() -> None:
    net = Net(2, 3, 5, 5)
    conv = net.op("conv2d", net.x, net.random(4, 3, 3, 3), **CONV)
    graph = net.graph(batch_norm(net, net.op("add", conv, net.random(1, 4, 1, 1)), 4))
    assert ops(optimize(graph)) == ["conv2d", "add"]
    assert_same(graph, optimize(graph))


def test_batch_norm_folds_into_a_grouped_convolution() -> None:
    net = Net(1, 4, 5, 5)
    conv = net.op("conv2d", net.x, net.random(8, 1, 3, 3), **{**CONV, "groups": 4})
    graph = net.graph(batch_norm(net, conv, 8))
    assert ops(optimize(graph)) == ["conv2d", "add"]
    assert_same(graph, optimize(graph))


@pytest.mark.parametrize("scale", [(), (1, 1, 1, 1), (1, 6, 1, 1), (6, 1, 1)])
@pytest.mark.parametrize("groups", [1, 2])
def test_scale_folds_into_a_transposed_convolution(scale: tuple[int, ...], groups: int) -> None:
    net = Net(1, 4, 3, 3)
    attrs: dict[str, AttrValue] = {**CONV, "groups": groups, "output_padding": (0, 0)}
    conv = net.op("conv_transpose2d", net.x, net.random(4, 6 // groups, 2, 2), **attrs)
    graph = net.graph(net.op("mul", conv, net.random(*scale)))
    whole = optimize(graph, skip=["split-phases"])  # which makes a convolution of a grouped one
    assert ops(whole) == ["conv_transpose2d"]
    assert_same(graph, whole)
    assert_same(graph, optimize(graph))


@pytest.mark.parametrize("trans_b", [False, True])
def test_scale_folds_into_a_matrix_product(trans_b: bool) -> None:
    net = Net(2, 3)
    weight = net.random(4, 3) if trans_b else net.random(3, 4)
    product = net.op("matmul", net.x, weight, trans_a=False, trans_b=trans_b)
    assert ops(run_pass(net.graph(net.op("mul", product, net.random(4))), "fold-scale")) == ["matmul"]


@pytest.mark.parametrize("shape", [(2, 1), (2, 4)])
def test_a_scale_per_row_is_not_folded(shape: Sequence[int]) -> None:
    net = Net(2, 3)
    graph = net.graph(net.op("mul", net.op("matmul", net.x, net.random(3, 4), **DENSE), net.random(*shape)))
    assert PASSES["fold-scale"](graph) is graph


def test_a_convolution_that_others_read_is_not_scaled() -> None:
    net = Net(1, 3, 4, 4)
    conv = net.op("conv2d", net.x, net.random(4, 3, 1, 1), **CONV)
    graph = net.graph(net.op("mul", conv, net.random(1, 4, 1, 1)), conv)
    assert PASSES["fold-scale"](graph) is graph


def test_a_convolution_of_one_weight_per_channel_is_a_product() -> None:
    net = Net(2, 3, 4, 5)
    graph = net.graph(net.op("conv2d", net.x, net.random(3, 1, 1, 1), **CONV | {"groups": 3}))
    result = run_pass(graph, "scale-convolutions")
    assert ops(result) == ["mul"]
    assert_same(graph, result)


@pytest.mark.parametrize(
    ("weight", "changed"),
    [
        ((3, 1, 1, 1), {"groups": 3, "stride": (2, 1)}),
        ((3, 1, 1, 1), {"groups": 3, "pad": (0, 0, 1, 0)}),
        ((3, 1, 1, 2), {"groups": 3}),
        ((6, 1, 1, 1), {"groups": 3}),
        ((3, 3, 1, 1), {}),
    ],
)
def test_other_convolutions_stay(weight: tuple[int, ...], changed: dict[str, AttrValue]) -> None:
    net = Net(1, 3, 4, 4)
    graph = net.graph(net.op("conv2d", net.x, net.random(*weight), **CONV | changed))
    assert PASSES["scale-convolutions"](graph) is graph


@pytest.mark.parametrize(("own", "border", "folded"), [(0, 0, True), (1, 7, True), (1, 0, False), (1, 8, False)])
def test_bytes_around_an_image_become_the_border_of_a_convolution(own: int, border: int, folded: bool) -> None:
    net = Net(1, 3, 4, 4)
    padded = net.op("pad", net.op("cast", net.x, to="u8"), pads=(0, 0, 1, 0, 0, 0, 1, 2), value=7)
    weight = net.builder.constant(np.arange(-6, 6, dtype=np.int8).reshape(1, 3, 2, 2))
    rare: dict[str, AttrValue] = {"pad_value": border} if border else {}
    graph = net.graph(net.op("conv2d", padded, weight, **{**CONV, "pad": (own,) * 4, **rare}))
    result = PASSES["fold-pad"](graph)
    assert (ops(optimize(result)) == ["cast", "conv2d"]) is folded
    assert_same(graph, result)


def test_a_convolution_of_bytes_stays() -> None:
    net = Net(1, 3, 4, 4)
    bytes_ = net.op("cast", net.x, to="u8")
    weight = net.builder.constant(np.array([-1, 2, 3], np.int8).reshape(3, 1, 1, 1))
    graph = net.graph(net.op("conv2d", bytes_, weight, **CONV | {"groups": 3}))
    assert PASSES["scale-convolutions"](graph) is graph


def test_reshapes_and_transposes_merge() -> None:
    net = Net(2, 3, 4)
    y = net.op("reshape", net.op("reshape", net.x, shape=(6, 4)), shape=(4, 6))
    y = net.op("transpose", net.op("transpose", y, perm=(1, 0)), perm=(1, 0))
    result = run_pass(net.graph(y), "merge-movement", "remove-noops")
    assert [(node.op, node.output.shape) for node in result.nodes] == [("reshape", (4, 6))]


def test_a_transpose_of_unit_axes_is_a_reshape() -> None:
    net = Net(1, 3, 1, 4)
    graph = net.graph(net.op("transpose", net.x, perm=(1, 2, 0, 3)))
    assert ops(run_pass(graph, "merge-movement")) == ["reshape"]


def test_a_reduction_over_unit_axes_is_a_reshape() -> None:
    net = Net(2, 1, 3, 1)
    graph = net.graph(net.op("reduce_mean", net.x, axes=(1, 3), keepdims=False))
    assert ops(run_pass(graph, "remove-noops")) == ["reshape"]


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("reshape", {"shape": (2, 3)}),
        ("transpose", {"perm": (0, 1)}),
        ("slice", {"begin": (0, 0), "size": (2, 3), "step": (1, 1)}),
        ("pad", {"pads": (0, 0, 0, 0), "value": 0.0}),
        ("concat", {"axis": 0}),
        ("expand", {"shape": (2, 3)}),
    ],
)
def test_movement_that_moves_nothing_is_removed(op: str, attrs: dict[str, AttrValue]) -> None:
    net = Net(2, 3)
    assert ops(run_pass(net.graph(net.op("relu", net.op(op, net.x, **attrs))), "remove-noops")) == ["relu"]


def test_a_slice_that_reverses_stays() -> None:
    net = Net(2, 3)
    graph = net.graph(net.op("slice", net.x, begin=(1, 0), size=(2, 3), step=(-1, 1)))
    assert PASSES["remove-noops"](graph) is graph


def test_unknown_pass_names_are_refused() -> None:
    net = Net(1)
    with pytest.raises(ModelError, match="no graph pass .*autotune passes"):
        optimize(net.graph(net.op("relu", net.x)), skip=["no-such-pass"])


def test_a_skipped_pass_does_not_run_and_changes_are_reported() -> None:
    net = Net(2)
    graph = net.graph(net.op("add", net.op("mul", net.x, net.const(1.0)), net.const(0.0)))
    assert ops(optimize(graph, skip=["remove-noops"])) == ["mul", "add"]
    seen: list[str] = []
    assert ops(optimize(graph, on_change=lambda name, _: seen.append(name))) == []
    assert seen == ["remove-noops", "dead-code"]


def test_ten_thousand_nodes() -> None:
    net = Net(2)
    y = net.x
    for _ in range(5000):
        y = net.op("relu", net.op("relu", y))
    assert ops(optimize(net.graph(y))) == ["relu"]
