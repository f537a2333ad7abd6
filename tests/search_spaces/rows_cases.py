"""Random convolutions of few channels, of bytes or halves, along whose rows windows read neighbours."""

from __future__ import annotations

import random

from autotune.ops.conv_rows import FEW
from autotune.ops.workload import Workload
from tests.search_spaces.fitting import first_that_fits

TYPES = (("u8", "i8"), ("u8", "i8"), ("i8", "i8"), ("u8", "u8"), ("bf16", "bf16"), ("bf16", "bf16"))


def random_in_rows(rng: random.Random) -> Workload:
    """A convolution of one to three dimensions, whose data is rounded before or not."""
    return first_that_fits(_convolution, rng)


def _convolution(rng: random.Random) -> str:
    rank, (data, weight) = rng.choice((1, 2, 2, 2, 3)), rng.choice(TYPES)
    channels, filters = rng.randint(1, FEW), rng.choice((9, 12, 16, 20, 64))

    def each(*choices: int, count: int = rank) -> str:
        return ",".join(str(rng.choice(choices)) for _ in range(count))

    image = f"{rng.choice((1, 2))},{channels},{each(5, 9, 16, 33)}"
    taps = (
        f"{filters},{channels},{each(1, 2, 3, 5, count=rank - 1)}{',' if rank > 1 else ''}{each(2, 3, 5, 7, count=1)}"
    )
    around = f"pad={each(0, 1, 2, 3, count=2 * rank)} stride={each(1, 2, 3)}"
    around += f" dilation={each(1, 2, count=rank - 1)}{',' if rank > 1 else ''}1"
    if data == "bf16" and rng.random() < 0.5:
        rounded = f"cast data={image} to=bf16 + cast to=f32 + cast data=const:{taps}:bf16 to=f32"
        return f"{rounded} + conv{rank}d data=step2 weight=step3 {around} + relu"
    border = f" pad_value={rng.choice((0, 5, 100))}" if data == "u8" else ""
    return f"conv{rank}d data={image}:{data} weight={taps}:{weight} {around}{border}"
