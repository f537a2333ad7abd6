"""For the tests of plugins and parts of one's own: what autotune relies on, as checks.

    from autotune.testing import check_template

    def test_my_template():
        check_template("l1_distance.lanes", ["l1_distance x=64,32 codebook=16,32"])

A check ends in AssertionError, which names what is wrong and where, or in nothing.
"""

from __future__ import annotations

from autotune.testing.builders import check_builder
from autotune.testing.runners import check_runner
from autotune.testing.strategies import check_strategy
from autotune.testing.templates import check_operator, check_template

__all__ = ["check_builder", "check_operator", "check_runner", "check_strategy", "check_template"]
