"""Duels between the untuned choices of two trees, or of two sets of templates."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from autotune.ops import parse_workload
from autotune.search_spaces.space.registry import default_config
from autotune.target import Target
from benchmarks import duel
from benchmarks.report import Row
from tests.graph.graph_models import build, random

ONE = Target.parse("native -num-cores=1")
PRODUCT = parse_workload("matmul a=var:16,24 b=const:24,32")


@pytest.fixture
def model(tmp_path: Path) -> str:
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    path = tmp_path / "model.onnx"
    onnx.save(build(node, {"x": random(1, 16, 12, 12)}, {"w": random(32, 16, 3, 3)}), path)
    return str(path)


def test_templates_of_one_tree_are_timed_in_turn(model: str, tmp_path: Path) -> None:
    figures, lock = tmp_path / "figures.json", tmp_path / "lock"
    words = [model, "--templates", "conv2d.winograd*", "sketch.*", "--only", "conv2d", "--lock", str(lock)]
    assert duel.main([*words, "--quick", "--json", str(figures)]) == 0
    found = json.loads(figures.read_text())
    (row,), (whole,) = found["tables"]["kernels"], found["tables"]["models"]
    assert "conv2d.winograd" in row["old"] and "sketch.contraction" in row["new"]
    assert row["old / new"] == pytest.approx(row["old µs"] / row["new µs"]) and row["uses"] == 1
    assert (whole["kernels"], whole["failed"]) == (1, 0) and whole["mean"] == pytest.approx(row["old / new"])


def test_kernels_of_another_tree_are_kept_with_their_code(model: str, tmp_path: Path) -> None:
    path, figures = tmp_path / "old.kernels", tmp_path / "figures.json"
    assert duel.main([model, "--write", str(path)]) == 0
    assert duel.main([model, "--against", str(path), "--quick", "--json", str(figures)]) == 0
    found = json.loads(figures.read_text())
    assert found["tables"]["kernels"] == [] and found["claims"][0]["value"] is None  # the same tree, the same code


def test_only_kernels_that_differ_fight(tmp_path: Path) -> None:
    path = tmp_path / "kernels"
    choices = {PRODUCT.key: PRODUCT}
    first = duel.built(choices, default_config, ONE)
    duel.keep(path, first, ONE)
    assert duel.kept(path, ONE) == first
    other = duel.built(choices, duel.of_templates("generic"), ONE)
    uses = [duel.Use("m", PRODUCT, 3.0)]
    assert list(duel.fights(uses, first, duel.kept(path, ONE))) == []
    ((use, old, new),) = duel.fights(uses, first, other)
    assert (use.count, old, new) == (3.0, first[PRODUCT.key], other[PRODUCT.key])
    assert duel.built(choices, duel.of_templates("no such"), ONE) == {}


def test_sums_count_uses_and_failures_count_for_nothing() -> None:
    rows: list[Row] = [
        {"model": "m", "uses": 2, "old µs": 10.0, "new µs": 5.0, "old / new": 2.0, "note": ""},
        {"model": "m", "uses": 1, "old µs": 10.0, "new µs": 20.0, "old / new": 0.5, "note": ""},
        {"model": "m", "uses": 9, "old µs": float("nan"), "new µs": 1.0, "old / new": float("nan"), "note": "wrong"},
    ]
    found = duel.summary(rows)
    assert (found["kernels"], found["failed"], found["worst"]) == (3, 1, 0.5)
    assert (found["old ms"], found["new ms"], found["mean"]) == pytest.approx((0.03, 0.03, 1.0))


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_files_that_hold_no_kernels_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "kernels"
    path.write_bytes(content)
    with pytest.raises(SystemExit, match="is no file of"):
        duel.kept(path, ONE)


def test_kernels_of_another_target_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "kernels"
    duel.keep(path, {}, ONE)
    with pytest.raises(SystemExit, match="give --target"):
        duel.kept(path, Target.parse("x86 -mcpu=haswell -num-cores=1"))
