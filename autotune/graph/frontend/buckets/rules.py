"""What each ONNX operator does with an open dimension that is padded; who is not listed may not read one.

A rule gives the facts of the results, such that their elements outside of the padding are those of the model without
padding, asks for masks where it takes that, and raises CannotPad where nothing helps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autotune.graph.frontend.attributes import NodeAttributes
from autotune.graph.frontend.buckets.facts import ANYTHING, CannotPad, Extent, Fact, NeedsZeros, broadcast, reshaped
from autotune.graph.ir import Array

END = 2**31 - 1


@dataclass
class At:
    """A node whose rule is asked.

    Attributes:
        names: of its inputs, empty where one is left out.
        facts: of its inputs.
        arrays: those that are constants.
        symbol: the open dimension.
        source: a value upstream of an input, whose zeros in the padding would make that finite.
        magnitude: the largest one of a constant.
        masks: what the rule asks for: the padding of an input, by position, along these axes, becomes a number.
        mixes: elements depend on others along the open dimension, or on their place.
    """

    node: NodeAttributes
    names: Sequence[str]
    facts: Sequence[Fact | None]
    arrays: Sequence[Array | None]
    symbol: str
    source: Callable[[str], str]
    magnitude: Callable[[str], float]
    masks: dict[int, tuple[tuple[int, ...], float]] = field(default_factory=dict)
    mixes: bool = False

    def fact(self, position: int) -> Fact:
        found = self.facts[position] if position < len(self.facts) else None
        if found is None:
            raise CannotPad("an input is missing")
        return found

    def dims(self, position: int) -> tuple[Extent, ...]:
        found = self.fact(position).dims
        if found is None:
            raise CannotPad("an input is of unknown rank")
        return found

    def array(self, position: int) -> Array | None:
        return self.arrays[position] if position < len(self.arrays) else None

    def ints(self, position: int, name: str) -> tuple[int, ...] | None:
        """Integers that are an attribute in old opsets, a constant input in new ones; None where they are not given."""
        found = self.array(position)
        if found is not None:
            return tuple(int(n) for n in found.reshape(-1))
        if position < len(self.facts) and self.facts[position] is not None:
            raise CannotPad(f"{name} is no constant")
        return self.node.attr_ints(name)

    def axis(self, value: int, rank: int) -> int:
        return value + rank if value < 0 else value

    def largest(self, position: int) -> float:
        """A bound of an input where it meets padding: of that, or, where it has none, of a constant."""
        fact = self.fact(position)
        if fact.has(self.symbol):
            return fact.bound
        return ANYTHING if self.array(position) is None else self.magnitude(self.names[position])


Rule = Callable[[At], list[Fact]]
RULES: dict[str, Rule] = {}


def rule(*ops: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, function))
        return function

    return register


def _places(dims: Sequence[Extent], symbol: str) -> set[int]:
    """Where the open dimension is, counted from the end."""
    return {n - len(dims) for n, extent in enumerate(dims) if extent == symbol}


# Elementwise ---------------------------------------------------------------------------------------------


def _product(bounds: Sequence[float]) -> float:
    return ANYTHING if ANYTHING in bounds else math.prod(bounds)


def _bound(at: At, dims: Sequence[Extent]) -> float:
    """Of an elementwise result. Where an operand is not padded along an axis that is, its own elements count."""
    padded = _places(dims, at.symbol)
    alike = [fact is None or not fact.has(at.symbol) or _places(at.dims(n), at.symbol) == padded
             for n, fact in enumerate(at.facts)]  # fmt: skip
    if not all(alike):
        return ANYTHING
    op, bounds = at.node.op, [at.largest(n) for n, fact in enumerate(at.facts) if fact is not None]
    if op in ("Add", "Sub", "Sum"):
        return sum(bounds)
    if op == "Mul":
        return _product(bounds)
    if op == "Div":
        divisor = at.array(1)
        least = float(np.min(np.abs(divisor))) if divisor is not None and divisor.size else 0.0
        return bounds[0] / least if least > 0 else ANYTHING
    if op in ("Neg", "Abs", "Relu", "Identity", "Dropout", "Cast"):
        return bounds[0]
    if op in ("Tanh", "Erf", "Sigmoid"):
        return 1.0 if bounds[0] < ANYTHING else ANYTHING
    return ANYTHING


@rule(
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
    "BitwiseXor", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Div", "Dropout", "Elu", "Equal", "Erf", "Exp",
    "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN",
    "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "Pow",
    "PRelu", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt",
    "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor",
)  # fmt: skip
def elementwise(at: At) -> list[Fact]:
    same = at.node.op in ("Identity", "Dropout", "Cast")
    given = [fact for fact in at.facts if fact is not None]
    training = at.array(2) if at.node.op == "Dropout" else None
    if at.node.op == "Dropout" and len(given) > 2 and (training is None or np.any(training)):
        raise CannotPad("it draws random numbers")
    if same:
        given = given[:1]
    elif any(fact.tells(at.symbol) for fact in given):
        raise CannotPad("it computes with the extent of the open dimension")
    shapes = [at.dims(n) for n, fact in enumerate(at.facts) if fact is not None][: len(given)]
    dims = broadcast(shapes, at.symbol)
    fact = Fact(dims, _bound(at, dims))
    if same:
        fact = replace(fact, zeros=given[0].zeros, elements=given[0].elements)
    return [fact]


# Movement ------------------------------------------------------------------------------------------------


def _placed(fact: Fact, dims: tuple[Extent, ...], places: dict[int, int]) -> Fact:
    """A fact of moved elements; `places` tells where an axis went."""
    return Fact(dims, fact.bound, frozenset(places[axis] for axis in fact.zeros if axis in places))


@rule("Transpose")
def transpose(at: At) -> list[Fact]:
    dims = at.dims(0)
    order = at.node.attr_ints("perm") or tuple(reversed(range(len(dims))))
    return [_placed(at.fact(0), tuple(dims[n] for n in order), {n: place for place, n in enumerate(order)})]


@rule("Reshape")
def reshape(at: At) -> list[Fact]:
    given, target, dims = at.fact(0), at.fact(1).elements, at.dims(0)
    if given.elements is not None and target is not None and len(target) <= 1:
        return [Fact((None,) * len(target), elements=given.elements)]
    if target is None:
        raise CannotPad("a shape is computed")
    found = reshaped(dims, target, at.symbol, copies=not at.node.attr_int("allowzero", 0))
    old, new = ([n for n, extent in enumerate(shape) if extent == at.symbol] for shape in (dims, found))
    return [_placed(given, found, dict(zip(old, new)))]


@rule("Flatten")
def flatten(at: At) -> list[Fact]:
    dims = at.dims(0)
    cut = at.axis(at.node.attr_int("axis", 1), len(dims))
    target: list[Extent] = []
    for part in (dims[:cut], dims[cut:]):
        wide = [extent for extent in part if extent != 1]
        if at.symbol in wide and len(wide) > 1:
            raise CannotPad("the open dimension becomes part of another one")
        whole = math.prod(n for n in wide if isinstance(n, int)) if all(isinstance(n, int) for n in wide) else None
        target.append(wide[0] if len(wide) == 1 else whole)
    for n in (0, 1):
        if target[n] == at.symbol and n == 1 and target[0] is None:
            raise CannotPad("the open dimension lies behind an unknown one")
    return [Fact(tuple(target), at.fact(0).bound)]


@rule("Unsqueeze")
def unsqueeze(at: At) -> list[Fact]:
    given, axes = at.fact(0), at.ints(1, "axes")
    dims = at.dims(0)
    if axes is None:
        raise CannotPad("axes are missing")
    rank = len(dims) + len(axes)
    new = {at.axis(axis, rank) for axis in axes}
    kept = [place for place in range(rank) if place not in new]
    found: list[Extent] = [1] * rank
    for place, extent in zip(kept, dims):
        found[place] = extent
    return [replace(_placed(given, tuple(found), dict(enumerate(kept))), elements=given.elements)]


@rule("Squeeze")
def squeeze(at: At) -> list[Fact]:
    given, axes, dims = at.fact(0), at.ints(1, "axes"), at.dims(0)
    if axes is None:
        if not all(isinstance(extent, int) for extent in dims):
            raise CannotPad("which dimensions are 1 depends on the run")
        axes = tuple(n for n, extent in enumerate(dims) if extent == 1)
    gone = {at.axis(axis, len(dims)) for axis in axes}
    if any(dims[n] == at.symbol for n in gone):
        raise CannotPad("the open dimension must be 1")
    kept = [n for n in range(len(dims)) if n not in gone]
    found = _placed(given, tuple(dims[n] for n in kept), {n: place for place, n in enumerate(kept)})
    return [replace(found, elements=given.elements)]


@rule("Expand")
def expand(at: At) -> list[Fact]:
    target = at.fact(1).elements
    if target is None:
        raise CannotPad("a shape is computed")
    bound = at.largest(0) if at.array(0) is not None or at.fact(0).has(at.symbol) else ANYTHING
    return [Fact(broadcast([at.dims(0), target], at.symbol), bound)]


@rule("Concat")
def concat(at: At) -> list[Fact]:
    facts = [fact for fact in at.facts if fact is not None]
    if all(fact.elements is not None for fact in facts):
        elements = tuple(extent for fact in facts for extent in fact.elements or ())
        return [Fact((len(elements),), elements=elements)]
    if any(fact.tells(at.symbol) for fact in facts):
        raise CannotPad("it joins the extent of the open dimension to other values")
    shapes = [at.dims(n) for n in range(len(facts))]
    axis = at.axis(at.node.attr_int("axis", 0), len(shapes[0]))
    if any(shape[axis] == at.symbol for shape in shapes):
        raise CannotPad("it joins parts along the open dimension")
    rest = broadcast([(*shape[:axis], 1, *shape[axis + 1 :]) for shape in shapes], at.symbol)
    lengths = [shape[axis] for shape in shapes]
    whole = sum(n for n in lengths if isinstance(n, int)) if all(isinstance(n, int) for n in lengths) else None
    return [Fact((*rest[:axis], whole, *rest[axis + 1 :]), max(at.largest(n) for n in range(len(facts))))]


@rule("Split")
def split(at: At) -> list[Fact]:
    dims = at.dims(0)
    axis = at.axis(at.node.attr_int("axis", 0), len(dims))
    if dims[axis] == at.symbol or at.fact(0).tells(at.symbol):
        raise CannotPad("it cuts the open dimension")
    sizes = at.ints(1, "split")
    parts: Sequence[Extent] = sizes if sizes is not None else [None] * len(at.node.proto.output)
    if sizes is None and isinstance(dims[axis], int):
        count = len(at.node.proto.output)
        step = -(-int(dims[axis] or 0) // count)
        parts = [min(step, int(dims[axis] or 0) - n * step) for n in range(count)]
    return [Fact((*dims[:axis], part, *dims[axis + 1 :]), at.fact(0).bound) for part in parts]


@rule("Slice")
def slice_(at: At) -> list[Fact]:
    given, dims = at.fact(0), at.dims(0)
    old = len(at.facts) == 1
    if old:
        starts, ends = at.node.attr_ints("starts"), at.node.attr_ints("ends")
        first: tuple[Extent, ...] | None = starts
        last: tuple[Extent, ...] | None = ends
        axes, steps = at.node.attr_ints("axes"), None
    else:
        first, last = at.fact(1).elements, at.fact(2).elements
        axes, steps = at.ints(3, "axes"), at.ints(4, "steps")
    if first is None or last is None:
        raise CannotPad("the place of a slice is computed")
    axes = axes if axes is not None else tuple(range(len(first)))
    steps = steps if steps is not None else (1,) * len(first)
    if given.elements is not None and len(first) == 1:
        start, end = first[0], last[0]
        if isinstance(start, int) and isinstance(end, int):
            return [Fact((None,), elements=given.elements[slice(start, end, steps[0])])]
    if given.tells(at.symbol):
        raise CannotPad("it takes the extent of the open dimension out of a list")
    found = list(dims)
    for axis, start, end, step in zip(axes, first, last, steps):
        place = at.axis(axis, len(dims))
        whole = start == 0 and step == 1
        if dims[place] == at.symbol:
            if not whole or not (end == at.symbol or (isinstance(end, int) and end >= END)):
                raise CannotPad("it cuts the open dimension")
        elif end == at.symbol:
            if not whole:
                raise CannotPad("a slice as long as the open dimension does not begin at 0")
            found[place], at.mixes = at.symbol, True
        elif at.symbol in (start, end):
            raise CannotPad("the place of a slice depends on the open dimension")
        else:
            found[place] = None
            if isinstance(start, int) and isinstance(end, int) and isinstance(dims[place], int):
                found[place] = len(range(int(dims[place] or 0))[slice(start, end, step)])
    longer = found.count(at.symbol) > dims.count(at.symbol)
    return [Fact(tuple(found), ANYTHING if longer and given.has(at.symbol) else at.largest(0))]


@rule("Gather")
def gather(at: At) -> list[Fact]:
    given, index, picked = at.fact(0), at.fact(1), at.array(1)
    if given.elements is not None and picked is not None and at.node.attr_int("axis", 0) == 0:
        chosen = tuple(given.elements[int(n)] for n in picked.reshape(-1))
        return [Fact(picked.shape, elements=chosen)]
    if given.tells(at.symbol) or index.tells(at.symbol):
        raise CannotPad("it looks up with the extent of the open dimension")
    dims, places = at.dims(0), at.dims(1)
    axis = at.axis(at.node.attr_int("axis", 0), len(dims))
    if dims[axis] == at.symbol:
        if picked is None or np.any(picked):
            raise CannotPad("it looks up along the open dimension")
        at.mixes = True  # the first element, which every extent has
    table = at.array(0) is not None
    bound = (at.largest(0) if table else ANYTHING) if index.has(at.symbol) else given.bound
    return [Fact((*dims[:axis], *places, *dims[axis + 1 :]), bound)]


# What tells extents, and what is made of them ------------------------------------------------------------


@rule("Shape")
def shape(at: At) -> list[Fact]:
    dims = at.dims(0)
    end = at.node.attr_int("end", len(dims))
    elements = dims[slice(at.node.attr_int("start", 0), end)]
    return [Fact((len(elements),), elements=elements)]


@rule("ConstantOfShape")
def constant_of_shape(at: At) -> list[Fact]:
    elements = at.fact(0).elements
    if elements is None:
        raise CannotPad("a shape is computed")
    return [Fact(elements)]


@rule("Range")
def range_(at: At) -> list[Fact]:
    start, limit, step = (at.fact(n).elements for n in range(3))
    if (start, limit, step) != ((0,), (at.symbol,), (1,)):
        raise CannotPad("a range that depends on the open dimension is not 0, 1, 2, ...")
    at.mixes = True
    return [Fact((at.symbol,))]


# Products ------------------------------------------------------------------------------------------------


def _contracted(at: At, first: int, second: int) -> None:
    """A sum along the open dimension, at these axes of the two operands: the padding must add zeros."""
    at.mixes = True
    one, other = at.fact(0), at.fact(1)
    zero = [fact.bound == 0.0 or axis in fact.zeros for fact, axis in ((one, first), (other, second))]
    if (zero[0] and other.is_finite) or (zero[1] and one.is_finite):
        return
    if not any(zero):
        raise NeedsZeros(at.source(at.names[0]))
    raise NeedsZeros(at.source(at.names[1 if zero[0] else 0]))


@rule("MatMul")
def matmul(at: At) -> list[Fact]:
    a, b = at.dims(0), at.dims(1)
    if len(a) < 2 or len(b) < 2:
        raise CannotPad("it multiplies a vector")
    if at.symbol in (a[-1], b[-2]):
        if a[-1] != b[-2]:
            raise CannotPad("the open dimension meets another extent")
        _contracted(at, len(a) - 1, len(b) - 2)
    dims = (*broadcast([a[:-2], b[:-2]], at.symbol), a[-2], b[-1])
    bound = ANYTHING
    if at.array(1) is not None and isinstance(b[-2], int):
        bound = 0.0 if at.fact(0).bound == 0.0 and at.largest(1) < ANYTHING else _product(
            [at.fact(0).bound, at.largest(1), float(b[-2])]
        )  # fmt: skip
    return [Fact(dims, bound)]


@rule("Gemm")
def gemm(at: At) -> list[Fact]:
    a = at.dims(0)[::-1] if at.node.attr_int("transA", 0) else at.dims(0)
    b = at.dims(1)[::-1] if at.node.attr_int("transB", 0) else at.dims(1)
    if at.symbol in (a[1], b[0]):
        raise CannotPad("it sums along the open dimension")
    shapes = [(a[0], b[1]), *([at.dims(2)] if len(at.facts) > 2 and at.facts[2] is not None else [])]
    return [Fact(broadcast(shapes, at.symbol))]


# Along an axis -------------------------------------------------------------------------------------------


@rule("Softmax", "LogSoftmax")
def softmax(at: At) -> list[Fact]:
    dims, new = at.dims(0), at.node.opset >= 13
    axis = at.axis(at.node.attr_int("axis", -1 if new else 1), len(dims))
    along = [axis] if new else list(range(axis, len(dims)))
    if not any(dims[n] == at.symbol for n in along):
        return [Fact(dims, 1.0 if at.node.op == "Softmax" and at.fact(0).is_finite else ANYTHING)]
    if len(along) > 1:
        raise CannotPad("it normalises over several dimensions")
    at.mixes, at.masks[0] = True, ((axis,), -math.inf)
    return [Fact(dims, zeros=frozenset(along) if at.node.op == "Softmax" else frozenset())]


_FILLS = {
    "ReduceSum": 0.0, "ReduceL1": 0.0, "ReduceL2": 0.0, "ReduceSumSquare": 0.0, "ReduceProd": 1.0,
    "ReduceMax": -math.inf, "ReduceMin": math.inf, "ReduceLogSumExp": -math.inf,
    "ArgMax": -math.inf, "ArgMin": math.inf,
}  # fmt: skip


@rule(*_FILLS, "ReduceMean", "ReduceLogSum")
def reduce(at: At) -> list[Fact]:
    dims, op = at.dims(0), at.node.op
    if op in ("ArgMax", "ArgMin"):
        axes: tuple[int, ...] | None = (at.node.attr_int("axis", 0),)
    else:
        axes = at.ints(1, "axes")
        if not axes and at.node.attr_int("noop_with_empty_axes", 0):
            return [Fact(dims)]
    along = {at.axis(axis, len(dims)) for axis in (axes or range(len(dims)))}
    open_ones = tuple(n for n in sorted(along) if dims[n] == at.symbol)
    if open_ones:
        if op not in _FILLS or at.node.attr_int("select_last_index", 0):
            raise CannotPad("how many elements there are matters")
        at.mixes, at.masks[0] = True, (open_ones, _FILLS[op])
    keep = at.node.attr_int("keepdims", 1)
    return [Fact(tuple(1 if n in along else extent for n, extent in enumerate(dims) if keep or n not in along))]


@rule("CumSum")
def cumsum(at: At) -> list[Fact]:
    dims, axis = at.dims(0), at.array(1)
    if axis is None:
        raise CannotPad("the axis is no constant")
    if dims[at.axis(int(axis.reshape(-1)[0]), len(dims))] == at.symbol:
        if at.node.attr_int("reverse", 0):
            raise CannotPad("it sums from the end of the open dimension")
        at.mixes = True
    return [Fact(dims)]


@rule("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def normalize(at: At) -> list[Fact]:
    dims = at.dims(0)
    axis = at.axis(at.node.attr_int("axis", -1), len(dims))
    if at.symbol in dims[axis:] or any(fact is not None and fact.has(at.symbol) for fact in at.facts[1:]):
        raise CannotPad("it normalises over the open dimension")
    reduced = tuple(1 if n >= axis else extent for n, extent in enumerate(dims))
    return [Fact(dims), Fact(reduced), Fact(reduced)]


@rule(
    "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool",
    "GlobalLpPool", "GlobalMaxPool", "GroupNormalization", "InstanceNormalization", "LpPool", "LRN", "MaxPool",
    "SpaceToDepth",
)  # fmt: skip
def by_image(at: At) -> list[Fact]:
    """What is done with each image of a batch."""
    dims = at.dims(0)
    if at.symbol in dims[1:] or any(fact is not None and fact.has(at.symbol) for fact in at.facts[1:]):
        raise CannotPad("it reads several elements along the open dimension")
    if at.node.op == "BatchNormalization" and at.node.attr_int("training_mode", 0):
        raise CannotPad("it trains: all images of a batch count")
    at.mixes |= at.node.op == "MaxPool" and len(at.node.proto.output) > 1  # places count all images before
    return [Fact((dims[0], *[None] * (len(dims) - 1))) for _ in at.node.proto.output]
