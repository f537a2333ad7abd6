"""Operators written in primitive nodes, as exporters write them, become one node each and keep their results."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from autotune.graph import Graph, evaluate_graph, load_model, optimize
from autotune.graph.passes import PASSES
from tests.graph.graph_models import Array, build, check, random

BATCH, LENGTH, HEADS, WIDTH = 2, 5, 3, 4
HIDDEN = HEADS * WIDTH


class Writer:
    """ONNX nodes and constants in the order in which they are written; values go by name."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: dict[str, Array] = {}

    def __call__(self, op: str, *inputs: str | float | Array, **attrs: object) -> str:
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        self.nodes.append(helper.make_node(op, names, [f"v{len(self.nodes)}"], **attrs))  # type: ignore[arg-type]
        return f"v{len(self.nodes) - 1}"

    def constant(self, value: float | Array) -> str:
        name = f"c{len(self.tensors)}"
        self.tensors[name] = np.asarray(value, np.float32) if isinstance(value, float) else value
        return name

    def several(self, op: str, count: int, *inputs: str, **attrs: object) -> list[str]:
        names = [f"s{len(self.nodes)}_{n}" for n in range(count)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attrs))  # type: ignore[arg-type]
        return names

    def optimized(self, result: str, **feeds: Array) -> Graph:
        """The graph, optimised, after a comparison with the reference."""
        model = build(self.nodes, feeds, self.tensors, outputs=[result])
        check(model, feeds)
        return optimize(load_model(model.SerializeToString()))


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def integers(*values: int) -> Array:
    return np.asarray(values, np.int64)


# Activations -----------------------------------------------------------------------------------------

Activation = Callable[[Writer, str], str]
SQRT_2, ROOT = math.sqrt(2.0), math.sqrt(2 / math.pi)


def cubic(w: Writer, x: str) -> str:
    return w("Add", x, w("Mul", w("Pow", x, 3.0), 0.044715))


def one_plus(w: Writer, value: str) -> str:
    return w("Add", value, 1.0)


@pytest.mark.parametrize(
    ("op", "write"),
    [
        ("gelu", lambda w, x: w("Mul", w("Mul", x, one_plus(w, w("Erf", w("Div", x, SQRT_2)))), 0.5)),
        ("gelu", lambda w, x: w("Mul", w("Mul", x, 0.5), one_plus(w, w("Erf", w("Mul", x, 1 / SQRT_2))))),
        ("gelu", lambda w, x: w("Mul", x, w("Add", w("Mul", w("Erf", w("Div", x, SQRT_2)), 0.5), 0.5))),
        ("gelu", lambda w, x: w("Mul", w("Mul", 0.5, x), one_plus(w, w("Tanh", w("Mul", cubic(w, x), ROOT))))),
        (
            "gelu",
            lambda w, x: w(
                "Mul",
                w("Mul", x, 0.5),
                one_plus(w, w("Tanh", w("Mul", w("Mul", x, ROOT), one_plus(w, w("Mul", w("Mul", x, x), 0.044715))))),
            ),
        ),
        ("gelu", lambda w, x: w("Mul", w("Mul", 0.5, one_plus(w, w("Erf", w("Div", x, w("Sqrt", 2.0))))), x)),
        ("sigmoid", lambda w, x: w("Div", 1.0, one_plus(w, w("Exp", w("Neg", x))))),
        ("swish", lambda w, x: w("Mul", x, w("Reciprocal", one_plus(w, w("Exp", w("Neg", x)))))),
        ("swish", lambda w, x: w("Div", x, w("Add", 1.0, w("Exp", w("Neg", x))))),
        ("swish", lambda w, x: w("Mul", x, w("Sigmoid", x))),
        ("swish", lambda w, x: w("Mul", w("Sigmoid", w("Mul", x, 1.702)), x)),
        ("hard_swish", lambda w, x: w("Div", w("Mul", x, w("Clip", w("Add", x, 3.0), 0.0, 6.0)), 6.0)),
        ("hard_swish", lambda w, x: w("Mul", x, w("HardSigmoid", x, alpha=1 / 6, beta=0.5))),
        ("hard_swish", lambda w, x: w("Mul", w("Div", x, 6.0), w("Max", 0.0, w("Min", 6.0, w("Add", 3.0, x))))),
        ("hard_swish", lambda w, x: w("Mul", x, w("Mul", w("Min", w("Relu", w("Add", x, 3.0)), 6.0), 1 / 6))),
        ("hard_swish", lambda w, x: w("Mul", w("Clip", w("Add", w("Div", x, 6.0), 0.5), 0.0, 1.0), x)),
        ("hard_sigmoid", lambda w, x: w("Div", w("Clip", w("Add", x, 3.0), 0.0, 6.0), 6.0)),
        ("hard_sigmoid", lambda w, x: w("Clip", w("Add", w("Mul", x, 0.2), 0.5), 0.0, 1.0)),
        ("mish", lambda w, x: w("Mul", x, w("Tanh", w("Softplus", x)))),
        ("mish", lambda w, x: w("Mul", w("Tanh", w("Log", one_plus(w, w("Exp", x)))), x)),
    ],
)
def test_activations(op: str, write: Activation) -> None:
    w = Writer()
    graph = w.optimized(write(w, "x"), x=random(3, 7, low=-5, high=5))
    assert ops(graph) == [op]


@pytest.mark.parametrize(
    "write",
    [
        lambda w, x: w("Mul", w("Mul", x, one_plus(w, w("Erf", w("Div", x, 1.5)))), 0.5),
        lambda w, x: w("Mul", x, one_plus(w, w("Erf", w("Div", x, SQRT_2)))),
        lambda w, x: w("Div", w("Mul", x, w("Clip", w("Add", x, 3.0), 0.0, 5.0)), 6.0),
        lambda w, x: w("Mul", "y", w("Sigmoid", x)),
        lambda w, x: w("Mul", "y", w("Tanh", w("Softplus", x))),
        lambda w, x: w("Div", x, w("Add", 2.0, w("Exp", w("Neg", x)))),
        lambda w, x: w("Clip", w("Add", w("Mul", x, 0.2), 0.5), 0.0, 2.0),
    ],
)
def test_what_only_resembles_an_activation_stays(write: Activation) -> None:
    w = Writer()
    graph = w.optimized(write(w, "x"), x=random(3, 7), y=random(3, 7, seed=1))
    assert not {"gelu", "swish", "hard_swish", "hard_sigmoid", "mish"} & set(ops(graph))


# Normalisation ---------------------------------------------------------------------------------------


def deviation(w: Writer, x: str, square: str) -> str:
    squares = w("Pow", x, 2.0) if square == "Pow" else w("Mul", x, x)
    return w("Sqrt", w("Add", w("ReduceMean", squares, axes=[-1]), 1e-5))


@pytest.mark.parametrize("square", ["Pow", "Mul"])
@pytest.mark.parametrize("quotient", ["Div", "Reciprocal", "One"])
@pytest.mark.parametrize("centred", [True, False])
def test_norms(square: str, quotient: str, centred: bool) -> None:
    w = Writer()
    x = w("Sub", "x", w("ReduceMean", "x", axes=[-1])) if centred else "x"
    root = deviation(w, x, square)
    if quotient == "Div":
        normal = w("Div", x, root)
    else:
        normal = w("Mul", w("Reciprocal", root) if quotient == "Reciprocal" else w("Div", 1.0, root), x)
    result = w("Mul", random(HIDDEN, seed=1), normal)
    if centred:
        result = w("Add", result, random(HIDDEN, seed=2))
    graph = w.optimized(result, x=random(2, 5, HIDDEN))
    assert ops(graph) == ["layer_norm" if centred else "rms_norm"]


@pytest.mark.parametrize(
    "inverse",
    [
        lambda w, v: w("Pow", v, -0.5),
        lambda w, v: w("Reciprocal", w("Pow", v, 0.5)),
        lambda w, v: w("Sqrt", w("Reciprocal", v)),
    ],
)
@pytest.mark.parametrize("scaled_first", [True, False])
def test_roots_written_as_powers(inverse: Activation, scaled_first: bool) -> None:
    w = Writer()
    factor = inverse(w, w("Add", 1e-6, w("ReduceMean", w("Pow", "x", 2.0), axes=[-1])))
    scale = random(HIDDEN, seed=1)
    result = w("Mul", w("Mul", "x", scale), factor) if scaled_first else w("Mul", scale, w("Mul", "x", factor))
    assert ops(w.optimized(result, x=random(2, 5, HIDDEN))) == ["rms_norm"]


def test_mean_squares_as_sums() -> None:
    for total in ("ReduceSumSquare", "ReduceSum"):
        w = Writer()
        if total == "ReduceSum":
            squares = w("ReduceSum", w("Mul", "x", "x"), integers(-1))
        else:
            squares = w("ReduceSumSquare", "x", axes=[-1])
        root = w("Sqrt", w("Add", w("Div", squares, float(HIDDEN)), 1e-6))
        assert ops(w.optimized(w("Div", "x", root), x=random(2, 5, HIDDEN))) == ["rms_norm"]


@pytest.mark.parametrize("one_sweep", [True, False])
def test_scale_and_shift_distributed_over_a_normalisation(one_sweep: bool) -> None:
    """x g + (b - mean g) with g = scale / deviation; the variance by the mean square less the square of the mean."""
    w = Writer()
    mean = w("ReduceMean", "x", axes=[-1])
    if one_sweep:
        variance = w("Sub", w("ReduceMean", w("Mul", "x", "x"), axes=[-1]), w("Mul", mean, mean))
    else:
        variance = w("ReduceMean", w("Pow", w("Sub", "x", mean), 2.0), axes=[-1])
    gain = w("Mul", w("Reciprocal", w("Sqrt", w("Add", variance, 1e-3))), random(HIDDEN, seed=1))
    result = w("Add", w("Mul", "x", gain), w("Sub", random(HIDDEN, seed=2), w("Mul", mean, gain)))
    assert ops(w.optimized(result, x=random(2, 5, HIDDEN))) == ["layer_norm"]


def test_the_mean_of_something_else_is_no_normalisation() -> None:
    w = Writer()
    centred = w("Sub", "x", w("ReduceMean", "y", axes=[-1]))
    root = deviation(w, w("Sub", "x", w("ReduceMean", "x", axes=[-1])), "Mul")
    graph = w.optimized(w("Div", centred, root), x=random(2, HIDDEN), y=random(2, HIDDEN, seed=1))
    assert "layer_norm" not in ops(graph)


def test_a_scale_behind_a_shift_stays_outside() -> None:
    w = Writer()
    x = w("Sub", "x", w("ReduceMean", "x", axes=[-1]))
    shifted = w("Add", w("Div", x, deviation(w, x, "Mul")), random(HIDDEN, seed=2))
    graph = w.optimized(w("Mul", shifted, "s"), x=random(2, HIDDEN), s=random(HIDDEN, seed=1))
    assert ops(graph) == ["layer_norm", "mul"]


def test_softmax() -> None:
    w = Writer()
    power = w("Exp", w("Sub", "x", w("ReduceMax", "x", axes=[1], keepdims=1)))
    graph = w.optimized(w("Div", power, w("ReduceSum", power, integers(1), keepdims=1)), x=random(2, 5, 3))
    assert ops(graph) == ["softmax"]


@pytest.mark.parametrize(
    ("op", "write"),
    [
        ("softmax", lambda w, x: (lambda e: w("Div", e, w("ReduceSum", e, integers(-1))))(w("Exp", x))),
        (
            "softmax",
            lambda w, x: (lambda e: w("Mul", w("Reciprocal", w("ReduceSum", e, integers(-1))), e))(w("Exp", x)),
        ),
        ("log_softmax", lambda w, x: w("Log", w("Softmax", x, axis=1))),
        ("log_softmax", lambda w, x: w("Sub", x, w("ReduceLogSumExp", x, axes=[1]))),
        (
            "log_softmax",
            lambda w, x: (lambda d: w("Sub", d, w("Log", w("ReduceSum", w("Exp", d), integers(1)))))(
                w("Sub", x, w("ReduceMax", x, axes=[1]))
            ),
        ),
        ("sub", lambda w, x: w("Sub", x, w("ReduceLogSumExp", w("Sin", x), axes=[1]))),
    ],
)
def test_softmax_and_its_logarithm(op: str, write: Activation) -> None:
    w = Writer()
    assert ops(w.optimized(write(w, "x"), x=random(2, 5, 3)))[-1] == op


# Attention -------------------------------------------------------------------------------------------


def split(w: Writer, x: str, perm: tuple[int, ...]) -> str:
    return w("Transpose", w("Reshape", x, integers(BATCH, LENGTH, HEADS, WIDTH)), perm=perm)


def joined(w: Writer, x: str) -> str:
    return w("Reshape", w("Transpose", x, perm=[0, 2, 1, 3]), integers(BATCH, LENGTH, HIDDEN))


def feeds() -> dict[str, Array]:
    return {name: random(BATCH, LENGTH, HIDDEN, seed=n) for n, name in enumerate("qkv")}


@pytest.mark.parametrize("mask", ["", "keys", "all", "causal"])
@pytest.mark.parametrize("twice", [False, True])
def test_attention_of_split_heads(mask: str, twice: bool) -> None:
    """All of it is one kernel on the operands as they come; a mask of constants up to the diagonal is no operand."""
    w = Writer()
    q, v = (split(w, name, (0, 2, 1, 3)) for name in "qv")
    k = split(w, "k", (0, 2, 3, 1))
    if twice:
        q, k = w("Mul", q, 0.7), w("Mul", k, 0.7)
    scores = w("MatMul", q, k) if twice else w("Div", w("MatMul", q, k), 2.0)
    given = feeds()
    if mask == "causal":
        scores = w("Add", scores, np.triu(np.full((LENGTH, LENGTH), -np.inf, np.float32), 1))
    elif mask:
        given["m"] = random(*((BATCH, 1, 1, LENGTH) if mask == "keys" else (BATCH, HEADS, LENGTH, LENGTH)), seed=5)
        scores = w("Add", "m", scores)
    graph = w.optimized(joined(w, w("MatMul", w("Softmax", scores, axis=-1), v)), **given)
    assert set(ops(graph)) == {"reshape", "attention"}
    (node,) = (node for node in graph.nodes if node.op == "attention")
    assert node.attr("order") == ",".join(["bshd"] * 4)
    assert node.attr("causal") is (mask == "causal")
    assert len(node.inputs) == (4 if mask in ("keys", "all") else 3)


@pytest.mark.parametrize(
    ("mask", "number", "fill"),
    [
        (np.tril(np.ones((LENGTH, LENGTH), bool)), -3e38, -np.inf),
        (np.eye(LENGTH, dtype=bool), -1e10, -np.inf),
        (np.zeros((LENGTH, LENGTH), bool), -1e10, -1e10),  # the mean of the values: no score counts
        (np.tril(np.ones((LENGTH, LENGTH), bool)), -1e4, -1e4),  # as GPT-2 does: lower scores would come through
        (np.eye(LENGTH, dtype=bool), 2.0, 2.0),
        (None, -np.inf, -np.inf),
        (None, -1e10, -1e10),
    ],
)
def test_scores_replaced_by_a_number(mask: Array | None, number: float, fill: float) -> None:
    w = Writer()
    given = {name: random(BATCH, HEADS, LENGTH, WIDTH, seed=n) for n, name in enumerate("qkv")}
    if mask is None:
        given["m"] = np.ones((BATCH, 1, LENGTH, LENGTH), bool)
        given["m"][..., 2] = False
    scores = w("MatMul", "q", w("Transpose", "k", perm=[0, 1, 3, 2]))
    scores = w("Where", "m" if mask is None else mask, scores, number)
    graph = w.optimized(w("MatMul", w("Softmax", scores, axis=-1), "v"), **given)
    (node,) = (node for node in graph.nodes if node.op == "attention")
    assert node.attr("fill") == fill
    assert node.attr("causal") is (number == -3e38)


LOWEST = float(np.finfo(np.float32).min)
CAUSAL = np.tril(np.ones((LENGTH, LENGTH), bool))
Masking = Callable[[Writer, str, dict[str, Array]], str]


def given_mask(given: dict[str, Array], *shape: int) -> str:
    given[f"m{len(given)}"] = random(*shape, seed=len(given))
    return f"m{len(given) - 1}"


def given_choice(given: dict[str, Array], *, all_of_a_row: bool) -> str:
    """Who takes part, known when the model runs; of one row nobody does."""
    choice = np.random.default_rng(3).random((BATCH, 1, LENGTH, LENGTH)) < 0.6
    choice[..., 0] = True
    choice[0, 0, 2] = not all_of_a_row
    given["choice"] = choice
    return "choice"


@pytest.mark.parametrize(
    "masking",
    [
        lambda w, s, g: w("Where", np.triu(np.ones((1, 1, LENGTH, LENGTH), bool), 1), LOWEST, s),
        lambda w, s, g: w("Where", w("Not", given_choice(g, all_of_a_row=False)), -math.inf, s),
        lambda w, s, g: w("Where", given_choice(g, all_of_a_row=True), s, LOWEST),
        lambda w, s, g: w("Add", given_mask(g, HEADS, LENGTH, LENGTH), w("Add", s, given_mask(g, BATCH, 1, 1, LENGTH))),
        lambda w, s, g: w("Add", w("Where", CAUSAL, s, LOWEST), given_mask(g, BATCH, 1, 1, LENGTH)),
        lambda w, s, g: w("Where", CAUSAL, w("Where", given_choice(g, all_of_a_row=False), s, -math.inf), -math.inf),
    ],
)
def test_masks_in_other_forms(masking: Masking) -> None:
    """Numbers in place of scores on either side of a choice, and several masks, are one operand."""
    w = Writer()
    given = {name: random(BATCH, HEADS, LENGTH, WIDTH, seed=n) for n, name in enumerate("qkv")}
    scores = w("Div", w("MatMul", "q", w("Transpose", "k", perm=[0, 1, 3, 2])), 2.0)
    graph = w.optimized(w("MatMul", w("Softmax", masking(w, scores, given), axis=-1), "v"), **given)
    assert "attention" in ops(graph)
    assert not {"softmax", "matmul"} & set(ops(graph))


@pytest.mark.parametrize(
    "masking",
    [
        lambda w, s, g: w("Mul", w("Add", s, given_mask(g, LENGTH, LENGTH)), 0.5),
        lambda w, s, g: w("Add", w("Where", CAUSAL, s, -1e10), given_mask(g, LENGTH, LENGTH)),
    ],
)
def test_masks_that_are_scaled_or_replace_one_another_stay(masking: Masking) -> None:
    w = Writer()
    given = {name: random(LENGTH, LENGTH, seed=n) for n, name in enumerate("qkv")}
    scores = masking(w, w("MatMul", "q", "k"), given)
    assert "attention" not in ops(w.optimized(w("MatMul", w("Softmax", scores, axis=-1), "v"), **given))


def test_rows_without_keys_are_zero() -> None:
    """`where(isnan(p), 0, p)`, as exporters guard rows of which every key is masked."""
    w = Writer()
    given = {name: random(BATCH, HEADS, LENGTH, WIDTH, seed=n) for n, name in enumerate("qkv")}
    mask = np.zeros((LENGTH, LENGTH), np.float32)
    mask[1], mask[:, 3] = -np.inf, -np.inf
    scores = w("Add", w("MatMul", "q", w("Transpose", "k", perm=[0, 1, 3, 2])), mask)
    probabilities = w("Softmax", scores, axis=-1)
    guarded = w("Where", w("IsNaN", probabilities), 0.0, probabilities)
    graph = w.optimized(w("MatMul", guarded, "v"), **given)
    assert ops(graph) == ["attention"]
    assert graph.nodes[0].attr("empty_zero") is True


def test_half_floats_with_a_softmax_of_floats() -> None:
    w = Writer()
    given = {name: random(2, LENGTH, WIDTH, seed=n).astype(np.float16) for n, name in enumerate("qkv")}
    scores = w("Cast", w("MatMul", "q", w("Transpose", "k", perm=[0, 2, 1])), to=onnx.TensorProto.FLOAT)
    probabilities = w("Cast", w("Softmax", scores, axis=-1), to=onnx.TensorProto.FLOAT16)
    result = w("MatMul", probabilities, "v")
    model = build(w.nodes, given, w.tensors, outputs=[result])
    graph = optimize(load_model(model.SerializeToString()))
    assert set(ops(graph)) == {"cast", "reshape", "attention"}
    (expected,) = ReferenceEvaluator(model).run(None, given)
    found = evaluate_graph(graph, given)[result]
    np.testing.assert_allclose(found.astype(np.float64), np.asarray(expected, np.float64), atol=4e-3)  # three halves


def test_heads_and_batches_as_one_dimension_in_the_middle() -> None:
    """(length, batch · heads, width), moved to the front for the products and back behind them."""
    w = Writer()
    given = {name: random(LENGTH, BATCH, HIDDEN, seed=n) for n, name in enumerate("qkv")}
    q, k, v = (w("Transpose", w("Reshape", x, integers(LENGTH, BATCH * HEADS, WIDTH)), perm=[1, 0, 2]) for x in "qkv")
    weights = w("Softmax", w("MatMul", q, w("Transpose", k, perm=[0, 2, 1])), axis=-1)
    result = w("Reshape", w("Transpose", w("MatMul", weights, v), perm=[1, 0, 2]), integers(LENGTH, BATCH, HIDDEN))
    assert set(ops(w.optimized(result, **given))) == {"reshape", "attention"}


@pytest.mark.parametrize("cut", ["Gather", "Split"])
def test_attention_reads_its_heads_out_of_one_projection(cut: str) -> None:
    w = Writer()
    if cut == "Gather":
        whole = w("Reshape", "x", integers(BATCH, LENGTH, 3, HEADS, WIDTH))
        whole = w("Transpose", whole, perm=[2, 0, 3, 1, 4])
        q, k, v = (w("Gather", whole, np.asarray(n, np.int64), axis=0) for n in range(3))
    else:
        q, k, v = (split(w, part, (0, 2, 1, 3)) for part in w.several("Split", 3, "x", axis=2))
    scores = w("MatMul", q, w("Transpose", k, perm=[0, 1, 3, 2]))
    graph = w.optimized(joined(w, w("MatMul", w("Softmax", scores, axis=-1), v)), x=random(BATCH, LENGTH, 3 * HIDDEN))
    (node,) = (node for node in graph.nodes if node.op == "attention")
    assert node.attr("first") == (0, HEADS, 2 * HEADS)
    assert len(set(node.inputs)) == 1
    assert set(ops(graph)) == {"reshape", "attention"}


@pytest.mark.parametrize(("groups", "scaled"), [((2, 2), False), ((2, 1), False), ((6, 6), False), ((3, 3), True)])
def test_heads_that_are_repeated_for_groups_of_queries(groups: tuple[int, int], scaled: bool) -> None:
    """Keys and values of fewer heads are read again and again, not copied; unless they differ in how often."""
    w, apart = Writer(), scaled or groups[0] != groups[1]
    total = 6
    given = {"q": random(BATCH, total, LENGTH, WIDTH)}

    def repeated(name: str, group: int) -> str:
        few = total // group
        given[name] = random(BATCH, LENGTH, few * WIDTH, seed=group + len(given))
        x = w("Transpose", w("Reshape", name, integers(BATCH, LENGTH, few, WIDTH)), perm=[0, 2, 1, 3])
        x = w("Expand", w("Unsqueeze", x, integers(2)), integers(BATCH, few, group, LENGTH, WIDTH))
        return w("Reshape", x, integers(BATCH, total, LENGTH, WIDTH))

    k, v = repeated("k", groups[0]), repeated("v", groups[1])
    if scaled:  # which the operator cannot do, so that values are no view, nor then are keys of fewer heads
        v = w("Mul", v, 0.5)
    scores = w("MatMul", "q", w("Transpose", k, perm=[0, 1, 3, 2]))
    graph = w.optimized(w("MatMul", w("Softmax", scores, axis=-1), v), **given)
    (node,) = (node for node in graph.nodes if node.op == "attention")
    assert node.attr("kv_heads") == (total if apart else total // groups[0])
    assert ("expand" in ops(graph)) is apart


def test_attention_of_matrices_and_of_heads_in_front() -> None:
    for shape in ((LENGTH, WIDTH), (HEADS, LENGTH, WIDTH)):
        w = Writer()
        scores = w("MatMul", "q", w("Transpose", "k", perm=[*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]))
        given = {name: random(*shape, seed=n) for n, name in enumerate("qkv")}
        graph = w.optimized(w("MatMul", w("Softmax", scores, axis=-1), "v"), **given)
        assert set(ops(graph)) == {"reshape", "attention"}


def test_scores_that_are_read_elsewhere_or_other_axes_are_no_attention() -> None:
    w = Writer()
    probabilities = w("Softmax", w("MatMul", "q", "k"), axis=-2)
    assert "attention" not in ops(
        w.optimized(w("MatMul", probabilities, "v"), q=random(4, 4), k=random(4, 4), v=random(4, 4))
    )
    w = Writer()
    probabilities = w("Softmax", w("MatMul", "q", "k"), axis=-1)
    result = w("Add", w("MatMul", probabilities, "v"), probabilities)
    assert "attention" not in ops(w.optimized(result, q=random(4, 4), k=random(4, 4), v=random(4, 4)))


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_projections_of_one_value_are_one_product(cross: bool, bias: bool) -> None:
    w = Writer()

    def projected(n: int, x: str) -> str:
        product = w("MatMul", x, random(HIDDEN, HIDDEN, seed=10 + n))
        return w("Add", random(HIDDEN, seed=20 + n), product) if bias else product

    source = "y" if cross else "x"
    q, k, v = (split(w, projected(n, x), (0, 2, 1, 3)) for n, x in enumerate(("x", source, source)))
    scores = w("Div", w("MatMul", q, w("Transpose", k, perm=[0, 1, 3, 2])), 2.0)
    result = joined(w, w("MatMul", w("Softmax", scores, axis=-1), v))
    given = {"x": random(BATCH, LENGTH, HIDDEN), "y": random(BATCH, LENGTH, HIDDEN, seed=1)}
    graph = w.optimized(result, **(given if cross else {"x": given["x"]}))
    assert Counter(ops(graph))["matmul"] == (2 if cross else 1)
    (node,) = (node for node in graph.nodes if node.op == "attention")
    assert node.attr("first") == ((0, 0, HEADS) if cross else (0, HEADS, 2 * HEADS))


def test_chains_of_thousands_of_nodes() -> None:
    """Neither recursion nor a walk to the far end from every node."""
    w = Writer()
    x = "q"
    for n in range(3000):
        x = w("Mul", x, 1.0 + 1e-4 * (-1) ** n)
    scores = w("MatMul", x, w("Transpose", "k", perm=[1, 0]))
    result = w("MatMul", w("Softmax", scores, axis=-1), "v")
    given = {name: random(4, 4, seed=n) for n, name in enumerate("qkv")}
    model = build(w.nodes, given, w.tensors, outputs=[result])
    graph = load_model(model.SerializeToString())
    for name in ("recognize-activations", "recognize-norms", "recognize-attention", "attention-views"):
        graph = PASSES[name](graph)
    assert "attention" in ops(graph)
