"""Activations written in primitive nodes become one: GELU by erf and by tanh, SiLU, hard-swish.

requires: constants folded and common subexpressions merged, so that both uses of x are one value.
ensures: none of these is left in the forms that exporters write.
"""

from __future__ import annotations

import math

from autotune.graph.ir import Graph, Node
from autotune.graph.passes.match import Product, affine, made_by, near, number, product
from autotune.graph.passes.sweep import Sweep
from autotune.ops.workload import AttrValue
from autotune.tensor import DType

Found = tuple[str, str, dict[str, AttrValue]]
"""(x, operator, attributes)"""


def recognize_activations(graph: Graph) -> Graph:
    """`x * (erf(x / sqrt 2) + 1) * 0.5` --> `gelu(x)`, `x * sigmoid(x)` --> `swish(x)`, ..."""
    sweep = Sweep(graph)
    for node in sweep:
        found = _activation(sweep, node)
        if found is None:
            sweep.keep(node)
        else:
            x, op, attrs = found
            sweep.replace(node, sweep.emit(node, op, (x,), **attrs))
    return sweep.result()


def _activation(sweep: Sweep, node: Node) -> Found | None:
    if node.op not in ("mul", "div") or not DType(node.output.dtype).is_float:
        return None
    sweep.producers[node.name] = node  # it is not kept yet
    coefficient, factors = product(sweep, node.name)
    del sweep.producers[node.name]
    if len(factors) != 2 or any(sweep.values[name].shape != node.output.shape for name in factors):
        return None
    for x, other in (factors, factors[::-1]):
        found = _gelu(sweep, coefficient, x, other) or _swish(sweep, coefficient, x, other)
        if found is not None:
            return x, *found
    return None


def _gelu(sweep: Sweep, coefficient: float, x: str, other: str) -> tuple[str, dict[str, AttrValue]] | None:
    scale, value, shift = affine(sweep, other)
    if not near(coefficient * scale, 0.5) or not near(coefficient * shift, 0.5):
        return None
    curve = made_by(sweep, value, "erf", "tanh")
    if curve is None:
        return None
    inner = product(sweep, curve.inputs[0])
    if curve.op == "erf":
        fits = inner.factors == (x,) and near(inner.coefficient, math.sqrt(0.5))
        return ("gelu", {"approximate": "none"}) if fits else None
    return ("gelu", {"approximate": "tanh"}) if _is_cubic(sweep, inner, x) else None


def _is_cubic(sweep: Sweep, inner: Product, x: str) -> bool:
    """Whether it is sqrt(2 / pi) (x + 0.044715 x³), or that with x taken out."""
    if not near(inner.coefficient, math.sqrt(2 / math.pi)):
        return False
    rest = [name for name in inner.factors if name != x]
    if len(rest) != 1 or len(inner.factors) > 2:
        return False
    if len(inner.factors) == 2:
        scale, square, shift = affine(sweep, rest[0])
        power = product(sweep, square)
        return power.factors == (x, x) and near(scale * power.coefficient, 0.044715) and near(shift, 1.0)
    total = made_by(sweep, rest[0], "add")
    cubes = [product(sweep, name) for name in total.inputs if name != x] if total is not None else []
    return len(cubes) == 1 and cubes[0].factors == (x, x, x) and near(cubes[0].coefficient, 0.044715)


def _swish(sweep: Sweep, coefficient: float, x: str, other: str) -> tuple[str, dict[str, AttrValue]] | None:
    gate = made_by(sweep, other, "sigmoid", "hard_sigmoid", "clip", "min")
    if gate is None:
        return None
    if gate.op == "sigmoid":
        inner = product(sweep, gate.inputs[0])
        fits = inner.factors == (x,) and near(coefficient, 1.0)
        return ("swish", {"alpha": inner.coefficient}) if fits else None
    if gate.op == "hard_sigmoid":
        alpha, beta = gate.number("alpha"), gate.number("beta")
        fits = gate.inputs == (x,) and near(coefficient, 1.0) and near(alpha, 1 / 6) and near(beta, 0.5)
    else:
        source, top = _clipped_at_zero(sweep, gate)
        scale, value, shift = affine(sweep, source)
        fits = value == x and near(coefficient * top, 1.0) and near(scale * 6, top) and near(shift * 2, top)
    return ("hard_swish", {}) if fits else None


def _clipped_at_zero(sweep: Sweep, gate: Node) -> tuple[str, float]:
    """(y, top) of min(max(y, 0), top); top is NaN when it is something else."""
    if gate.op == "clip":
        attrs = dict(gate.attrs)
        return gate.inputs[0], float(attrs["max"]) if attrs["min"] == 0 else math.nan  # type: ignore[arg-type]
    top = number(sweep, gate.inputs[1])
    floor = made_by(sweep, gate.inputs[0], "relu", "max")
    if top is None or floor is None or (floor.op == "max" and number(sweep, floor.inputs[1]) != 0):
        return gate.inputs[0], math.nan
    return floor.inputs[0], top
