"""Products that Strassen's algorithm computes."""

from __future__ import annotations

import random

from autotune.ops import parse_workload
from autotune.ops.workload import Workload


def random_halves(rng: random.Random, *, exact: bool) -> Workload:
    """Sizes that can be cut in two, rows that cannot, batches, transposes and epilogues."""
    batch = rng.choice(("", "", "1,", "3,"))
    m, k, n = rng.randint(2, 40), 32 * rng.randint(1, 4), 32 * rng.randint(1, 4)
    trans = rng.random() < 0.3
    b = f"{n},{k}" if trans else f"{k},{n}"
    rest = rng.choice(("", f"+ add b=const:{n}", f"+ add b=const:{n} + residual", "+ abs"))
    if exact:
        types = rng.choice((("u8", "i8"), ("u8", "u8"), ("i8", "i8")))
        return parse_workload(f"matmul a={batch}{m},{k}:{types[0]} b={b}:{types[1]} trans_b={int(trans)} {rest}")
    return parse_workload(f"matmul a={batch}{m},{k} b=const:{b} trans_b={int(trans)} {rest}")
