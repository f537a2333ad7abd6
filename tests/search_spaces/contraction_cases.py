"""Random contractions: any equation, sizes that fill no vector, weights and run-time operands, several types."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from autotune.ops.workload import TensorType, Workload, WorkloadInput, WorkloadNode
from tests.search_spaces.matmul_cases import matmul

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 20, 33)
MOST_POINTS = 1 << 19


def random_contraction(rng: random.Random) -> Workload:
    """One of the kinds below."""
    return rng.choice((equation, equation, equation, product, convolution, narrow))(rng)


def narrow(rng: random.Random) -> Workload:
    """One of the kinds below of factors that lie in memory as half floats."""
    while True:
        wide = rng.choice((equation, product, convolution))(rng)
        if {operand.type.dtype for operand in wide.inputs[:2]} == {"f32"}:
            break
    dtype, count = rng.choice(("bf16", "bf16", "f16")), len(wide.inputs)
    factors = [replace(operand, type=replace(operand.type, dtype=dtype)) for operand in wide.inputs[:2]]
    casts = [WorkloadNode.make("cast", (n,), to="f32") for n in (0, 1)]
    place = {n: n + count if n < 2 else n if n < count else n + 2 for n in range(count + len(wide.nodes))}
    nodes = [replace(node, inputs=tuple(place[n] for n in node.inputs)) for node in wide.nodes]
    last = place[wide.outputs[0]]
    if rng.random() < 0.5:
        nodes.append(WorkloadNode.make("cast", (last,), to=dtype))
        last += 1
    return Workload((*factors, *wide.inputs[2:]), (*casts, *nodes), (last,))


def equation(rng: random.Random) -> Workload:
    """An einsum: axes of both operands, of one, summed up or kept."""
    while True:
        names = list("abcdef"[: rng.randint(3, 6)])
        extents = {name: rng.choice(EXTENTS) for name in names}
        points = 1
        for extent in extents.values():
            points *= extent
        if points <= MOST_POINTS:
            break
    rng.shuffle(names)
    summed, both = names[0], set(names[:1])
    left, right = {summed}, {summed}
    for name in names[1:]:
        kind = rng.choice("lrb")
        left |= {name} if kind in "lb" else set()
        right |= {name} if kind in "rb" else set()
        both |= {name} if kind == "b" else set()
    kept = [name for name in names[1:] if name not in both or rng.random() < 0.5] or []
    texts = ["".join(rng.sample(sorted(part), len(part))) for part in (left, right)]
    rng.shuffle(kept)
    inputs = tuple(
        WorkloadInput(TensorType("f32", tuple(extents[x] for x in text)), rng.random() < 0.3) for text in texts
    )
    node = WorkloadNode.make("einsum", (0, 1), equation=f"{texts[0]},{texts[1]}->{''.join(kept)}")
    return Workload(inputs, (node,), (2,))


def product(rng: random.Random) -> Workload:
    """A matrix product of some type, with something behind it."""
    m, n, k = (rng.choice(EXTENTS) for _ in range(3))
    dtype = rng.choice(("f32", "f64", "bf16", "f16"))
    epilogue = rng.choice(((), ("bias", "relu"), ("residual",))) if dtype == "f32" else ()
    if rng.random() < 0.3:
        inputs = (WorkloadInput(TensorType("u8", (m, k)), False), WorkloadInput(TensorType("i8", (k, n)), True))
        return Workload(inputs, (WorkloadNode.make("matmul", (0, 1), trans_a=False, trans_b=False),), (2,))
    return matmul(m, n, k, trans_a=rng.random() < 0.3, trans_b=rng.random() < 0.3, constant=rng.random() < 0.5,
                  epilogue=epilogue, dtype=dtype)  # fmt: skip


def mixture(rng: random.Random) -> Workload:
    """A product with matrices that are chosen among constant ones: on either side, batches before them or not."""
    tokens, experts, m, n, k = (rng.choice(EXTENTS) for _ in range(5))
    before = rng.choice(((), (), (3,)))
    left = rng.random() < 0.5
    sides = [(m, k), (k, n)] if left else [(k, n), (m, k)]
    trans = rng.random() < 0.5
    chosen = (*before, experts, *(reversed(sides[0]) if trans else sides[0]))
    inputs = (
        WorkloadInput(TensorType("f32", chosen), True),
        WorkloadInput(TensorType("i64", (tokens,)), False),
        WorkloadInput(TensorType("f32", (*before, tokens, *sides[1])), False),
    )
    gather = WorkloadNode.make("gather", (0, 1), axis=len(before))
    order = (3, 2) if left else (2, 3)
    matmul = WorkloadNode.make("matmul", order, trans_a=left and trans, trans_b=not left and trans)
    epilogue = [WorkloadNode.make("relu", (4,))] if rng.random() < 0.3 else []
    return Workload(inputs, (gather, matmul, *epilogue), (4 + len(epilogue),))


def convolution(rng: random.Random) -> Workload:
    """Of one to three dimensions, in groups or not, padded or not."""
    rank = rng.choice((1, 2, 2, 3))
    groups, per_group, filters = rng.choice((1, 1, 2, 4)), rng.choice((1, 3, 8, 16, 20, 24)), rng.choice((1, 4, 16))
    window = tuple(rng.choice((1, 2, 3)) for _ in range(rank))
    pads = tuple(rng.choice((0, 1)) for _ in range(2 * rank))
    image = tuple(rng.choice((3, 5, 7, 9, 16)) for _ in range(rank))
    types, border = rng.choice(((("f32", "f32"), 0), (("u8", "i8"), 0), (("u8", "i8"), 5)))
    x = TensorType(types[0], (rng.choice((1, 2)), groups * per_group, *image))
    weight = TensorType(types[1], (groups * filters, per_group, *window))
    stride = tuple(rng.choice((1, 2)) for _ in range(rank))
    attrs: dict[str, Any] = {"stride": stride, "pad": pads, "dilation": (1,) * rank, "groups": groups}
    node = WorkloadNode.make(f"conv{rank}d", (0, 1), **attrs, **({"pad_value": border} if border else {}))
    return Workload((WorkloadInput(x, False), WorkloadInput(weight, True)), (node,), (2,))
