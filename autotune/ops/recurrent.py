"""Recurrent cells: RNN, GRU and LSTM behind the projection of their inputs.

The product of all inputs with the input weights, and the biases that are just added, come ready made: an ordinary
matmul of all steps at once. What is left depends on the step before: the product with the recurrent weights, the
gates, the states. Stages have the axes t (step), d (direction), b (batch), j (hidden unit).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.ops.checks import flag, floating, integer, number, require, word
from autotune.ops.gates import ACTIVATIONS
from autotune.ops.precision import sum_dtype
from autotune.ops.registry import operator
from autotune.tensor.expr import Expr, Read, binary, cast, const, maximum, minimum, read, select
from autotune.tensor.recurrences import recurrence, state
from autotune.tensor.stage import Tensor, compute, compute_many, reduce_axis, sum_

DIRECTIONS = ("forward", "reverse", "bidirectional")
OPERANDS = "data weight e0? e1? e2? e3? e4?"


@operator("rnn", operands=OPERANDS, weights="weight", extras="", direction="forward", activations="tanh",
          alphas=(0.0,), betas=(0.0,), clip=0.0, result=0)  # fmt: skip
def rnn(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """h = f(x + R h); see `lstm` for operands and attributes."""
    cell = _Cell("rnn", inputs, attrs, gates=1, functions=1, extras=("initial_h", "lengths"), results=2)
    h, before = cell.state("h")
    fed = cell.product("fed", before, 0, 1)
    new = compute(
        cell.shape,
        lambda t, d, b, j: cell.kept(cell.f(0, cell.x(t, d, b, 0, j) + fed[t, d, b, 0, j], d), before, t, d, b, j),
        "h",
    )
    (history,) = recurrence([h], [new], name="rnn")
    return cell.result(history)


@operator("gru", operands=OPERANDS, weights="weight", extras="", direction="forward", activations="sigmoid,tanh",
          alphas=(0.0, 0.0), betas=(0.0, 0.0), clip=0.0, linear_before_reset=False, result=0)  # fmt: skip
def gru(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Gates z, r, h: h' = (1 - z) * g(x + R (r * h)) + z * h, or g(x + r * (R h + bias)) with `linear_before_reset`.

    The extra operand recurrent_bias (directions, hidden) is that bias; see `lstm` for the rest.
    """
    extras = ("initial_h", "lengths", "recurrent_bias")
    cell = _Cell("gru", inputs, attrs, gates=3, functions=2, extras=extras, results=2)
    h, before = cell.state("h")
    linear = flag("gru", attrs, "linear_before_reset")
    bias = cell.extra.get("recurrent_bias")
    fed = cell.product("fed", before, 0, 3 if linear else 1)

    def gate(t: Expr, d: Expr, b: Expr, g: int, j: Expr, product: Read) -> Expr:
        return cell.f(0, cell.x(t, d, b, g, j) + product, d)

    if linear:

        def hidden(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
            inner: Expr = fed[t, d, b, 2, j]
            inner = inner if bias is None else inner + cast(cell.dtype, bias[d, j])
            return cell.x(t, d, b, 2, j) + gate(t, d, b, 1, j, fed[t, d, b, 1, j]) * inner

    else:
        own = cell.product("fed_reset", before, 1, 1)
        reset = compute(
            cell.shape,
            lambda t, d, b, j: gate(t, d, b, 1, j, own[t, d, b, 0, j]) * before[t, d, b, j],
            "reset",
        )
        last = cell.product("fed_hidden", reset, 2, 1)

        def hidden(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
            inner = cell.x(t, d, b, 2, j) + last[t, d, b, 0, j]
            return inner if bias is None else inner + cast(cell.dtype, bias[d, j])

    def step(t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        total = cell.x(t, d, b, 0, j) + fed[t, d, b, 0, j]
        new = cell.f(1, hidden(t, d, b, j), d)
        mixed = cell.complement(0, total, d) * new + cell.f(0, total, d) * before[t, d, b, j]
        return cell.kept(mixed, before, t, d, b, j)

    (history,) = recurrence([h], [compute(cell.shape, step, "h")], name="gru")
    return cell.result(history)


@operator("lstm", operands=OPERANDS, weights="weight", extras="", direction="forward", activations="sigmoid,tanh,tanh",
          alphas=(0.0, 0.0, 0.0), betas=(0.0, 0.0, 0.0), clip=0.0, input_forget=False, result=0)  # fmt: skip
def lstm(inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Gates i, o, f, c: c' = f * c + i * g(...), h' = o * h(c'), after ONNX.

    Operands: data (steps, batch, directions·4·hidden), the projected inputs with biases; weight (directions, 4·hidden,
    hidden); then those that the word list `extras` names, in its order: initial_h, initial_c (directions, batch,
    hidden), peephole (directions, 3·hidden), lengths (batch), the steps of each sequence that count.
    `activations`, `alphas`, `betas` have an entry per function f, g, h, direction by direction; `clip` above 0 bounds
    what goes into f and g. `result`: 0 all states (steps, directions, batch, hidden), 1 the last one, 2 the last c.
    """
    extras = ("initial_h", "initial_c", "peephole", "lengths")
    cell = _Cell("lstm", inputs, attrs, gates=4, functions=3, extras=extras, results=3)
    h, before = cell.state("h")
    c, _ = cell.state("c", copied=False)
    coupled = flag("lstm", attrs, "input_forget")
    fed = cell.product("fed", before, 0, 4)

    def peep(which: int, value: Expr, d: Expr, j: Expr) -> Expr:
        p = cell.extra.get("peephole")
        return value if p is None else value * cast(cell.dtype, p[d, j + which * cell.hidden])

    def step(t: Expr, d: Expr, b: Expr, j: Expr) -> tuple[Expr, Expr]:
        old = cell.before(c, "initial_c", t, d, b, j)

        def gate(g: int, function: int, peephole: int | None = None, seen: Expr = old) -> Expr:
            total = cell.x(t, d, b, g, j) + fed[t, d, b, g, j]
            if peephole is not None and "peephole" in cell.extra:
                total = total + peep(peephole, seen, d, j)
            return cell.f(function, total, d)

        enters = gate(0, 0, 0)
        forgets = 1.0 - enters if coupled else gate(2, 0, 2)
        new = forgets * old + enters * gate(3, 1)
        shown = gate(1, 0, 1, new) * cell.f(2, new, d, clipped=False)
        return cell.kept(shown, before, t, d, b, j), cell.frozen(new, old, t, b)

    histories = recurrence([h, c], compute_many(cell.shape, step, ("h", "c")), name="lstm")
    return cell.result(*histories)


class _Cell:
    """What the cells have in common: operands, shapes, activations, and the products with recurrent weights."""

    def __init__(
        self, op: str, inputs: Sequence[Tensor], attrs: Mapping[str, Any], gates: int, functions: int,
        extras: tuple[str, ...], results: int,
    ) -> None:  # fmt: skip
        self.op, self.data, self.weight = op, inputs[0], inputs[1]
        given = tuple(str(attrs["extras"]).split(",")) if attrs["extras"] else ()
        require(
            given == tuple(e for e in extras if e in given), f"{op}: extras={given} must be from {extras}, in order"
        )
        require(len(inputs) == 2 + len(given), f"{op}: {len(inputs)} operands for extras={given}")
        self.extra = dict(zip(given, inputs[2:], strict=True))
        self.direction = word(op, attrs, "direction", DIRECTIONS)
        self.result_number = integer(op, attrs, "result", 0)
        require(self.result_number < results, f"{op}: result={self.result_number} must be below {results}")
        self.clip = number(op, attrs, "clip")
        directions = 2 if self.direction == "bidirectional" else 1
        require(len(self.data.shape) == 3, f"{op}: data of shape {self.data.shape} must be 3-D")
        require(len(self.weight.shape) == 3, f"{op}: weight of shape {self.weight.shape} must be 3-D")
        self.steps, self.batch, self.hidden = *self.data.shape[:2], self.weight.shape[2]
        self.shape = (self.steps, directions, self.batch, self.hidden)
        self.dtype = sum_dtype(floating(op, self.data))
        self._check(gates, directions)
        names = str(attrs["activations"]).split(",")
        count = functions * directions
        fits = len(names) == len(attrs["alphas"]) == len(attrs["betas"]) == count
        require(fits, f"{op}: {count} activations, alphas and betas are needed")
        unknown = sorted(set(names) - set(ACTIVATIONS))
        require(not unknown, f"{op}: unknown activation {unknown}; known: {', '.join(ACTIVATIONS)}")
        table = list(zip(names, attrs["alphas"], attrs["betas"], strict=True))
        self.functions = [table[d * functions : (d + 1) * functions] for d in range(directions)]

    def _check(self, gates: int, directions: int) -> None:
        wanted = {
            "data": (*self.data.shape[:2], directions * gates * self.hidden),
            "weight": (directions, gates * self.hidden, self.hidden),
            "initial_h": (directions, self.batch, self.hidden),
            "initial_c": (directions, self.batch, self.hidden),
            "peephole": (directions, 3 * self.hidden),
            "recurrent_bias": (directions, self.hidden),
            "lengths": (self.batch,),
        }
        for name, t in {"data": self.data, "weight": self.weight, **self.extra}.items():
            require(t.shape == wanted[name], f"{self.op}: {name} has shape {t.shape}, needs {wanted[name]}")
            same = t.dtype.is_int if name == "lengths" else t.dtype is self.data.dtype
            require(same, f"{self.op}: {name} is {t.dtype}, the data {self.data.dtype}")
        self.gates = gates

    def state(self, name: str, copied: bool = True) -> tuple[Tensor, Tensor]:
        """A state, and the stage that holds it as it was before each step."""
        own = state(self.shape, self.dtype, f"{self.op}_{name}")
        if not copied:
            return own, own
        return own, compute(
            self.shape, lambda t, d, b, j: self.before(own, f"initial_{name}", t, d, b, j), f"{name}_before"
        )

    def before(self, own: Tensor, initial: str, t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        """The state before step t."""
        last = read(own, (t - 1, d, b, j), when=t >= 1, otherwise=0.0)
        first = self.extra.get(initial)
        return last if first is None else select(t >= 1, last, cast(self.dtype, first[d, b, j]))

    def product(self, name: str, vector: Tensor, first: int, gates: int) -> Tensor:
        """The recurrent weights of some gates times a state: axes t, d, b, g, j."""
        weight, hidden = self.weight, self.hidden
        packed = compute(
            (vector.shape[1], gates, hidden, hidden),
            lambda d, g, j, k: weight[d, (g + first) * hidden + j, k],
            f"{name}_weight",
        )
        k = reduce_axis(hidden, "k")
        return compute(
            (*self.shape[:3], gates, hidden),
            lambda t, d, b, g, j: sum_(vector[t, d, b, k] * cast(self.dtype, packed[d, g, j, k]), k),
            name,
        )

    def x(self, t: Expr, d: Expr, b: Expr, g: int, j: Expr) -> Expr:
        """The projected input of a gate at step t."""
        column = d * (self.gates * self.hidden) + j + g * self.hidden

        def at(position: Expr) -> Expr:
            return cast(self.dtype, self.data[position, b, column])

        if self.direction == "forward":
            return at(t)
        if self.direction == "reverse":
            return at(self.mirrored(t, b))
        return select(binary("eq", d, const(0, d.dtype)), at(t), at(self.mirrored(t, b)))

    def mirrored(self, t: Expr, b: Expr) -> Expr:
        """The position that the reverse direction handles at step t, and the other way round."""
        if "lengths" not in self.extra:
            return self.steps - 1 - t
        return maximum(minimum(self.length(b), self.steps) - 1 - t, 0)

    def length(self, b: Expr) -> Expr:
        return cast("i64", self.extra["lengths"][b])

    def f(self, function: int, x: Expr, d: Expr, clipped: bool = True) -> Expr:
        """An activation, for each direction its own."""
        if self.clip > 0 and clipped:
            x = maximum(minimum(x, self.clip), -self.clip)
        values = []
        for table in dict.fromkeys(functions[function] for functions in self.functions):
            name, alpha, beta = table
            values.append(ACTIVATIONS[name](x, float(alpha), float(beta)))
        return values[0] if len(values) == 1 else select(binary("eq", d, const(0, d.dtype)), values[0], values[1])

    def complement(self, function: int, x: Expr, d: Expr) -> Expr:
        """1 - f(x); of a sigmoid near 1 that leaves no digits, so it is sigmoid(-x)."""
        if all(functions[function][0] == "sigmoid" for functions in self.functions):
            return self.f(function, -x, d)
        return 1.0 - self.f(function, x, d)

    def frozen(self, new: Expr, old: Expr, t: Expr, b: Expr) -> Expr:
        """The new state while the sequence goes on, the old one after it."""
        return select(t < self.length(b), new, old) if "lengths" in self.extra else new

    def kept(self, new: Expr, before: Tensor, t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        return self.frozen(new, before[t, d, b, j], t, b)

    def result(self, *histories: Tensor) -> Tensor:
        """The result that is asked for, from the states after every step."""
        source = self.data.dtype
        if self.result_number:
            name = "initial_h" if self.result_number == 1 else "initial_c"
            last, first = histories[self.result_number - 1], self.extra.get(name)
            if self.steps == 0:
                return compute(
                    self.shape[1:],
                    lambda d, b, j: const(0.0, source) if first is None else first[d, b, j] + 0.0,
                    "last",
                )
            return compute(self.shape[1:], lambda d, b, j: cast(source, last[self.steps - 1, d, b, j]), "last")
        (history, *_) = histories
        if self.direction == "forward" and not self.extra.get("lengths") and history.dtype is source:
            return history
        return compute(self.shape, lambda t, d, b, j: cast(source, self._shown(history, t, d, b, j)), "states")

    def _shown(self, history: Tensor, t: Expr, d: Expr, b: Expr, j: Expr) -> Expr:
        """The state at position t: reversed sequences got there at another step; beyond its length there is zero."""

        def at(step: Expr) -> Expr:
            return history[step, d, b, j]

        value: Expr = at(t)
        if self.direction == "reverse":
            value = at(self.mirrored(t, b))
        elif self.direction == "bidirectional":
            value = select(binary("eq", d, const(0, d.dtype)), value, at(self.mirrored(t, b)))
        return select(t < self.length(b), value, 0.0) if "lengths" in self.extra else value
