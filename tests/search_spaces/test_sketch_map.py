"""Sketches of maps: what they see, in which layouts, and that all of their nests compute the definition."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotune.errors import CodegenError
from autotune.ops import parse_workload
from autotune.ops.workload import Workload
from autotune.search_spaces import Config, lookup, templates_for
from autotune.search_spaces.sketch.batch import Batch, Decoder
from autotune.search_spaces.sketch.mapping import mapping
from autotune.search_spaces.sketch.space import SketchSpace, tiling
from autotune.search_spaces.space.interface import Interface
from autotune.target import Target
from autotune.tensor.layout import Layout
from tests.search_spaces.generic_cases import random_interface, random_workload
from tests.search_spaces.matmul_cases import wrong
from tests.targets import fixed

TARGETS = ("native -num-cores=2", "x86 -mcpu=haswell -num-cores=2")
FIXED = fixed("x86 -mcpu=x86-64-v4 -num-cores=2")
POOL = "max_pool data=1,4,8,9,20 kernel=3,3,3 stride=1,1,1 pad=1,1,1,1,1,1"
MAPS = (
    "transpose data=40,37 perm=1,0",
    "transpose data=2,5,6,20 perm=0,2,1,3",
    POOL,
    "avg_pool data=1,16,14,15 kernel=3,3 stride=2,2 pad=1,1,1,1",
    "reduce_max data=9,10,20 axes=1",
    "add a=1,6,5,20 b=1,6,1,1 + gelu",
)


def space_of(text: str, target: Target = FIXED) -> SketchSpace:
    space = lookup("sketch.map").space(parse_workload(text), target)
    assert isinstance(space, SketchSpace)
    return space


def check_sample(workload: Workload, target: Target, rng: random.Random) -> None:
    template = lookup("sketch.map")
    config = template.space(workload, target).sample(rng)
    interface = random_interface(workload, rng) if rng.random() < 0.4 else None
    try:
        failure = wrong(workload, template.schedule(workload, config, target, interface), target)
    except CodegenError as error:  # of the many nests of a space some are long, and are refused when they are built
        assume("unroll less" not in str(error))
        raise
    assert failure is None, f"{workload.to_json()} {config.to_json()} {interface and interface.to_json()}: {failure}"


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_nests_of_maps(seed: int) -> None:
    rng = random.Random(seed)
    check_sample(parse_workload(rng.choice(MAPS)), Target.parse(rng.choice(TARGETS)), rng)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_nests_of_random_workloads(seed: int) -> None:
    rng = random.Random(seed)
    workload, target = random_workload(rng), Target.parse(rng.choice(TARGETS))
    assume(lookup("sketch.map").applies(workload, target))
    check_sample(workload, target, rng)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", MAPS)
def test_untuned_choices_are_right(text: str, target: str) -> None:
    workload, chosen = parse_workload(text), Target.parse(target)
    template = lookup("sketch.map")
    assert wrong(workload, template.schedule(workload, template.default(workload, chosen), chosen), chosen) is None


def test_what_a_map_is() -> None:
    pool = mapping(parse_workload(POOL), FIXED)
    assert pool is not None and not pool.product
    assert [a.extent for a in pool.reduce] == [3, 3, 3] and pool.edges == (2, 3, 4)
    assert [f.tensor for f in pool.reads] == ["in0"] and pool.factors[-1].tensor == "out0"
    for text in ("softmax data=4,8 axis=1", "cumsum data=9,20 axis=1", "gather data=30,20 indices=8:i64 axis=0",
                 "matmul a=8,16 b=const:16,32"):  # fmt: skip
        assert mapping(parse_workload(text), FIXED) is None


def test_large_transposes_begin_with_a_sketch() -> None:
    def first(text: str) -> str:
        return templates_for(parse_workload(text), FIXED)[0].name

    assert first("transpose data=2048,2048 perm=1,0") == "sketch.map"
    assert first("transpose data=64,64 perm=1,0") == "generic"
    assert first("relu data=2048,2048") == "generic"


@pytest.mark.parametrize(("stride", "first"), [(1, "sketch.map"), (2, "generic")])
def test_windows_one_step_apart_begin_with_what_should_be_faster(stride: int, first: str) -> None:
    pool = parse_workload(f"max_pool data=1,64,20,20 kernel=5,5 stride={stride},{stride} pad=2,2,2,2")
    assert templates_for(pool, FIXED)[0].name == first


def test_vectors_lie_along_what_is_innermost_in_the_layouts_asked_for() -> None:
    workload = parse_workload("add a=1,32,5,20 b=1,32,1,1")
    blocked = Layout.blocked(4, [(1, 16)])
    config = space_of("add a=1,32,5,20 b=1,32,1,1").sample(random.Random(3))
    schedule = lookup("sketch.map").schedule(workload, config, FIXED, Interface((blocked,) * 3))
    (vector,) = (x.name for x in schedule.state.stage("out0").loops if x.mark == "vectorize")
    assert vector.startswith("i1.")
    plain = lookup("sketch.map").schedule(workload, config, FIXED)
    (vector,) = (x.name for x in plain.state.stage("out0").loops if x.mark == "vectorize")
    assert vector.startswith("i3.")


@pytest.mark.parametrize("text", [MAPS[0], POOL])
def test_many_nests_as_arrays_are_the_same_nests(text: str) -> None:
    space, rng = space_of(text), np.random.default_rng(0)
    decoder = Decoder(space.numbers.c, space.knobs, FIXED)
    numbers = rng.integers(0, decoder.sizes, (200, len(decoder.sizes)))
    configs = [Config.of((k.name, k.values[n]) for k, n in zip(space.knobs, row)) for row in numbers]
    batch = decoder.batch(numbers)
    known = Batch.of(space.numbers.c, [tiling(space.numbers.c, config) for config in configs])
    assert (known.block == batch.block).all() and (known.terms == batch.terms).all()
    assert decoder.valid(batch).tolist() == [space.satisfies(config) for config in configs]
    assert np.isfinite(space.numbers.of(batch)).all()
