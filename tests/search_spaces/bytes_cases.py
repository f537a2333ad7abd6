"""Random sums of products of bytes: any sizes and groups, borders of any value, made bytes again behind or not."""

from __future__ import annotations

import random

from autotune.ops import parse_workload
from autotune.ops.workload import Workload
from tests.search_spaces.fitting import first_that_fits

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 20, 33, 64)
TARGETS = ("native -num-cores=2", "x86 -mcpu=haswell -num-cores=2", "x86 -mcpu=alderlake -num-cores=2")


def random_bytes(rng: random.Random) -> Workload:
    """A product, or a convolution."""
    return first_that_fits(lambda rng: rng.choice((product, convolution, convolution))(rng), rng)


def random_windows_of_three(rng: random.Random) -> Workload:
    """A convolution of 3 x 3 taps and whole vectors of channels, as exact Winograd filtering takes."""
    pad = rng.choice(("0", "1", "1 pad_value=7", "0,1,1,0", "2 pad_value=-3", "0,0,2,1", "1 sum_bits=26"))
    data = "i8" if "-" in pad else rng.choice(("u8", "u8", "i8"))
    h, w = rng.choice((3, 4, 5, 7, 8, 11, 13, 14)), rng.choice((3, 4, 6, 7, 9, 13, 16))
    c, k = rng.choice((16, 32, 48, 128)), rng.choice((16, 32, 64))
    text = f"conv2d data={rng.choice((1, 1, 2))},{c},{h},{w}:{data} weight={k},{c},3,3:{rng.choice(('i8', 'u8'))}"
    return parse_workload(f"{text} pad={pad}{_epilogue(rng, f'1,{k},1,1', '')}")


def product(rng: random.Random) -> str:
    """Of matrices, with constant or given factors."""
    m, n, k = (rng.choice(EXTENTS) for _ in range(3))
    left, right = rng.choice((("u8", "i8"), ("u8", "i8"), ("i8", "u8"), ("i8", "i8"), ("u8", "u8")))
    kind = rng.choice(("const", "const", "var"))
    a, b = (f"{m},{k}", f"{k},{n}")
    given = rng.choice(("", "", " trans_b=1")) if kind == "var" else ""
    if given:
        b = f"{n},{k}"
    return f"matmul a=var:{a}:{left} b={kind}:{b}:{right}{given}{_epilogue(rng, f'{n}', f'{m},{n}')}"


def convolution(rng: random.Random) -> str:
    """Of one to three dimensions; dense, in groups, or each channel on its own."""
    rank = rng.choice((1, 2, 2, 2, 3))
    kind = rng.choice(("dense", "dense", "grouped", "depthwise"))
    groups = {"dense": 1, "grouped": rng.choice((2, 4)), "depthwise": rng.choice((3, 8, 16, 24, 32))}[kind]
    per_group = 1 if kind == "depthwise" else rng.choice((1, 3, 4, 8, 16, 18))
    filters = 1 if kind == "depthwise" else rng.choice((1, 4, 16, 20))

    def each(*choices: int, count: int = rank) -> str:
        return ",".join(str(rng.choice(choices)) for _ in range(count))

    data, weight = rng.choice((("u8", "i8"), ("u8", "i8"), ("u8", "u8"), ("i8", "i8")))
    image, k = each(3, 5, 7, 9, 16), groups * filters
    text = f"conv{rank}d data={rng.choice((1, 2))},{groups * per_group},{image}:{data} groups={groups}"
    text += f" weight={k},{per_group},{each(1, 2, 3, 5)}:{weight} pad={each(0, 1, 2, count=2 * rank)}"
    text += f" stride={each(1, 2)} dilation={each(1, 1, 2)} pad_value={rng.choice((0, 0, 5, 100))}"
    return text + _epilogue(rng, f"1,{k}" + ",1" * rank, "")


def _epilogue(rng: random.Random, channels: str, shape: str) -> str:
    if rng.random() < 0.4:
        return ""
    to = rng.choice(("u8", "u8", "i8"))
    bias = rng.choice(("", f" add b=const:{channels}:i32"))
    return f"{bias} requantize multiplier=const:{channels}:f32 zero_point=const:scalar:{to} to={to}"
