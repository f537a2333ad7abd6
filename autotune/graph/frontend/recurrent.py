"""RNN, GRU, LSTM: one matmul projects the inputs of all steps and directions, the recurrence is what is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.errors import ModelError
from autotune.graph.frontend.node import OnnxNode, converts
from autotune.ops.workload import AttrValue

# ONNX name → (ours, default alpha, default beta); None where the function has no such parameter
_ACTIVATIONS: Mapping[str, tuple[str, float | None, float | None]] = {
    "relu": ("relu", None, None),
    "tanh": ("tanh", None, None),
    "sigmoid": ("sigmoid", None, None),
    "affine": ("affine", 1.0, 0.0),
    "leakyrelu": ("leaky_relu", 0.01, None),
    "thresholdedrelu": ("thresholded_relu", 1.0, None),
    "scaledtanh": ("scaled_tanh", 1.0, 1.0),
    "hardsigmoid": ("hard_sigmoid", 0.2, 0.5),
    "elu": ("elu", 1.0, None),
    "softsign": ("softsign", None, None),
    "softplus": ("softplus", None, None),
}


@converts("RNN")
def rnn(node: OnnxNode) -> Sequence[str]:
    layer = _Layer.of(node, gates=1)
    return layer.emit("rnn", ("Tanh",), layer.bias(), results=2)


@converts("GRU")
def gru(node: OnnxNode) -> Sequence[str]:
    """The bias of the hidden gate's recurrent product stays inside where the reset gate multiplies it."""
    layer = _Layer.of(node, gates=3)
    linear = node.attr_flag("linear_before_reset")
    extras = {}
    bias = layer.bias()
    if linear and node.given(3):
        d, hidden = layer.directions, layer.hidden
        parts = node.reshaped(node.input(3), (d, 6, hidden))
        added = node.emit("add", layer.part(parts, 0, 2), layer.part(parts, 3, 2))
        bias = node.reshaped(node.emit("concat", added, layer.part(parts, 2, 1), axis=1), (d * 3 * hidden,))
        extras["recurrent_bias"] = node.reshaped(layer.part(parts, 5, 1), (d, hidden))
    return layer.emit("gru", ("Sigmoid", "Tanh"), bias, results=2, extras=extras, linear_before_reset=linear)


@converts("LSTM")
def lstm(node: OnnxNode) -> Sequence[str]:
    return lstm_layer(node)


def lstm_layer(node: OnnxNode, products: str = "") -> Sequence[str]:
    """An LSTM, for which somebody may have multiplied inputs and weights already (see `_Layer.products`)."""
    layer = replace(_Layer.of(node, gates=4), products=products)
    extras = {}
    if node.given(6) and node.rank(6) == 3 and node.shape(6)[2] != layer.hidden:
        raise ModelError(
            f"{node.label}: cells of {node.shape(6)[2]} with a hidden state of {layer.hidden} are an LSTM with"
            " projection (proj_size), which ONNX's is not, and the exporter lost it; export it as separate operators"
        )
    if layer.starts(6):
        extras["initial_c"] = layer.batch_inside(node.input(6))
    if node.given(7):
        extras["peephole"] = node.input(7)
    coupled = node.attr_flag("input_forget")
    return layer.emit("lstm", ("Sigmoid", "Tanh", "Tanh"), layer.bias(), results=3, extras=extras, input_forget=coupled)


@dataclass(frozen=True, slots=True)
class _Layer:
    """A recurrent node.

    Attributes:
        batch_first: its attribute layout.
        products: (steps·batch, directions·gates·hidden), inputs times their weights; "" while they are not.
    """

    node: OnnxNode
    gates: int
    direction: str
    directions: int
    hidden: int
    batch_first: bool
    products: str = ""

    @staticmethod
    def of(node: OnnxNode, gates: int) -> _Layer:
        """Reads and checks what all three operators share."""
        for position in range(3):
            if node.rank(position) != 3:
                raise ModelError(f"{node.label}: input {position} of shape {node.shape(position)} must be 3-D")
        direction = node.attr_string("direction", "forward").lower()
        directions = 2 if direction == "bidirectional" else 1
        hidden = node.shape(2)[2]
        wanted: dict[int, tuple[int, ...]] = {
            1: (directions, gates * hidden, node.shape()[2]),
            2: (directions, gates * hidden, hidden),
        }
        wanted |= {3: (directions, 2 * gates * hidden)} if node.given(3) else {}
        for position, shape in wanted.items():
            if node.shape(position) != shape:
                raise ModelError(f"{node.label}: input {position} has shape {node.shape(position)}, needs {shape}")
        if node.attr_int("hidden_size", hidden) != hidden:
            raise ModelError(f"{node.label}: hidden_size={node.attr_int('hidden_size', 0)}, the weights have {hidden}")
        node.attr_int("output_sequence", 0)  # of old opsets: whether the first result exists, which its name says
        return _Layer(node, gates, direction, directions, hidden, node.attr_flag("layout"))

    def bias(self) -> str:
        """Both biases of every gate, added: (directions·gates·hidden), or "" without."""
        node, each = self.node, self.gates * self.hidden
        if not node.given(3):
            return ""
        parts = node.reshaped(node.input(3), (self.directions, 2, each))
        return node.reshaped(
            node.emit("add", self.part(parts, 0, 1), self.part(parts, 1, 1)), (self.directions * each,)
        )

    def part(self, name: str, first: int, count: int) -> str:
        """Some entries along the middle of three dimensions."""
        d, _, n = self.node.builder.values[name].shape
        return self.node.emit("slice", name, begin=(0, first, 0), size=(d, count, n), step=(1, 1, 1))

    def starts(self, position: int) -> bool:
        """Whether an initial state is given that is not the usual one, zero."""
        node = self.node
        known = node.given(position) and node.is_constant(position)
        shape = (self.directions, node.shape()[0 if self.batch_first else 1], self.hidden)
        usual = known and node.shape(position) == tuple(np.take(shape, (1, 0, 2) if self.batch_first else (0, 1, 2)))
        return node.given(position) and not (usual and not np.any(node.constant(position, "initial state")))

    def batch_inside(self, name: str) -> str:
        """A tensor whose batch comes first where the layout says so, with it second."""
        return self.node.emit("transpose", name, perm=(1, 0, 2)) if self.batch_first else name

    def emit(
        self, op: str, functions: tuple[str, ...], bias: str, results: int, extras: Mapping[str, str] | None = None,
        **attrs: AttrValue,
    ) -> Sequence[str]:  # fmt: skip
        """The projection and the recurrence; its results in the layout of the ONNX node."""
        node = self.node
        own = dict(extras or {})
        if node.given(4) and not self._all_whole():
            own["lengths"] = node.input(4)
            steps = node.shape()[1 if self.batch_first else 0]
            node.must_lie(own["lengths"], (0,), (steps + 1,), "the length of a sequence")
        if self.starts(5):
            own["initial_h"] = self.batch_inside(node.input(5))
        order = ("initial_h", "initial_c", "peephole", "lengths", "recurrent_bias")
        names = tuple(name for name in order if name in own)
        found = node.emit_results(
            results, op, self._projected(bias), node.input(2), *(own[name] for name in names),
            extras=",".join(names), direction=self.direction, clip=node.attr_float("clip", 0.0),
            **self._functions(functions), **attrs,
        )  # fmt: skip
        if not self.batch_first:
            return found
        perms = ((2, 0, 1, 3), (1, 0, 2), (1, 0, 2))
        return [name and node.emit("transpose", name, perm=perm) for name, perm in zip(found, perms, strict=False)]

    def _projected(self, bias: str) -> str:
        """(steps, batch, directions·gates·hidden)"""
        node = self.node
        x = self.batch_inside(node.input(0))
        steps, batch, _ = node.builder.values[x].shape
        result = self.products or self._multiplied(x)
        if bias:
            result = node.emit("add", result, bias)
        return node.reshaped(result, (steps, batch, self.directions * self.gates * self.hidden))

    def _multiplied(self, x: str) -> str:
        """(steps·batch, directions·gates·hidden): the inputs of all steps times their weights."""
        node = self.node
        steps, batch, features = node.builder.values[x].shape
        columns = self.directions * self.gates * self.hidden
        constant = node.is_constant(1)
        if constant:
            weight = node.new_constant(node.constant(1, "weight").reshape(columns, features).T)
        else:
            weight = node.reshaped(node.input(1), (columns, features))
        rows = node.reshaped(x, (steps * batch, features))
        return node.emit("matmul", rows, weight, trans_a=False, trans_b=not constant)

    def _all_whole(self) -> bool:
        """Every sequence is as long as the data."""
        node = self.node
        steps = node.shape()[1 if self.batch_first else 0]
        return node.is_constant(4) and all(n == steps for n in node.constant_ints(4, "sequence_lens"))

    def _functions(self, defaults: tuple[str, ...]) -> dict[str, AttrValue]:
        """Activations with their parameters, which functions that have them take from the lists in turn."""
        node = self.node
        names = node.attr_strings("activations") or defaults * self.directions
        if len(names) != len(defaults) * self.directions:
            raise ModelError(
                f"{node.label}: {len(defaults) * self.directions} activations are needed, got {len(names)}"
            )
        lists = [list(node.attr_floats(name) or ()) for name in ("activation_alpha", "activation_beta")]
        words: list[str] = []
        parameters: tuple[list[float], list[float]] = ([], [])
        for name in names:
            if name.lower() not in _ACTIVATIONS:
                raise ModelError(f"{node.label}: unknown activation '{name}'")
            word, *fallbacks = _ACTIVATIONS[name.lower()]
            words.append(word)
            for given, fallback, values in zip(lists, fallbacks, parameters, strict=True):
                values.append(0.0 if fallback is None else given.pop(0) if given else fallback)
        return {"activations": ",".join(words), "alphas": tuple(parameters[0]), "betas": tuple(parameters[1])}
