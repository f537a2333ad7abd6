"""Operators by name: the mathematics of each, once.

An operator is a function on Tensors. Its shape and dtype rules are those of the tensors it builds, so types,
reference values, fusion and templates all follow from one definition.
"""

from __future__ import annotations

import difflib
import enum
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.errors import WorkloadError
from autotune.ops.traits import Trait
from autotune.ops.workload import AttrValue, TensorType, Workload, WorkloadNode
from autotune.plugins import load_plugins, registered
from autotune.tensor.compute_def import ComputeDef
from autotune.tensor.dtype import DType
from autotune.tensor.expr import Binary, Expr, Read, Table, Unary, children, walk
from autotune.tensor.merge import merge_equal_stages
from autotune.tensor.stage import Stage, Tensor, compute, placeholder

LISTED = 24
"""How many names a message lists."""

Compute = Callable[[Sequence[Tensor], Mapping[str, Any]], Tensor]


class Needed(enum.Enum):
    """What an attribute without a default must be given."""

    integer = "an integer"
    integers = "integers"
    pair = "two integers"
    spatial = "an integer per spatial dimension"
    name = "a name"


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator.

    Attributes:
        name: as in workloads.
        compute: `compute(inputs, attrs)` builds the stages.
        elementwise: it can fuse into any producer.
        operands: names of its inputs, as `parse_workload` reads them; a last name that ends in `*` repeats, and
            last names that end in `?` may be missing.
        weights: names of the operands that are usually constant.
        defaults: every attribute with the value that people mean when they leave it out, or what is `Needed`.
        rare: names of attributes that a node has only where they differ from their default.
        traits: what else the compiler may know of it.
    """

    name: str
    compute: Compute
    elementwise: bool
    operands: tuple[str, ...]
    weights: frozenset[str]
    defaults: Mapping[str, AttrValue | Needed]
    traits: frozenset[Trait]
    rare: frozenset[str] = frozenset()


Count = Callable[[Sequence[TensorType], Mapping[str, Any]], "int | None"]


def _not_fewer(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> int | None:
    return None


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to compute an operator.

    Attributes:
        name: "direct" for the plain definition.
        compute: as an operator's.
        multiplications: of operands of these types with these attributes; None where it does not compute them, or makes
            no fewer than the definition.
        find_error: gives `error`: how many times the plain definition's tolerance results may be off (docs/adr/0007).
        strict: it multiplies what the definition multiplies, so that errors are those of another order of summation.
        factor: type of what it multiplies; None: that of the operands.
        prepared: the numbers of the operands that must be constant, of which it makes something once and for all.
        rounds: the float type to which it rounds what it multiplies; None: no other than the definition does.
    """

    name: str
    compute: Compute
    multiplications: Count = _not_fewer
    find_error: Callable[[], float] = lambda: 1.0
    strict: bool = True
    factor: DType | None = None
    prepared: tuple[int, ...] = ()
    rounds: DType | None = None

    @property
    def error(self) -> float:
        return self.find_error()


_OPERATORS: dict[str, Operator] = {}
_ALGORITHMS: dict[tuple[str, str], Algorithm] = {}


def operator(
    name: str,
    *,
    elementwise: bool = False,
    operands: str = "data",
    weights: str = "",
    traits: str = "",
    rare: str = "",
    **defaults: AttrValue | Needed,
) -> Callable[[Compute], Compute]:
    """Register the plain ("direct") mathematics of an operator.

    `operands`, `weights`, `traits` and `rare` are lists of words.
    """

    def register(fn: Compute) -> Compute:
        if name in _OPERATORS:
            raise WorkloadError(f"there are two operators named {name!r}; rename {fn.__module__}.{fn.__qualname__}")
        registered(fn)
        words, facts = tuple(operands.split()), frozenset(map(Trait, traits.split()))
        known, seldom = frozenset(weights.split()), frozenset(rare.split())
        _OPERATORS[name] = Operator(name, fn, elementwise, words, known, defaults, facts, seldom)
        return fn

    return register


def algorithm(
    op: str, name: str, *, multiplications: Count = _not_fewer, error: float | Callable[[], float] = 1.0,
    strict: bool = True, factor: DType | None = None, prepared: tuple[int, ...] = (), rounds: DType | None = None,
) -> Callable[[Compute], Compute]:  # fmt: skip
    """Register another ComputeDef of the same operator (Winograd, ...), verified against the plain one.

    Args:
        error: a function where it takes a while to find; the others as in `Algorithm`.
    """
    find_error = error if callable(error) else lambda: error

    def register(fn: Compute) -> Compute:
        registered(fn)
        _ALGORITHMS[(op, name)] = Algorithm(name, fn, multiplications, find_error, strict, factor, prepared, rounds)
        return fn

    return register


def algorithms(op: str) -> tuple[str, ...]:
    """Names of the algorithms of an operator, "direct" first."""
    return ("direct", *(a for o, a in _ALGORITHMS if o == op))


def lookup_algorithm(op: str, name: str) -> Algorithm:
    """The algorithm of that name.

    Raises:
        WorkloadError: when the operator has none; the message lists what exists.
    """
    if name == "direct":
        return Algorithm(name, lookup(op).compute)
    if (op, name) not in _ALGORITHMS:
        raise WorkloadError(f"{op} has no algorithm {name!r}; known: {', '.join(algorithms(op))}")
    return _ALGORITHMS[(op, name)]


def known_algorithm(workload: Workload, name: str) -> Algorithm | None:
    """What is known of the algorithm by which a workload is computed; None for a definition of a template's own."""
    try:
        return lookup_algorithm((workload.anchor or workload.nodes[-1]).op, name)
    except WorkloadError:
        return None


def fewer_multiplications(workload: Workload, *, strict_fp: bool = False) -> dict[DType | None, int]:
    """By the algorithm of the anchor that makes the fewest, for each type that algorithms multiply, None for that of
    the operands; without types of which none makes fewer than the definition."""
    anchor, found = workload.anchor, dict[DType | None, int]()
    if anchor is None:
        return found
    types = [workload.types()[i] for i in anchor.inputs]
    known = [workload.is_constant(i) for i in anchor.inputs]
    for entry in (lookup_algorithm(anchor.op, name) for name in algorithms(anchor.op)):
        able = (entry.strict or not strict_fp) and all(known[number] for number in entry.prepared)
        count = entry.multiplications(types, dict(anchor.attrs)) if able else None
        if count is not None:
            found[entry.factor] = min(count, found.get(entry.factor, count))
    return found


def has_trait(op: str, *traits: Trait) -> bool:
    """Whether an operator has one of the traits."""
    return not lookup(op).traits.isdisjoint(traits)


def operators() -> tuple[str, ...]:
    """Names of all operators, sorted."""
    return tuple(sorted(_OPERATORS))


def lookup(name: str) -> Operator:
    """The operator of that name.

    Raises:
        WorkloadError: when there is none; the message lists what exists.
    """
    if name not in _OPERATORS:
        load_plugins()
    if name in _OPERATORS:
        return _OPERATORS[name]
    raise WorkloadError(f"unknown operator {name!r}; {suggest(name, _OPERATORS)}")


def suggest(name: str, known: Iterable[str]) -> str:
    """What somebody who wrote `name` may have meant."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, 1, 0.5)
    if close:
        return f"did you mean {close[0]}?"
    more = f", ... ({len(names)} in all)" if len(names) > LISTED else ""
    return f"known: {', '.join(names[:LISTED]) or 'none'}{more}"


@functools.lru_cache(maxsize=512)
def compute_def(workload: Workload, algorithm: str = "direct") -> ComputeDef:
    """The stages of a workload; inputs are named in0, in1, ..., outputs out0, ... in operand order.

    Stages that are equal up to names are one: nodes that differ in their `result` only share all of their work.

    Args:
        workload: operators, shapes and dtypes.
        algorithm: "direct", or another algorithm registered for the anchor.

    Raises:
        WorkloadError: for impossible shapes, dtypes or attributes, or an unknown algorithm.
    """
    values = _values(workload, algorithm)
    outputs: list[Tensor] = []
    taken: set[tuple[int, str]] = set()
    for value in merge_equal_stages([values[number] for number in workload.outputs]):
        if value.stage is None or (id(value.stage), value.name) in taken:
            value = compute(value.shape, lambda *i, v=value: v[i], name="copy")
        taken.add((id(value.stage), value.name))
        outputs.append(value)
    return ComputeDef.build(values[: len(workload.inputs)], outputs, [f"out{n}" for n in range(len(outputs))])


@functools.lru_cache(maxsize=1024)
def value_types(workload: Workload) -> tuple[TensorType, ...]:
    """Type of every value of a workload, inputs first."""
    return tuple(TensorType(str(t.dtype), t.shape) for t in _values(workload, "direct"))


def flops(workload: Workload) -> int:
    """Arithmetic of the plain definition: every add, multiply, compare or function call counts 1."""
    return sum(_stage_flops(s) for s in compute_def(workload).stages)


def _values(workload: Workload, algorithm: str) -> list[Tensor]:
    values = [placeholder(i.type.shape, _dtype(i.type), f"in{n}", i.constant) for n, i in enumerate(workload.inputs)]
    anchor = workload.anchor
    if algorithm != "direct" and anchor is None:
        raise WorkloadError(f"{workload.describe()} has no anchor operator, so no algorithm {algorithm!r}")
    for node in workload.nodes:
        lookup(node.op)
        _check_node(node)
        fn = lookup_algorithm(node.op, algorithm if node is anchor else "direct").compute
        seldom = {attribute: lookup(node.op).defaults[attribute] for attribute in lookup(node.op).rare}
        values.append(fn([values[i] for i in node.inputs], seldom | dict(node.attrs)))
    return values


def _dtype(type_: TensorType) -> str:
    try:
        return DType(type_.dtype).value
    except ValueError:
        hint = suggest(type_.dtype, (d.value for d in DType))
        raise WorkloadError(f"unknown dtype {type_.dtype!r}; {hint}") from None


def _check_node(node: WorkloadNode) -> None:
    """The right number of inputs; all attributes and no others, so that equal nodes have equal keys."""
    op = lookup(node.op)
    least = sum(not name.endswith("?") for name in op.operands)
    variadic = bool(op.operands) and op.operands[-1].endswith("*")
    if not least <= len(node.inputs) or (len(node.inputs) > len(op.operands) and not variadic):
        raise WorkloadError(f"{node.op} takes the operands {', '.join(op.operands)}; got {len(node.inputs)}")
    given = {name for name, _ in node.attrs}
    for name in sorted(given - set(op.defaults)):
        raise WorkloadError(f"{node.op} has no attribute {name!r}; {suggest(name, op.defaults)}")
    for name, value in node.attrs:
        if name in op.rare and value == op.defaults[name]:
            raise WorkloadError(f"{node.op}: {name}={value} goes without saying; leave it out")
    for name in sorted(set(op.defaults) - given - op.rare):
        raise WorkloadError(f"{node.op} lacks the attribute {name!r}; give all of: {', '.join(sorted(op.defaults))}")


def _stage_flops(stage: Stage) -> int:
    points = 1
    for axis in stage.all_axes:
        points *= axis.extent
    per_point = sum(_arithmetic(body) for body in stage.body)
    return points * (per_point + (1 if stage.reducer is not None else 0))


def _arithmetic(e: Expr) -> int:
    """Operations on values; casts are free, and so is index arithmetic: whatever involves no element."""
    if isinstance(e, (Read, Table)) or not any(isinstance(part, (Read, Table)) for part in walk(e)):
        return 0
    return sum(map(_arithmetic, children(e))) + isinstance(e, (Binary, Unary))
