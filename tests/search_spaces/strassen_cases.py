"""Products that Strassen's algorithm computes."""

from __future__ import annotations

import random

from autotune.ops import parse_workload
from autotune.ops.workload import Workload


def random_halves(rng: random.Random, op: str, *, exact: bool) -> Workload:
    """Sizes that can be cut in two, rows and images that cannot, batches, transposes and epilogues."""
    inner, columns = rng.choice((128, 192, 256)), 32 * rng.randint(1, 4)
    one, other = rng.choice((("u8", "i8"), ("u8", "u8"), ("i8", "i8"))) if exact else ("f32", "f32")
    rest = rng.choice(("", "+ bias", "+ bias + residual", "+ abs"))
    if op == "matmul":
        batch = rng.choice(("", "", "1,", "3,"))
        swapped = rng.random() < 0.3
        b = f"{columns},{inner}" if swapped else f"{inner},{columns}"
        a = f"{batch}{rng.randint(2, 40)},{inner}"
        return parse_workload(f"matmul a={a}:{one} b=const:{b}:{other} trans_b={int(swapped)} {rest}")
    rank = int(op[4])
    image = ",".join(str(rng.randint(3, 9 if rank < 3 else 5)) for _ in range(rank))
    window = ",".join("1" * rank)
    data = f"{rng.choice((1, 1, 2))},{inner},{image}"
    stride = rng.choice(("", "", "stride=2"))
    return parse_workload(f"{op} data={data}:{one} weight=const:{columns},{inner},{window}:{other} {stride} {rest}")
