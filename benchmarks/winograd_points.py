"""Which interpolation points Winograd's transforms should have: the multiples of 1/8 that amplify errors least.

python -m benchmarks.winograd_points        the points in use beside the best ones, for every F(m, r) of a tile
"""

from __future__ import annotations

import itertools
import math
import sys
from fractions import Fraction

from autotune.ops.winograd import TILES, most_taps
from autotune.ops.winograd_transforms import finite_points, opposite, rational
from benchmarks.report import Report, Row, parser

GRID = tuple(Fraction(n, 8) for n in range(2, 25))
METHOD = (
    "Root mean square error of an output, of independent inputs and taps, by that of a product's sum, per side of "
    "a tile; points are 0 where their number is odd, infinity, and pairs of opposite multiples of 1/8 up to 3."
)


def best(m: int, r: int) -> tuple[float, tuple[Fraction, ...]]:
    """The least amplification and its points."""
    count = m + r - 2
    zero = (Fraction(0),) * (count % 2)
    candidates = ((*zero, *pairs) for pairs in itertools.combinations(GRID, count // 2))
    return min((math.sqrt(rational(m, r, opposite(points)).amplification), points) for points in candidates)


def main(arguments: list[str] | None = None) -> int:
    given = parser("winograd_points", __doc__).parse_args(arguments)
    report = Report("winograd_points", METHOD, given.quick)
    sides = {(m, r) for tile in TILES.values() for m in tile for r in range(2, most_taps(tile) + 1)}
    rows: list[Row] = []
    for m, r in sorted(sides)[: 2 if given.quick else None]:
        used = finite_points(m + r - 2)
        ours, (least, points) = math.sqrt(rational(m, r, used).amplification), best(m, r)
        row: Row = {
            "m": m,
            "r": r,
            "points": _text(used),
            "amplify": ours,
            "best": _text(points),
            "amplify least": least,
        }
        rows.append(row)
        report.claim(f"F({m}, {r}): amplification by the least possible", ours / least, "at most", 1.0)
    report.table("points", rows)
    report.finish(given.json)
    return 0


def _text(points: list[Fraction] | tuple[Fraction, ...]) -> str:
    return " ".join(str(point) for point in points if point >= 0)


if __name__ == "__main__":
    sys.exit(main())
