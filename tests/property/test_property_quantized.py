"""A fixed part of the quantised cases; `python -m benchmarks.fuzz --quantized` runs many more."""

from __future__ import annotations

from tests.property.fuzz import QUANTIZED, every, failures

CASES = 25


def test_quantised_graphs_and_products_of_bytes_are_exact() -> None:
    assert every(failures(range(CASES), "native -num-cores=2", entry=QUANTIZED)) == ([], 0)
