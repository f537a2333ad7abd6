"""Workloads of products with weights that are kept as codes."""

from __future__ import annotations

import random

from autotune.ops import parse_workload
from autotune.ops.coded import BYTES, WORDS, codes_per_element
from autotune.ops.workload import Workload

ROWS = (1, 1, 1, 2, 3, 4, 5, 7, 12, 17)
COLUMNS = (1, 5, 16, 17, 48, 64, 100, 130)
DEPTHS = (16, 17, 40, 64, 96, 130, 256)


def coded(
    rows: int,
    columns: int,
    depth: int,
    block: int,
    form: str,
    *,
    zero: str = "",
    rest: str = "",
    batch: str = "",
    first: str = "",
) -> Workload:
    """A product; `zero`: the dtype of zero points, "" for none. `rest`: what is done with its result.

    Args:
        batch: "3," for three of them; `first`: the same of their left operand, where it is another one.
    """
    per = codes_per_element(form)
    blocks = -(-depth // block)
    kept = "u32" if form in WORDS else form
    codes, scales = f"{batch}{blocks * block // per},{columns}", f"{batch}{blocks},{columns}"
    text = f"matmul_coded a={first if batch and first else batch}{rows},{depth} codes={codes}:{kept} scale={scales}"
    points = f" zero=const:{scales}:{zero}" if zero else ""
    return parse_workload(f"{text}{points} block={block} format={form} {rest}")


def random_coded(rng: random.Random) -> Workload:
    """Awkward sizes, every format, blocks that end beyond the sum, zero points, epilogues, batches."""
    form, columns, depth = rng.choice((*WORDS, *BYTES)), rng.choice(COLUMNS), rng.choice(DEPTHS)
    block = rng.choice((16, 32, 64, 128, -(-depth // 16) * 16))
    # No function that is flat but near 0: sums of bytes lie far from it, and so do their errors.
    rest = rng.choice(("", "", f"+ add b=const:{columns} + relu", "+ abs"))
    zero = rng.choice(("", "", "u8", "f32"))
    rows, batch = rng.choice(ROWS), rng.choice(("", "", "3,"))
    if batch and rng.random() < 0.5:
        rest += " + until end=3,1,1:i64 axis=1 rest=any"
    first = rng.choice(("", "1,"))
    return coded(rows, columns, depth, block, form, zero=zero, rest=rest, batch=batch, first=first)
