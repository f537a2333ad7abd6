"""The checks for plugin authors accept what is right, and name what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.testing import check_operator, check_template

TARGET = "native -num-cores=2"
EXAMPLE = Path(__file__).parent.parent / "examples/plugin/l1_distance.py"
WORKLOAD = "l1_distance x=24,40 codebook=16,40"

BROKEN = """
import random
from autotune.ops import compute_def
from autotune.schedule import Schedule
from autotune.search_spaces import Choice, Config, ConfigSpace, template


class Rules:
    def applies(self, workload, target):
        return len(workload.nodes) == 1

    def space(self, workload, target):
        return ConfigSpace((Choice("tile", (2, 4)),))

    def default(self, workload, target):
        return Config.of(tile=2)

    def schedule(self, workload, config, target, interface):
        return Schedule(compute_def(workload)).split("out0", "i0", config.get_int("tile"))


@template("mine.right", op="relu")
class Right(Rules):
    pass


@template("mine.unknown_default", op="relu")
class UnknownDefault(Rules):
    def default(self, workload, target):
        return Config.of(tile=3)


@template("mine.refuses", op="relu")
class Refuses(Rules):
    def schedule(self, workload, config, target, interface):
        return Schedule(compute_def(workload)).split("out0", "nothing", 2)


@template("mine.random", op="relu")
class Random(Rules):
    def schedule(self, workload, config, target, interface):
        return Schedule(compute_def(workload)).split("out0", "i0", random.SystemRandom().randrange(2, 1 << 20))
"""


@pytest.fixture
def imported(tmp_path: Path, own_plugins: None) -> str:
    """A file with templates of a plugin."""
    from autotune.measure.extensions import load_extensions

    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    load_extensions([str(path), str(EXAMPLE)])
    return str(path)


def test_the_example_keeps_the_contract(imported: str) -> None:
    check_template("l1_distance.lanes", [WORKLOAD], target=TARGET, samples=3, imports=[str(EXAMPLE)])
    check_operator(WORKLOAD, target=TARGET, samples=0, imports=[str(EXAMPLE)])


def test_what_is_wrong_is_named(imported: str) -> None:
    check_template("mine.right", ["relu data=64"], target=TARGET, imports=[imported])
    for name, workload, said in (
        ("mine.right", "relu data=64 + exp", r"mine.right on relu data=64 \+ exp: it does not apply"),
        ("mine.unknown_default", "relu data=64", "mine.unknown_default on relu data=64: .*3"),
        ("mine.refuses", "relu data=64", "with .*: the default is refused: .*nothing"),
        ("mine.random", "relu data=4194304", "it gives other code each time"),
    ):
        with pytest.raises(AssertionError, match=said):
            check_template(name, [workload], target=TARGET, imports=[imported])
