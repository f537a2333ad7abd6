"""A fixed part of the template cases; `python -m benchmarks.fuzz` runs many more."""

from __future__ import annotations

import pytest

from autotune.codegen.kernel import build_kernel
from autotune.measure.bench import Bench, TaskData
from autotune.measure.reference import make_reference
from autotune.ops import parse_workload
from autotune.runtime.threads import ThreadPool
from autotune.search_spaces import make_schedule
from autotune.search_spaces.space.registry import lookup
from autotune.target import Target
from tests.property.fuzz import TEMPLATES, every, failures
from tests.property.in_place_check import differs_in_place
from tests.property.template_check import case, templates

CASES_PER_TEMPLATE = 3


def test_random_configs_of_every_template_are_right() -> None:
    seeds = range(CASES_PER_TEMPLATE * len(templates()))
    assert every(failures(seeds, "native -num-cores=2", entry=TEMPLATES)) == ([], 0)


def test_a_case_is_the_same_each_time_and_every_template_has_its_turn() -> None:
    known = templates()
    assert case(3) == case(3)
    assert {case(seed).config.template for seed in range(len(known))} == set(known)


def test_a_result_on_a_factor_is_found_to_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, target = parse_workload("matmul a=var:64,64 b=const:64,64"), Target.parse("native -num-cores=1")
    config = lookup("generic").default(workload, target).replace(template="generic")
    kernel = build_kernel(make_schedule(workload, config, target), target)
    with Bench(kernel, TaskData(make_reference(workload, 0)), 1) as bench, ThreadPool(1, 1) as pool:
        assert differs_in_place(bench, workload, pool) is None
        monkeypatch.setattr("tests.property.in_place_check.read_elsewhere", lambda _: set[int]())
        assert "another one where it lies on in" in str(differs_in_place(bench, workload, pool))
