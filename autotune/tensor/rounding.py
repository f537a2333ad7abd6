"""Rounding errors of sums in float32, whose roundings are taken for independent (docs/adr/0032)."""

from __future__ import annotations

import math

ROUNDING = 1 / math.sqrt(6) * 2.0**-24
"""Root mean square of the relative error of one rounding to float32, whose mantissas are as often small as large."""
TERMS = 256
"""That a register should sum up: parking costs a store, a load and an addition in as many multiply-adds."""
HARMLESS = 3
"""Times that errors may be amplified before parts become shorter."""
FEWEST = 32
"""However much errors are amplified: shorter parts would cost more than they gain."""


def terms_of_a_part(amplified: float = 1.0) -> int:
    """As many as err, amplified, like the usual number where that is harmless; not too few."""
    return max(FEWEST, min(TERMS, int(TERMS * (HARMLESS / amplified) ** 2)))


def sum_error(terms: int, amplified: float = 1.0, part: int | None = None) -> float:
    """Root mean square error of a sum of so many terms of either sign, by that of the sum itself.

    What is made of it has that error so many times `amplified`.

    Args:
        part: terms that are summed up before they are added to the others; `terms_of_a_part` of no error amplified, if
            None.
    """
    part = min(terms, terms_of_a_part() if part is None else part)
    return ROUNDING * (1 + amplified * math.sqrt((part + terms / part) / 2))
