"""Programs of one model that read the same weights hold them once."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.compiler import alike as alike_module
from autotune.compiler.alike import as_packed
from autotune.compiler.compile import CompiledModel, compile_graph
from autotune.compiler.weights import PackedWeights
from autotune.graph import Graph
from autotune.graph.builder import GraphBuilder
from autotune.graph.ir import Array, Output, Value
from autotune.ops import parse_workload
from autotune.ops.workload import Workload
from autotune.search_spaces import Config, alike, check_config, default_config, lookup, make_schedule
from autotune.target import Target
from tests.targets import fixed

ZEN = fixed("x86 -mcpu=znver5 -num-cores=1")
HERE = Target.parse("native -num-cores=1")


def product(rows: int) -> Workload:
    return parse_workload(f"matmul a=1,{rows},256 b=const:256,384 + bias")


def panels(config: Config) -> tuple[object, ...]:
    tile = config.get_ints("tile")
    return config.get("vector"), config.get("lanes"), tile[-1], config.get("apart", False)


def test_products_of_other_extents_have_panels_alike() -> None:
    like = default_config(product(384), ZEN)
    for rows in (1, 2, 7, 24, 100, 512):
        workload = product(rows)
        found = alike(workload, like, ZEN, gap=100.0)
        if found is not None:  # few rows may have no such tile
            check_config(workload, found, ZEN)
            assert panels(found) == panels(like)
        assert rows < 7 or found is not None
    assert alike(product(24), like, ZEN, gap=-100.0) is None  # never that much faster than the default
    other = default_config(parse_workload("relu data=64"), ZEN)
    assert alike(product(24), other, ZEN, gap=100.0) is None


def test_panels_that_lie_apart_for_one_row_do_so_for_many_and_the_reverse() -> None:
    one, many = (parse_workload(f"matmul a={rows},1024 b=const:1024,4096") for rows in (1, 96))
    sketch = lookup("sketch.contraction")
    likes = [sketch.default(workload, ZEN).replace(template=sketch.name) for workload in (one, many)]
    assert [like.get("apart") for like in likes] == [True, False]
    likes = [like.replace(tile=(rows, 4)) for like, rows in zip(likes, (1, 4))]  # a tile that either may have
    for workload, like, of in ((many, likes[0], one), (one, likes[1], many)):
        found = alike(workload, like, ZEN, gap=100.0)
        assert found is not None and panels(found) == panels(like)
        states = [make_schedule(x, config, ZEN).state for x, config in ((workload, found), (of, like))]
        here, there = (state.layout(state.tensor("in1")) for state in states)
        assert here == there


def test_the_first_kernel_decides_and_what_reads_no_weights_is_left_alone() -> None:
    weights, asked = PackedWeights(), list[Workload]()

    def untuned(workload: Workload, strict: bool) -> Config:
        asked.append(workload)
        return default_config(workload, ZEN, strict_fp=strict)

    chosen = as_packed(untuned, weights, ZEN)
    first = chosen(product(384), False)
    assert first == default_config(product(384), ZEN)
    again = chosen(product(48), False)
    assert panels(again) == panels(first) or panels(again) == panels(default_config(product(48), ZEN))
    free = parse_workload("matmul a=1,48,256 b=1,256,384")
    assert chosen(free, False) == default_config(free, ZEN)
    assert asked == [product(384), product(48), free]


def test_the_same_kernel_of_other_programs_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of experts, which have their own programs of the same kernels."""
    weights, looked = PackedWeights(), list[Workload]()

    def found(workload: Workload, like: Config, target: Target, gap: float, own: Config) -> Config | None:
        looked.append(workload)
        return None if workload == product(24) else like

    monkeypatch.setattr(alike_module, "alike", found)
    for _ in range(3):
        chosen = as_packed(lambda workload, strict: default_config(workload, ZEN, strict_fp=strict), weights, ZEN)
        assert chosen(product(384), False) == chosen(product(48), False) == default_config(product(384), ZEN)
        assert chosen(product(24), False) == default_config(product(24), ZEN)
    assert looked == [product(48), product(24)]


def test_programs_of_many_shapes_hold_one_copy_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike_module, "GAP", 100.0)  # whatever models expect of this CPU
    w = np.random.default_rng(0).standard_normal((256, 384)).astype(np.float32)

    def graph(rows: int) -> Graph:
        g = GraphBuilder("product")
        x = g.input(Value("x", "f32", (1, rows, 256)))
        y = g.emit("matmul", (x, g.constant(w, "w")), trans_a=False, trans_b=False)
        return g.build([Output("y", y)])

    def compiled(rows: int, weights: PackedWeights) -> CompiledModel:
        program = compile_graph(graph(rows), HERE, weights=weights)
        x: Array = np.random.default_rng(rows).standard_normal((1, rows, 256)).astype(np.float32)
        np.testing.assert_allclose(program.run({"x": x})[0], x @ w, rtol=1e-4, atol=1e-4)
        return program

    weights = PackedWeights()
    programs = [compiled(rows, weights) for rows in (384, 96, 24)]
    held: dict[int, int] = {}
    for program in programs:
        held |= program.constants.memory
    assert sum(held.values()) < 2 * w.nbytes
