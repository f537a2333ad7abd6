"""Matrices of experts: real numbers, or codes of a few bits that products decode, of which each row takes one.

Products read them by gathers that nobody else reads: where they are, then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from autotune.graph.coded import CodedWeight, coded_weight
from autotune.graph.frontend.node import OnnxNode
from autotune.graph.ir import Array
from autotune.tensor import DType


class Matrices(Protocol):
    """One for each expert: (experts, outputs, inputs)."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def rows(self, part: range) -> Matrices:
        """Some of the outputs."""

    def product(self, rows: str, expert: str) -> str:
        """(blocks, rows of a block, inputs), each block by the matrix of its `expert` (blocks,)."""


@dataclass(frozen=True, slots=True)
class Projection:
    """Matrices, and perhaps a bias (experts, outputs)."""

    matrices: Matrices
    bias: str | None


@dataclass(frozen=True, slots=True)
class RealMatrices:
    """A value of the graph."""

    node: OnnxNode
    name: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.node.builder.values[self.name].shape

    def rows(self, part: range) -> RealMatrices:
        experts, _, *rest = self.shape
        return replace(self, name=self.node.sliced(self.name, (range(experts), part, *map(range, rest))))

    def product(self, rows: str, expert: str) -> str:
        chosen = self.node.emit("gather", self.name, expert, axis=0)
        return self.node.emit("matmul", rows, chosen, trans_a=False, trans_b=True)


@dataclass(frozen=True, slots=True)
class CodedMatrices:
    """Constant integers with scales.

    Attributes:
        numbers: u8 (experts, outputs, inputs), in the lowest `bits`, 2, 4 or 8 of them.
        scale, zero: f32, u8 (experts, outputs, blocks of the inputs); a number less its zero is to be scaled.
    """

    node: OnnxNode
    numbers: Array
    scale: Array
    zero: Array
    bits: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.numbers.shape

    def rows(self, part: range) -> CodedMatrices:
        numbers, scale, zero = (x[:, part.start : part.stop : part.step] for x in (self.numbers, self.scale, self.zero))
        return replace(self, numbers=numbers, scale=scale, zero=zero)

    def product(self, rows: str, expert: str) -> str:
        """In f32. Where blocks end within a word of codes, the matrices are real numbers, as large as those are."""
        coded = self._coded()
        if coded is None:
            return RealMatrices(self.node, self.node.new_constant(self._real())).product(rows, expert)
        given = [x for x in (coded.codes, coded.scale, coded.zero) if x is not None]
        chosen = [self.node.emit("gather", self.node.new_constant(x), expert, axis=0) for x in given]
        return self.node.emit("matmul_coded", rows, *chosen, block=coded.block, format=coded.form)

    def _coded(self) -> CodedWeight | None:
        """(experts, ...) arrays, of which each is an expert's."""
        experts, outputs, depth = self.shape

        def side_by_side(x: Array) -> Array:
            """(n, experts * outputs): all columns of all matrices."""
            return x.transpose(2, 0, 1).reshape(-1, experts * outputs)

        def apart(x: Array) -> Array:
            return np.ascontiguousarray(x.reshape(-1, experts, outputs).transpose(1, 0, 2))

        form = f"u{self.bits}"
        numbers = side_by_side(self.numbers).view(DType(form).numpy)
        scale, zero = side_by_side(self.scale), side_by_side(self.zero)
        found = coded_weight(numbers, form, scale, zero, depth // self.scale.shape[2])
        if found is None:
            return None
        points = None if found.zero is None else apart(found.zero)
        return replace(found, codes=apart(found.codes), scale=apart(found.scale), zero=points)

    def _real(self) -> Array:
        experts, outputs, depth = self.shape
        blocks = self.scale.shape[2]
        real = self.numbers.reshape(experts, outputs, blocks, depth // blocks).astype(np.float32)
        real -= self.zero[..., None]
        real *= self.scale[..., None]
        return real.reshape(self.shape)
