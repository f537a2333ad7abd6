"""Random 3-D convolutions as Winograd's filtering takes them: images one behind the other."""

from __future__ import annotations

import random

from autotune.ops import parse_workload
from autotune.ops.workload import Workload


def random_volume(rng: random.Random, exact: bool, attrs: str = "") -> Workload:
    """With and without taps along the depth, of floats or, `exact`, of bytes."""
    taps, stride, pad = rng.choice((1, 1, 3, 2)), rng.choice((1, 1, 2)), rng.choice((0, 1))
    n, c, k, depth = rng.choice((1, 2)), rng.choice((16, 32)), rng.choice((16, 32)), rng.choice((3, 4, 6))
    h, w = rng.choice((4, 7, 13)), rng.choice((6, 9, 16))
    types = (":u8", ":i8") if exact else ("", "")
    shapes = f"data={n},{c},{depth},{h},{w}{types[0]} weight={k},{c},{taps},3,3{types[1]}"
    epilogue = "" if exact else rng.choice(("", "+ bias + relu", "+ residual"))
    return parse_workload(f"conv3d {shapes} pad={pad},1,1,{pad},1,1 stride={stride},1,1 {attrs} {epilogue}")
