"""Random sums of products of floats of 16 bits: any sizes and groups, weights or given factors."""

from __future__ import annotations

import random

from autotune.ops.workload import Workload
from tests.search_spaces.bytes_cases import EXTENTS
from tests.search_spaces.fitting import first_that_fits


def random_halves(rng: random.Random) -> Workload:
    """A product, or a convolution."""
    return first_that_fits(lambda rng: rng.choice((_product, _convolution))(rng), rng)


def _product(rng: random.Random) -> str:
    m, n, k = (rng.choice(EXTENTS) for _ in range(3))
    batch, dtype = rng.choice(("", "", "3,")), rng.choice(("f16", "bf16"))
    a, b = (f"{batch}{m},{k}", f"{n},{k}") if (turned := rng.random() < 0.3) else (f"{batch}{m},{k}", f"{k},{n}")
    kind = rng.choice(("const", "var"))
    text = f"matmul a=var:{a}:{dtype} b={kind}:{b if kind == 'const' else batch + b}:{dtype}"
    return text + (" trans_b=1" if turned else "") + rng.choice(("", " relu", f" add b=const:{n}:{dtype}"))


def _convolution(rng: random.Random) -> str:
    rank, dtype, groups = rng.choice((1, 2, 2, 3)), rng.choice(("f16", "bf16")), rng.choice((1, 1, 2))
    per_group, filters = rng.choice((1, 3, 8, 16, 18)), rng.choice((1, 4, 16, 20))

    def each(*choices: int, count: int = rank) -> str:
        return ",".join(str(rng.choice(choices)) for _ in range(count))

    text = f"conv{rank}d data={rng.choice((1, 2))},{groups * per_group},{each(3, 5, 7, 9, 16)}:{dtype} groups={groups}"
    text += f" weight={groups * filters},{per_group},{each(1, 2, 3, 5)}:{dtype} pad={each(0, 1, 2, count=2 * rank)}"
    return f"{text} stride={each(1, 2)} dilation={each(1, 1, 2)}" + rng.choice(("", " relu"))
