"""Traits: what the compiler may know of an operator beyond its mathematics. An operator says it where it is defined."""

from __future__ import annotations

import enum


class Trait(str, enum.Enum):
    """A fact about an operator."""

    COMMUTATIVE = "commutative"
    """Its operands may be swapped; workloads hold them in one order, so this is part of their keys."""

    MOVES = "moves"
    """It only moves data: a kernel of its own that nothing fuses into, if it needs one at all."""

    ABSORBED = "absorbed"
    """It moves data, and an elementwise operator behind it may as well read elsewhere."""

    VIEW = "view"
    """It moves data, and may need no kernel: the result can lie where the operands do."""

    FOLDS = "folds"
    """It reads every element once or a few times: what is computed for it alone is computed inside."""

    REREADS = "rereads"
    """It reads each element of its own shape twice, which may lie elsewhere."""

    PLACED = "placed"
    """Elementwise, but what it makes of an element depends on where that lies along its `axis`."""

    ROUNDS = "rounds"
    """It gives few different numbers: a last bit of its operands may move the result by a whole step."""

    UPDATES = "updates"
    """Its result is its first operand but for some elements: it may be written over it."""

    LEADS_LAYOUT = "leads_layout"
    """Its template decides how its operands lie in memory; it takes its epilogue before other anchors do."""
