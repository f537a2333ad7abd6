"""Convolutions of small images whose channels fill rows of tiles, of bytes or of halves."""

from __future__ import annotations

import random

from autotune.ops.workload import Workload
from tests.search_spaces.fitting import first_that_fits

TYPES = (("u8", "i8"), ("u8", "i8"), ("i8", "i8"), ("bf16", "bf16"), ("bf16", "bf16"))


def random_small_image(rng: random.Random) -> Workload:
    """Of two or three dimensions, with any border, with what is fused behind."""
    return first_that_fits(_convolution, rng)


def _convolution(rng: random.Random) -> str:
    rank, (data, weight) = rng.choice((2, 2, 2, 3)), rng.choice(TYPES)
    channels, filters = rng.choice((64, 128, 192)), rng.choice((16, 32, 48, 80))

    def each(*choices: int, count: int = rank) -> str:
        return ",".join(str(rng.choice(choices)) for _ in range(count))

    alone = rng.random() < 0.4
    window = ",".join("1" * rank) if alone else each(1, 2, 3)
    image = f"{rng.choice((1, 1, 2))},{channels},{each(3, 5, 7, 9)}"
    around = f"pad={each(0, 1, 2, count=2 * rank)} {'stride' if alone else 'dilation'}={each(1, 2)}"
    border = f" pad_value={rng.choice((0, 5, 100))}" if data == "u8" else ""
    rest = rng.choice(("", "+ bias", "+ bias + residual"))
    if data == "bf16":
        factors = f"cast data={image}:bf16 to=f32 + cast data=const:{filters},{channels},{window}:bf16 to=f32"
        return f"{factors} + conv{rank}d data=step1 weight=step2 {around} {rng.choice(('', '+ cast to=bf16'))}"
    return (
        f"conv{rank}d data={image}:{data} weight=const:{filters},{channels},{window}:{weight} {around}{border} {rest}"
    )
