"""Families join workloads that differ in extents, and order them by how much."""

from __future__ import annotations

import pytest

from autotune.ops import parse_workload
from autotune.ops.family import distance, family_key

CONV = parse_workload("conv2d data=1,64,56,56 weight=64,64,3,3 pad=1 + relu")


@pytest.mark.parametrize(
    "text",
    [
        "conv2d data=8,64,56,56 weight=64,64,3,3 pad=1",  # batch, and no epilogue
        "conv2d data=1,128,28,28 weight=128,128,3,3 pad=1 + relu",
        "conv2d data=1,64,56,56 weight=64,64,1,1 stride=2",
    ],
)
def test_sizes_and_what_follows_make_no_other_family(text: str) -> None:
    assert family_key(parse_workload(text)) == family_key(CONV)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("conv2d data=1,64,56,56 weight=64,64,3,3", "conv2d data=1,64,56,56:f16 weight=64,64,3,3:f16"),
        ("matmul a=8,8 b=8,8", "matmul a=2,8,8 b=2,8,8"),
        ("matmul a=8,8 b=8,8", "matmul a=8,8 b=8,8 trans_b=true"),
        ("relu data=64", "relu data=64 + exp"),
        ("resize data=1,2,8,8 sizes=1,2,16,16", "resize data=1,2,8,8 sizes=1,2,16,16 mode=linear"),
    ],
)
def test_types_ranks_names_and_flags_do(text: str, other: str) -> None:
    assert family_key(parse_workload(text)) != family_key(parse_workload(other))


def test_the_nearest_has_the_most_similar_extents() -> None:
    texts = (
        "conv2d data=1,64,56,56 weight=64,64,3,3 pad=1",
        "conv2d data=2,64,56,56 weight=64,64,3,3 pad=1",
        "conv2d data=1,64,28,28 weight=64,64,3,3 pad=1",
        "conv2d data=1,256,14,14 weight=256,256,3,3 pad=1",
    )
    distances = [distance(CONV, parse_workload(text)) for text in texts]
    assert distances == [0.0, 1.0, 2.0, 10.0]
    assert distance(CONV, parse_workload("conv2d data=1,64,56,56 weight=64,64,3,3 pad=1 stride=2")) == 1.0


def test_distance_is_symmetric_and_knows_empty_extents() -> None:
    empty, full = parse_workload("relu data=0,8"), parse_workload("relu data=4,8")
    assert distance(empty, full) == distance(full, empty) == 2.0
