"""Activations written in primitive nodes become one: GELU by erf and by tanh, sigmoid, SiLU, Mish, hard variants.

requires: constants folded and common subexpressions merged, so that both uses of x are one value.
ensures: none of these is left in the forms that exporters write.
"""

from __future__ import annotations

import math

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.match import Product, affine, bounded, made_by, near, number, product
from autotune.graph.passes.merge_clips import BOUNDS
from autotune.graph.passes.sweep import Sweep, rewrite
from autotune.ops.workload import AttrValue
from autotune.tensor import DType

Found = tuple[str, str, dict[str, AttrValue]]
"""(x, operator, attributes)"""


def recognize_activations(graph: Graph) -> Graph:
    """`x * (erf(x / sqrt 2) + 1) * 0.5` --> `gelu(x)`, `x * sigmoid(x)` --> `swish(x)`, ..."""
    return rewrite(graph, _recognized)


def _recognized(sweep: Sweep, node: Node) -> str | None:
    found = _activation(sweep, node)
    if found is None:
        return None
    x, op, attrs = found
    return sweep.emit(node, op, (x,), **attrs)


def _activation(sweep: Sweep, node: Node) -> Found | None:
    if not DType(node.output.dtype).is_float:
        return None
    if node.op in ("div", "reciprocal"):
        found = _sigmoid(sweep, node)
        if found is not None:
            return found
    if node.op in ("mul", "div", *BOUNDS):
        found = _hard_sigmoid(sweep, node)
        if found is not None:
            return found
    return _gated(sweep, node) if node.op in ("mul", "div") else None


def _sigmoid(sweep: Sweep, node: Node) -> Found | None:
    """1 / (1 + exp(-x)), or x over the same."""
    above, below = (None, node.inputs[0]) if node.op == "reciprocal" else node.inputs
    scale, value, shift = affine(sweep, below)
    power = made_by(sweep, value, "exp")
    inner = made_by(sweep, power.inputs[0], "neg") if power is not None else None
    if inner is None or (scale, shift) != (1.0, 1.0):
        return None
    (x,) = inner.inputs
    if above is None or number(sweep, above) == 1.0:
        return (x, "sigmoid", {}) if sweep.values[x].shape == node.output.shape else None
    return (x, "swish", {"alpha": 1.0}) if above == x else None


def _hard_sigmoid(sweep: Sweep, node: Node) -> Found | None:
    """alpha x + beta between 0 and 1, or a multiple of it that is taken back behind the bounds."""
    outer = affine(sweep, node.name)
    bounds = bounded(sweep, outer.value)
    scale, x, shift = affine(sweep, bounds.value)
    fits = outer.shift == 0 and bounds.low == 0 and near(outer.scale * bounds.high, 1.0, node.output.dtype)
    if not fits or x == bounds.value or sweep.values[x].shape != node.output.shape:
        return None
    return x, "hard_sigmoid", {"alpha": scale * outer.scale, "beta": shift * outer.scale}


def _gated(sweep: Sweep, node: Node) -> Found | None:
    """x times a curve of x."""
    coefficient, factors = product(sweep, node.name)
    if len(factors) != 2 or any(sweep.values[name].shape != node.output.shape for name in factors):
        return None
    for x, other in (factors, factors[::-1]):
        found = _gelu(sweep, coefficient, x, other) or _swish(sweep, coefficient, x, other)
        if found is None and near(coefficient, 1.0, node.output.dtype) and _is_tanh_of_softplus(sweep, other, x):
            found = ("mish", {})
        if found is not None:
            return x, *found
    return None


def _gelu(sweep: Sweep, coefficient: float, x: str, other: str) -> tuple[str, dict[str, AttrValue]] | None:
    scale, value, shift = affine(sweep, other)
    dtype = sweep.values[x].dtype
    if not near(coefficient * scale, 0.5, dtype) or not near(coefficient * shift, 0.5, dtype):
        return None
    curve = made_by(sweep, value, "erf", "tanh")
    if curve is None:
        return None
    inner = product(sweep, curve.inputs[0])
    if curve.op == "erf":
        fits = inner.factors == (x,) and near(inner.coefficient, math.sqrt(0.5), dtype)
        return ("gelu", {"approximate": "none"}) if fits else None
    return ("gelu", {"approximate": "tanh"}) if _is_cubic(sweep, inner, x) else None


def _is_cubic(sweep: Sweep, inner: Product, x: str) -> bool:
    """Whether it is sqrt(2 / pi) (x + 0.044715 x³), or that with x taken out."""
    dtype = sweep.values[x].dtype
    if not near(inner.coefficient, math.sqrt(2 / math.pi), dtype):
        return False
    rest = [name for name in inner.factors if name != x]
    if len(rest) != 1 or len(inner.factors) > 2:
        return False
    if len(inner.factors) == 2:
        scale, square, shift = affine(sweep, rest[0])
        power = product(sweep, square)
        cubic = near(scale * power.coefficient, 0.044715, dtype)
        return power.factors == (x, x) and cubic and near(shift, 1.0, dtype)
    total = made_by(sweep, rest[0], "add")
    cubes = [product(sweep, name) for name in total.inputs if name != x] if total is not None else []
    return len(cubes) == 1 and cubes[0].factors == (x, x, x) and near(cubes[0].coefficient, 0.044715, dtype)


def _swish(sweep: Sweep, coefficient: float, x: str, other: str) -> tuple[str, dict[str, AttrValue]] | None:
    gate, dtype = made_by(sweep, other, "sigmoid", "hard_sigmoid"), sweep.values[x].dtype
    if gate is not None and gate.op == "sigmoid":
        inner = product(sweep, gate.inputs[0])
        fits = inner.factors == (x,) and near(coefficient, 1.0, dtype)
        return ("swish", {"alpha": inner.coefficient}) if fits else None
    if gate is not None:
        alpha, beta = gate.number("alpha"), gate.number("beta")
        fits = gate.inputs == (x,) and near(coefficient, 1.0, dtype)
        fits = fits and near(alpha, 1 / 6, dtype) and near(beta, 0.5, dtype)
    else:
        source, low, high = bounded(sweep, other)
        scale, value, shift = affine(sweep, source)
        fits = value == x and low == 0 and near(coefficient * high, 1.0, dtype)
        fits = fits and near(scale * 6, high, dtype) and near(shift * 2, high, dtype)
    return ("hard_swish", {}) if fits else None


def _is_tanh_of_softplus(sweep: Sweep, name: str, x: str) -> bool:
    curve = made_by(sweep, name, "tanh")
    inner = made_by(sweep, curve.inputs[0], "softplus", "log") if curve is not None else None
    if inner is None or inner.op == "softplus":
        return inner is not None and inner.inputs == (x,)
    scale, value, shift = affine(sweep, inner.inputs[0])
    power = made_by(sweep, value, "exp")
    return power is not None and power.inputs == (x,) and (scale, shift) == (1.0, 1.0)
