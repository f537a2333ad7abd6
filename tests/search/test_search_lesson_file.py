"""Files of measured configs: what is written is read again, and teaches the same; what is damaged is refused."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest

from autotune.errors import CostModelError
from autotune.ops import parse_workload
from autotune.search.lesson_file import Measured, load, save
from autotune.search_spaces.space.config import Config
from autotune.search_spaces.space.registry import lookup
from autotune.target import Target

LINE = "matmul a=var:64,96 b=const:96,48"
TARGET = Target.parse("x86 -mcpu=haswell -num-cores=1")
SKETCH = "sketch.contraction"


def measured(count: int = 12, seed: int = 0) -> Measured:
    """Random configs of a product, of which the first failed."""
    space, rng = lookup(SKETCH).space(parse_workload(LINE), TARGET), random.Random(seed)
    configs = list(dict.fromkeys(space.sample(rng) for _ in range(count)))
    return Measured(LINE, TARGET, SKETCH, {c: math.inf if not n else float(f"{n}e-6") for n, c in enumerate(configs)})


def test_what_was_measured_is_read_again(tmp_path: Path) -> None:
    one = measured()
    other = Measured("softmax data=8,8", TARGET, "plain", {Config.of(): 2e-6})
    save(tmp_path / "a", [one, other])
    found = load(tmp_path / "a")
    assert [(m.workload, m.target, m.template) for m in found] == [
        (LINE, TARGET, SKETCH), ("softmax data=8,8", TARGET, "plain")
    ]  # fmt: skip
    assert [dict(m.seconds) for m in found] == [dict(one.seconds), dict(other.seconds)]
    before = (tmp_path / "a").read_bytes()
    save(tmp_path / "a", found)
    assert (tmp_path / "a").read_bytes() == before


def test_a_task_measured_twice_is_one_with_the_lower_times(tmp_path: Path) -> None:
    one = measured()
    slower = Measured(LINE, TARGET, SKETCH, {c: 2 * s for c, s in measured(20).seconds.items()})
    save(tmp_path / "a", [slower, one])
    (found,) = load(tmp_path / "a")
    assert len(found.seconds) == len({*one.seconds, *slower.seconds})
    assert all(found.seconds[config] == seconds for config, seconds in one.seconds.items())


def test_a_lesson_has_the_features_of_today_and_leaves_out_configs_that_are_gone() -> None:
    one = measured()
    lesson = one.lesson()
    assert lesson is not None and lesson.useful and lesson.operator == "matmul"
    assert len(lesson.features) == len(one.seconds) and np.isinf(lesson.seconds[0])
    before = {config.without("unroll"): 1e-6 for config in one.seconds}
    older = Measured(LINE, TARGET, SKETCH, before).lesson()
    assert older is not None and len(older.features) == len(before)
    gone = Measured(LINE, TARGET, SKETCH, {Config.of(tile=3): 1e-6})
    assert gone.lesson() is None
    assert Measured(LINE, TARGET, "generic", one.seconds).lesson() is None  # features of its own
    assert Measured(LINE, TARGET, "no.such", one.seconds).lesson() is None


def test_configs_get_the_knobs_of_today_and_lose_their_place_where_it_is_gone() -> None:
    one = measured()
    before = {config.without("unroll"): seconds for config, seconds in one.seconds.items()}
    today = Measured(LINE, TARGET, SKETCH, {**before, Config.of(tile=3): 1e-6}).today()
    assert today.seconds.keys() == {config.replace(unroll=1) for config in one.seconds}
    assert today.today().seconds == today.seconds
    assert not Measured(LINE, TARGET, "no.such", one.seconds).today().seconds


@pytest.mark.parametrize("damage", ["cut", "other", "no file", "format"])
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a"
    save(path, [measured()])
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "other":
        path.write_bytes(b"no lessons")
    elif damage == "format":
        import lzma

        path.write_bytes(lzma.compress(lzma.decompress(data).replace(b'"format": 1', b'"format": 9')))
    else:
        path.unlink()
    with pytest.raises(CostModelError) as refused:
        load(path)
    assert "\n" not in str(refused.value) and str(path) in str(refused.value)
