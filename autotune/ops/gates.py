"""The functions that recurrent cells apply to their gates, by name."""

from __future__ import annotations

from collections.abc import Callable

from autotune.tensor.expr import Expr, maximum, minimum, select, unary

Activation = Callable[[Expr, float, float], Expr]
"""(x, alpha, beta) -> value"""


ACTIVATIONS: dict[str, Activation] = {
    "relu": lambda x, a, b: maximum(x, 0.0),
    "tanh": lambda x, a, b: unary("tanh", x),
    "sigmoid": lambda x, a, b: unary("sigmoid", x),
    "affine": lambda x, a, b: x * a + b,
    "leaky_relu": lambda x, a, b: select(x < 0.0, x * a, x),
    "thresholded_relu": lambda x, a, b: select(x > a, x, 0.0),
    "scaled_tanh": lambda x, a, b: unary("tanh", x * b) * a,
    "hard_sigmoid": lambda x, a, b: maximum(minimum(x * a + b, 1.0), 0.0),
    "elu": lambda x, a, b: select(x < 0.0, (unary("exp", x) - 1.0) * a, x),
    "softsign": lambda x, a, b: x / (1.0 + unary("abs", x)),
    "softplus": lambda x, a, b: maximum(x, 0.0) + unary("log", 1.0 + unary("exp", -unary("abs", x))),
}
