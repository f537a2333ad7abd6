"""A search of nests begins with the prior; one of knobs from nothing."""

from __future__ import annotations

from autotune.cost_model.adapted import AdaptedModel
from autotune.ops import parse_workload
from autotune.search.models import model_for
from autotune.search_spaces import Choice, ConfigSpace, task_space
from tests.targets import fixed


def test_a_search_of_nests_knows_before_its_first_trial() -> None:
    space = task_space(parse_workload("matmul a=var:64,64 b=const:64,64"), fixed("x86 -mcpu=haswell -num-cores=1"))
    model = model_for(space, 3)
    assert isinstance(model, AdaptedModel) and model.ready and model.seed == 3


def test_a_search_of_knobs_starts_from_nothing() -> None:
    model = model_for(ConfigSpace((Choice("tile", (1, 2, 4)),)), 0)
    assert isinstance(model, AdaptedModel) and not model.ready
