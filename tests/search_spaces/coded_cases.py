"""Workloads of products with weights that are kept as codes."""

from __future__ import annotations

import random

from autotune.ops import parse_workload
from autotune.ops.coded import BYTES, WORDS, codes_per_element
from autotune.ops.workload import Workload

ROWS = (1, 1, 1, 2, 3, 4, 5, 7, 12, 17)
COLUMNS = (1, 5, 16, 17, 48, 64, 100, 130)
DEPTHS = (16, 17, 40, 64, 96, 130, 256)


def coded(rows: int, columns: int, depth: int, block: int, form: str, *, zero: str = "", rest: str = "") -> Workload:
    """A product; `zero`: the dtype of zero points, "" for none. `rest`: what is done with its result."""
    per = codes_per_element(form)
    blocks = -(-depth // block)
    kept = "u32" if form in WORDS else form
    text = f"matmul_coded a={rows},{depth} codes={blocks * block // per},{columns}:{kept} scale={blocks},{columns}"
    points = f" zero=const:{blocks},{columns}:{zero}" if zero else ""
    return parse_workload(f"{text}{points} block={block} format={form} {rest}")


def random_coded(rng: random.Random) -> Workload:
    """Awkward sizes, every format, blocks that end beyond the sum, zero points, epilogues."""
    form, columns, depth = rng.choice((*WORDS, *BYTES)), rng.choice(COLUMNS), rng.choice(DEPTHS)
    block = rng.choice((16, 32, 64, 128, -(-depth // 16) * 16))
    # No function that is flat but near 0: sums of bytes lie far from it, and so do their errors.
    rest = rng.choice(("", "", f"+ add b=const:{columns} + relu", "+ abs"))
    zero = rng.choice(("", "", "u8", "f32"))
    return coded(rng.choice(ROWS), columns, depth, block, form, zero=zero, rest=rest)
