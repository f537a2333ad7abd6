"""Forests: what XGBoost learned, evaluated without it; files that do not fit are refused."""

from __future__ import annotations

import hashlib
import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import xgboost

from autotune.cost_model.features import Features
from autotune.cost_model.forest import MAGIC, Forest, forest_of
from autotune.errors import CostModelError

NAMES = ("work", "loads", "rows")


def trained(seed: int = 0) -> tuple[Forest, list[xgboost.Booster], np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """A forest of two models, what it was made of, and what they were trained on."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((200, 3)).astype(np.float32)
    labels = values[:, 0] * values[:, 1] + np.abs(values[:, 2])
    boosters = [
        xgboost.train({"max_depth": 4, "seed": n, "nthread": 1, "base_score": 0.0}, xgboost.DMatrix(values, labels), 20)
        for n in range(2)
    ]
    return forest_of([b.get_dump(dump_format="json") for b in boosters], NAMES, 1, note="test"), boosters, values


def test_it_says_what_xgboost_says() -> None:
    forest, boosters, values = trained()
    expected = np.stack([b.predict(xgboost.DMatrix(values)) for b in boosters])
    got = forest.each(Features(NAMES, values))
    assert np.allclose(got, expected, atol=1e-5)
    assert np.allclose(forest.predict(Features(NAMES, values)), expected.mean(0), atol=1e-5)


def test_a_file_gives_the_same_forest(tmp_path: Path) -> None:
    forest, _, values = trained()
    path = tmp_path / "model.forest"
    path.write_bytes(forest.to_bytes())
    again = Forest.read(path)
    assert again.note == "test" and again.key == forest.key and again.to_bytes() == forest.to_bytes()
    assert (again.predict(Features(NAMES, values)) == forest.predict(Features(NAMES, values))).all()


def test_other_features_are_refused() -> None:
    forest, _, values = trained()
    with pytest.raises(CostModelError, match="lacks 'work'"):
        forest.predict(Features(("other", "loads", "rows"), values))
    with pytest.raises(CostModelError, match="version"):
        forest.predict(Features(NAMES, values, version=99))


@pytest.mark.parametrize("models", [1, 2, 4])
def test_two_forests_say_the_sum_of_what_each_says_however_many_models_they_have(models: int) -> None:
    first, boosters, values = trained()
    dumps = [boosters[n % 2].get_dump(dump_format="json")[n // 2 :] for n in range(models)]
    second = forest_of(dumps, NAMES, 1, note="other")
    features = Features(NAMES, values)
    assert np.allclose(
        first.plus(second).predict(features), first.predict(features) + second.predict(features), atol=1e-5
    )


def test_more_features_do_not_change_what_is_known() -> None:
    forest, _, values = trained()
    wider = ("before", *reversed(NAMES), "behind")
    more = np.concatenate([np.full((200, 1), 7, np.float32), values[:, ::-1], np.ones((200, 1), np.float32)], axis=1)
    expected = forest.predict(Features(NAMES, values))
    assert (forest.over(wider).predict(Features(wider, more)) == expected).all()
    with pytest.raises(CostModelError, match="'loads'"):
        forest.over(("work", "rows"))


def test_no_damage_gets_through(tmp_path: Path) -> None:
    """Any byte changed, any length: refused in one line, or harmless."""
    forest, _, values = trained()
    data, rng = forest.to_bytes(), random.Random(0)
    for _ in range(300):
        bad = bytearray(data[: rng.randrange(len(data))] if rng.random() < 0.3 else data)
        for _ in range(rng.randint(1, 4) if bad else 0):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        if rng.random() < 0.7:  # as if somebody had made the checksum right again
            packed = bytes(bad).partition(b"\n")[2]
            bad = bytearray(MAGIC + hashlib.sha256(packed).hexdigest().encode() + b"\n" + packed)
        with suppress(CostModelError):
            found = Forest.from_bytes(bytes(bad), "FILE")
            if found.names == NAMES and found.version == 1:
                found.predict(Features(NAMES, values))
    with pytest.raises(CostModelError, match="cannot read"):
        Forest.read(tmp_path / "none")


def test_trees_too_deep_for_tables_are_refused() -> None:
    nodes = 2 * 13 + 1
    feature, child = np.full(nodes, -1, np.int16), np.zeros(nodes, np.int32)
    feature[:-1:2], child[:-1:2] = 0, np.arange(1, nodes, 2)
    child[:-1:2] = np.arange(1, nodes, 2)
    chain = Forest(
        ("work",), 1, feature, np.zeros(nodes, np.float32), child, np.zeros(1, np.int32), np.zeros(1, np.int32)
    )
    with pytest.raises(CostModelError, match="more than 12 levels"):
        Forest.from_bytes(chain.to_bytes())
