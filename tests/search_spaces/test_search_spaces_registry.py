from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from autotune.errors import ConfigError, WorkloadError
from autotune.search_spaces.space import registry
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.knobs import Choice
from autotune.search_spaces.space.registry import Template, lookup, make_schedule, task_space, template, templates_for
from autotune.search_spaces.space.space import ConfigSpace


@dataclass(frozen=True)
class FakeNode:
    op: str


@dataclass(frozen=True)
class FakeWorkload:
    """Only what the registry reads of a workload."""

    nodes: tuple[FakeNode, ...]

    def describe(self) -> str:
        return "+".join(node.op for node in self.nodes)


WORKLOAD: Any = FakeWorkload((FakeNode("conv2d"), FakeNode("relu")))
OTHER: Any = FakeWorkload((FakeNode("sort"),))
TARGET: Any = "target"


@pytest.fixture
def templates(monkeypatch: pytest.MonkeyPatch) -> dict[str, Template]:
    known: dict[str, Template] = {}
    monkeypatch.setattr(registry, "_TEMPLATES", known)

    class Rules:
        def applies(self, workload: Any, target: Any) -> bool:
            return True

        def space(self, workload: Any, target: Any) -> ConfigSpace:
            return ConfigSpace((Choice("tile", (1, 2, 4)),))

        def default(self, workload: Any, target: Any) -> Config:
            return Config.of(tile=2)

        def schedule(self, workload: Any, config: Config, target: Any, interface: Any) -> Any:
            return (workload, config, target, interface)

    template("conv2d.direct", op="conv2d")(Rules)
    template("conv2d.winograd", op="conv2d", weight=2.0, priority=lambda workload, target: 5.0)(Rules)
    template("matmul", op="matmul")(Rules)
    return known


@pytest.mark.usefixtures("templates")
def test_templates_are_chosen_by_operator_and_ordered_by_priority() -> None:
    assert [entry.name for entry in templates_for(WORKLOAD, TARGET)] == ["conv2d.winograd", "conv2d.direct"]
    assert registry.default_config(WORKLOAD, TARGET) == Config.of(template="conv2d.winograd", tile=2)
    space = task_space(WORKLOAD, TARGET)
    assert space.default() == Config.of(template="conv2d.winograd", tile=2)
    assert space.size == 6
    assert space.members["conv2d.winograd"].weight == 2.0


def test_among_equals_the_least_expected_time_comes_first(
    templates: dict[str, Template], monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = type(templates["matmul"].rules)
    template("conv2d.other", op="conv2d", priority=5.0)(rules)
    times = {"conv2d.winograd": 3.0, "conv2d.other": 2.0, "conv2d.direct": 1.0}
    monkeypatch.setattr(registry, "_expected", lambda entry, workload, target: times[entry.name])
    names = [entry.name for entry in templates_for(WORKLOAD, TARGET)]
    assert names == ["conv2d.other", "conv2d.winograd", "conv2d.direct"]


@pytest.mark.usefixtures("templates")
def test_a_config_alone_rebuilds_its_schedule() -> None:
    built = cast(Any, make_schedule(WORKLOAD, Config.of(template="conv2d.direct", tile=4), TARGET))
    assert built == (WORKLOAD, Config.of(tile=4), TARGET, None)


@pytest.mark.usefixtures("templates")
@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Config.of(tile=4), "does not name its template"),
        (Config.of(template="conv2d.direkt", tile=4), "unknown template 'conv2d.direkt', did you mean 'conv2d.direct'"),
        (Config.of(template="matmul", tile=4), "'matmul' cannot compute conv2d\\+relu"),
        (Config.of(template="conv2d.direct", tile=3), "'tile' cannot be 3"),
        (Config.of(template="conv2d.direct", tyle=4), "did you mean 'tile'"),
    ],
)
def test_make_schedule_refuses_wrong_configs(config: Config, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_schedule(WORKLOAD, config, TARGET)


@pytest.mark.usefixtures("templates")
def test_a_workload_without_template_is_refused() -> None:
    assert templates_for(OTHER, TARGET) == []
    with pytest.raises(WorkloadError, match=r"no template can compute sort; known templates: conv2d.direct"):
        task_space(OTHER, TARGET)


def test_two_templates_of_one_name_are_refused(templates: dict[str, Template]) -> None:
    with pytest.raises(ConfigError, match="two templates named 'matmul'"):
        template("matmul", op="matmul")(type(templates["matmul"].rules))
    assert lookup("matmul") is templates["matmul"]


@pytest.mark.parametrize("name, algorithm", [("conv2d.direct", "direct"), ("conv2d.winograd_f4", "winograd_f4")])
def test_a_template_names_the_algorithm_of_a_config(name: str, algorithm: str) -> None:
    assert lookup(name).algorithm_of(Config.of(template=name)) == algorithm
