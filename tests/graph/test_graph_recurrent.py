"""RNN, GRU and LSTM against a plain NumPy loop over steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper

from autotune.errors import ModelError
from autotune.graph import load_model, optimize, partition
from tests.graph.graph_models import build, check, random

Array = NDArray[Any]
STEPS, BATCH, FEATURES, HIDDEN = 4, 3, 5, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS: dict[str, Callable[[Array, float, float], Array]] = {
    "Relu": lambda x, a, b: np.maximum(x, 0),
    "Tanh": lambda x, a, b: np.tanh(x),
    "Sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: np.where(x < 0, a * x, x),
    "ThresholdedRelu": lambda x, a, b: np.where(x > a, x, 0),
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "Elu": lambda x, a, b: np.where(x < 0, a * (np.exp(x) - 1), x),
    "Softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "Softplus": lambda x, a, b: np.log1p(np.exp(x)),
}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
Function = Callable[[Array], Array]


def one_direction(
    op: str, x: Array, w: Array, r: Array, b: Array, h: Array, c: Array, p: Array, f: Sequence[Function],
    attrs: Mapping[str, Any], lengths: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Y (steps, batch, hidden), Y_h, Y_c of float64 arrays; x is in the order of the steps."""
    n, limit = r.shape[1], attrs.get("clip", np.inf)
    wb, rb = np.split(b, 2)
    history = []
    for t, row in enumerate(x):

        def z(g: int, row: Array = row, old: Array = h) -> Array:
            s = slice(g * n, (g + 1) * n)
            return np.asarray(row @ w[s].T + old @ r[s].T + wb[s] + rb[s])

        def act(which: int, value: Array) -> Array:
            return f[which](np.clip(value, -limit, limit))

        new_c = c
        if op == "RNN":
            new = act(0, z(0))
        elif op == "GRU":
            update, reset, s = act(0, z(0)), act(0, z(1)), slice(2 * n, None)
            if attrs.get("linear_before_reset"):
                inner = row @ w[s].T + wb[s] + reset * (h @ r[s].T + rb[s])
            else:
                inner = row @ w[s].T + wb[s] + (reset * h) @ r[s].T + rb[s]
            new = (1 - update) * act(1, inner) + update * h
        else:
            pi, po, pf = np.split(p, 3)
            enters = act(0, z(0) + pi * c)
            forgets = 1 - enters if attrs.get("input_forget") else act(0, z(2) + pf * c)
            new_c = forgets * c + enters * act(1, z(3))
            new = act(0, z(1) + po * new_c) * f[2](new_c)
        alive = (t < lengths)[:, None]
        h, c = np.where(alive, new, h), np.where(alive, new_c, c)
        history.append(np.where(alive, new, 0))
    return np.array(history), h, c


def expected(op: str, arrays: Mapping[str, Array], attrs: Mapping[str, Any]) -> list[Array]:
    """The results of the node in layout 0."""
    a = {name: value.astype(np.float64) for name, value in arrays.items()}
    directions = a["W"].shape[0]
    functions = attrs.get("activations") or DEFAULTS[op] * directions
    alphas, betas = list(attrs.get("activation_alpha", [])), list(attrs.get("activation_beta", []))
    bound = []
    for name in functions:
        alpha = alphas.pop(0) if alphas and name in _WITH_ALPHA else _WITH_ALPHA.get(name, 0.0)
        beta = betas.pop(0) if betas and name in _WITH_BETA else _WITH_BETA.get(name, 0.0)
        bound.append(lambda x, fn=FUNCTIONS[name], alpha=alpha, beta=beta: fn(x, alpha, beta))
    steps, batch = a["X"].shape[:2]
    lengths = a.get("lengths", np.full(batch, steps)).astype(int)
    n, each = a["R"].shape[2], len(DEFAULTS[op])
    results = []
    for d in range(directions):
        backwards = attrs.get("direction") == "reverse" or d == 1
        x = a["X"]
        turned = np.arange(steps)[:, None] + np.zeros((1, batch), int)
        if backwards:
            turned = np.where(turned < lengths, lengths - 1 - turned, turned)
        x = np.take_along_axis(x, turned[:, :, None], 0)
        zeros = np.zeros((batch, n))
        y, h, c = one_direction(
            op, x, a["W"][d], a["R"][d], a.get("B", np.zeros((2, 2 * GATES[op] * n)))[d],
            a["h"][d] if "h" in a else zeros, a["c"][d] if "c" in a else zeros,
            a["P"][d] if "P" in a else np.zeros(3 * n), bound[d * each : (d + 1) * each], attrs, lengths,
        )  # fmt: skip
        results.append((np.take_along_axis(y, turned[:, :, None], 0), h, c))
    out = [np.stack([r[0] for r in results], 1), np.stack([r[1] for r in results]), np.stack([r[2] for r in results])]
    return [x.astype(np.float32) for x in out[: 3 if op == "LSTM" else 2]]


_WITH_ALPHA = {"Affine": 1.0, "LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "ScaledTanh": 1.0, "HardSigmoid": 0.2,
               "Elu": 1.0}  # fmt: skip
_WITH_BETA = {"Affine": 0.0, "ScaledTanh": 1.0, "HardSigmoid": 0.5}
INPUTS = {"RNN": "X W R B lengths h", "GRU": "X W R B lengths h", "LSTM": "X W R B lengths h c P"}


def operands(op: str, directions: int, given: str) -> dict[str, Array]:
    """X, W, R and those that are given by letter: B, l(engths), h, c, P."""
    g, n = GATES[op], HIDDEN
    shapes = {"X": (STEPS, BATCH, FEATURES), "W": (directions, g * n, FEATURES), "R": (directions, g * n, n),
              "B": (directions, 2 * g * n), "h": (directions, BATCH, n), "c": (directions, BATCH, n),
              "P": (directions, 3 * n)}  # fmt: skip
    found = {
        name: random(*shape, seed=seed, low=-1, high=1)
        for seed, (name, shape) in enumerate(shapes.items())
        if name in "XWR" + given
    }
    if "l" in given:
        found["lengths"] = np.array([2, STEPS, 1], np.int32)
    return found


def compare(op: str, given: str = "", constant: bool = True, opset: int = 14, **attrs: Any) -> None:
    directions = 2 if attrs.get("direction") == "bidirectional" else 1
    arrays = operands(op, directions, given)
    results = expected(op, arrays, attrs)
    arrays_in = dict(arrays)
    if attrs.get("layout"):
        arrays_in |= {name: np.ascontiguousarray(np.swapaxes(arrays[name], 0, 1)) for name in "Xhc" if name in arrays}
        results = [np.transpose(r, (2, 0, 1, 3) if r.ndim == 4 else (1, 0, 2)) for r in results]
    names = [name if name in arrays else "" for name in INPUTS[op].split()]
    while not names[-1]:
        names.pop()
    outputs = ["Y", "Y_h", "Y_c"][: len(results)]
    node = helper.make_node(op, names, outputs, hidden_size=HIDDEN, **attrs)
    feeds = {name: a for name, a in arrays_in.items() if not constant or name not in ("W", "R", "B", "P")}
    tensors = {name: a for name, a in arrays_in.items() if name not in feeds}
    check(build(node, feeds, tensors, outputs, opset), feeds, results)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("op", "given"), [(op, g) for op in GATES for g in ("", "Bh", "Blh")])
def test_directions_and_lengths(op: str, given: str, direction: str) -> None:
    compare(op, given + ("cP" if op == "LSTM" and given else ""), direction=direction)


@pytest.mark.parametrize("op", list(GATES))
def test_batch_first_and_weights_known_at_run_time(op: str) -> None:
    compare(op, "Bhc" if op == "LSTM" else "Bh", constant=False, layout=1, direction="bidirectional")


@pytest.mark.parametrize(
    ("given", "direction"), list(itertools.product(["", "B", "Blh"], ["forward", "bidirectional"]))
)
def test_gru_linear_before_reset(given: str, direction: str) -> None:
    compare("GRU", given, direction=direction, linear_before_reset=1)


@pytest.mark.parametrize("attrs", [{"clip": 0.3}, {"input_forget": 1}, {"clip": 0.5, "input_forget": 1}])
def test_lstm_attributes(attrs: dict[str, Any]) -> None:
    compare("LSTM", "BcP", **attrs)


def test_clip_of_the_others() -> None:
    compare("GRU", "B", clip=0.3)
    compare("RNN", "B", clip=0.3)


def test_every_activation() -> None:
    names = list(FUNCTIONS)
    for first in range(0, len(names), 2):
        compare("RNN", "B", activations=[names[first], names[(first + 1) % len(names)]], direction="bidirectional")


def test_parameters_of_activations_are_taken_in_turn() -> None:
    compare("LSTM", "B", activations=["HardSigmoid", "Tanh", "ScaledTanh"], activation_alpha=[0.3, 0.7],
            activation_beta=[0.4, 1.2])  # fmt: skip
    compare("GRU", "B", activations=["HardSigmoid", "LeakyRelu"] * 2, activation_alpha=[0.3, 0.2, 0.25],
            activation_beta=[0.4], direction="bidirectional")  # fmt: skip


@pytest.mark.parametrize("opset", [1, 7])
def test_old_opsets(opset: int) -> None:
    for op in GATES:
        old: dict[str, Any] = {"output_sequence": 1} if opset == 1 else {}
        compare(op, "B", opset=opset, **old)


def test_results_share_one_kernel() -> None:
    arrays = operands("LSTM", 1, "B")
    node = helper.make_node("LSTM", list("XWRB"), ["Y", "Y_h", "Y_c"], hidden_size=HIDDEN)
    model = build(node, {"X": arrays.pop("X")}, arrays, ["Y", "Y_h", "Y_c"])
    groups = [g for g in partition(optimize(load_model(model.SerializeToString()))) if not g.is_view]
    assert [[n.op for n in g.workload.nodes] for g in groups] == [["matmul", "add"], ["lstm"] * 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"W": (1, 5, FEATURES)}, "input 1 has shape"),
        ({"R": (1, 4 * HIDDEN)}, "must be 3-D"),
        ({"B": (1, 7)}, "input 3 has shape"),
        ({"h": (1, BATCH, 2)}, "initial_h has shape"),
        ({"hidden_size": 7}, "hidden_size=7"),
        ({"activations": ["Tanh"]}, "3 activations are needed"),
        ({"activations": ["Tanh", "Tanh", "Gelu"]}, "unknown activation 'Gelu'"),
        ({"direction": "sideways"}, "direction=sideways"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_refused(change: dict[str, Any], message: str) -> None:
    arrays = operands("LSTM", 1, "Bh")
    arrays |= {name: random(*shape) for name, shape in change.items() if name in arrays}
    attrs = {"hidden_size": HIDDEN} | {name: value for name, value in change.items() if name not in arrays}
    node = helper.make_node("LSTM", ["X", "W", "R", "B", "", "h"], ["Y"], **attrs)
    with pytest.raises(ModelError, match=message):
        load_model(build(node, {"X": arrays.pop("X")}, arrays, ["Y"], 14).SerializeToString())


@pytest.mark.parametrize("layout", [0, 1])
def test_initial_states_of_zero_are_none(layout: int) -> None:
    arrays = operands("LSTM", 1, "")
    zeros = np.zeros((BATCH, 1, HIDDEN) if layout else (1, BATCH, HIDDEN), np.float32)
    x = np.ascontiguousarray(np.swapaxes(arrays["X"], 0, 1)) if layout else arrays["X"]
    node = helper.make_node("LSTM", ["X", "W", "R", "", "", "h", "c"], ["Y"], hidden_size=HIDDEN, layout=layout)
    model = build(node, {"X": x}, {"W": arrays["W"], "R": arrays["R"], "h": zeros, "c": zeros}, ["Y"], 14)
    (cell,) = [n for n in load_model(model.SerializeToString()).nodes if n.op == "lstm"]
    assert len(cell.inputs) == 2


def test_an_lstm_with_projection_is_named() -> None:
    """torch's exporter writes cells wider than the hidden state and leaves the projection between them out."""
    feeds = {"X": random(5, 2, 3)}
    tensors = {"W": random(1, 16, 3), "R": random(1, 16, 4), "h": random(1, 2, 4), "c": random(1, 2, 6)}
    node = helper.make_node("LSTM", ["X", "W", "R", "", "", "h", "c"], ["y"], name="cell", hidden_size=4)
    with pytest.raises(ModelError, match=r"'cell' .*cells of 6 with a hidden state of 4 are an LSTM with projection"):
        load_model(build(node, feeds, tensors).SerializeToString())
