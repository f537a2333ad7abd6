"""What matrix product templates know about their workload."""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass

from autotune.ops.registry import lookup
from autotune.ops.workload import Workload
from autotune.search_spaces.library.register_tile import Steps
from autotune.target import Target
from autotune.tensor.dtype import DType

FLOATS = ("f32", "f64")


@dataclass(frozen=True, slots=True)
class MatmulShape:
    """Sizes of the anchor: result (*batch, m, n), reduction k.

    Attributes:
        a, b: numbers of the operands' values in the workload.
    """

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    trans_a: bool
    trans_b: bool
    a: int
    b: int
    rank_a: int
    rank_b: int
    dtype: DType

    @staticmethod
    def of(workload: Workload) -> MatmulShape:
        anchor = workload.anchor
        assert anchor is not None
        types = workload.types()
        a, b = anchor.inputs
        out = types[len(workload.inputs) + workload.nodes.index(anchor)].shape
        trans_a, trans_b = bool(anchor.attr("trans_a")), bool(anchor.attr("trans_b"))
        k = types[a].shape[-2 if trans_a else -1]
        ranks = len(types[a].shape), len(types[b].shape)
        return MatmulShape(out[:-2], out[-2], out[-1], k, trans_a, trans_b, a, b, *ranks, DType(types[a].dtype))

    @property
    def batches(self) -> int:
        return math.prod(self.batch)

    @property
    def b_dims(self) -> tuple[int, int]:
        """Dimensions of `b` that hold the sum and columns."""
        return (self.rank_b - 1, self.rank_b - 2) if self.trans_b else (self.rank_b - 2, self.rank_b - 1)


def is_matmul(workload: Workload, dtypes: Container[str] = FLOATS) -> bool:
    """One product of matrices of some dtypes, with elementwise work around it that keeps its shape."""
    anchor = workload.anchor
    if anchor is None or anchor.op != "matmul" or len(workload.outputs) != 1:
        return False
    types = workload.types()
    place = len(workload.inputs) + workload.nodes.index(anchor)
    operands = [types[n] for n in anchor.inputs]
    if any(len(t.shape) < 2 or t.dtype not in dtypes for t in operands):
        return False
    others = all(node is anchor or lookup(node.op).elementwise for node in workload.nodes)
    sizes = [*types[place].shape, *operands[0].shape, *operands[1].shape]
    return others and types[workload.outputs[0]].shape == types[place].shape and min(sizes) > 0


def has_constant_b(workload: Workload) -> bool:
    anchor = workload.anchor
    assert anchor is not None
    b = anchor.inputs[1]
    return b < len(workload.inputs) and workload.inputs[b].constant


def operand_b(workload: Workload) -> str | None:
    """The tensor that `b` is, when it is an input of its own: not computed, and not `a` as well."""
    anchor = workload.anchor
    assert anchor is not None
    a, b = anchor.inputs
    return f"in{b}" if b < len(workload.inputs) and a != b else None


def tile_cycles(rows: int, vectors: int, p: MatmulShape, target: Target) -> float:
    """Cycles of one step of a register tile.

    Rows whose distance is a multiple of 4 KB compete for the same lines of L1.
    """
    work = Steps.of(target, p.dtype).busy(rows * vectors, rows + vectors)
    stride = p.k * p.dtype.bytes
    ways = max(target.l1_bytes // 4096, 1)
    rivals = 1 if p.trans_a else -(-rows * math.gcd(stride, 4096) // 4096)
    return work * (1.25 if rivals > ways else 1.0)
