"""Products of f32 that are computed in pieces of bf16."""

from __future__ import annotations

import random

from autotune.ops import parse_workload
from autotune.ops.workload import Workload


def random_product(rng: random.Random, op: str) -> Workload:
    """Sums with groups that are filled up or not, odd rows and columns, batches, transposes, windows, epilogues."""
    inner, columns = rng.choice((17, 24, 32, 40, 64, 96, 160, 320)), rng.choice((8, 16, 20, 33, 48, 64, 100))
    rest = rng.choice(("", "+ bias", "+ bias + residual", "+ abs"))
    if op == "matmul":
        swapped, turned = rng.random() < 0.3, rng.random() < 0.2
        batch = rng.choice(("", "", "1,", "3,"))
        own = batch if rng.random() < 0.2 else ""
        rows = rng.randint(2, 70)
        a = f"{inner},{rows}" if turned else f"{rows},{inner}"
        b = f"{columns},{inner}" if swapped else f"{inner},{columns}"
        return parse_workload(
            f"matmul a={batch}{a} b=const:{own}{b} trans_a={int(turned)} trans_b={int(swapped)} {rest}"
        )
    rank = int(op[4])
    window = rng.choice((1, 1, 3, 2)) if rank < 3 else rng.choice((1, 2))
    image = ",".join(str(rng.randint(window, 18 if rank < 3 else 6)) for _ in range(rank))
    data = f"{rng.choice((1, 1, 2))},{inner},{image}"
    taps = ",".join([str(window)] * rank)
    stride, pad = rng.choice(("", "", "stride=2")), f"pad={rng.choice((0, window // 2))}"
    return parse_workload(f"{op} data={data} weight=const:{columns},{inner},{taps} {pad} {stride} {rest}")
