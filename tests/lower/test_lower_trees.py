"""Walks of trees, compiled: right for any tables, which lead nowhere outside."""

from __future__ import annotations

import pytest

from autotune.lower import lower, print_program
from tests.conftest import Right
from tests.lower.test_lower_scatter import schedule


@pytest.mark.parametrize("trees", [1, 8, 19])
@pytest.mark.parametrize(("dtype", "word"), [("f32", "i32"), ("f64", "i64")])
def test_tables_of_any_numbers(dtype: str, word: str, trees: int, right: Right) -> None:
    """Of both signs."""
    x, nodes, roots = (dtype, (5, 4)), (word, (16, 2)), (word, (trees,))
    right(schedule("tree_ensemble", x, nodes, roots, (dtype, (8, 3)), depth=5, reduction="sum"))
    right(schedule("tree_ensemble", x, nodes, roots, depth=5, reduction="sum"))


def test_no_index_of_a_walk_is_compared() -> None:
    """They are taken modulo the extents, which are powers of two."""
    operands = (("f32", (5, 4)), ("i32", (16, 2)), ("i32", (8,)))
    text = print_program(lower(schedule("tree_ensemble", *operands, depth=5, reduction="sum")))
    assert "min(" not in text and "max(" not in text
