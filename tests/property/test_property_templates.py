"""A fixed part of the template cases; `python -m benchmarks.fuzz` runs many more."""

from __future__ import annotations

from tests.property.fuzz import TEMPLATES, every, failures
from tests.property.template_check import case, templates

CASES_PER_TEMPLATE = 5


def test_random_configs_of_every_template_are_right() -> None:
    seeds = range(CASES_PER_TEMPLATE * len(templates()))
    assert every(failures(seeds, "native -num-cores=2", entry=TEMPLATES)) == ([], 0)


def test_a_case_is_the_same_each_time_and_every_template_has_its_turn() -> None:
    known = templates()
    assert case(3) == case(3)
    assert {case(seed).config.template for seed in range(len(known))} == set(known)
