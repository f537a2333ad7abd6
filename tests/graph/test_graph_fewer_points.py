"""Winograd's tiles are smaller where errors would add up; the plan is the model's, whatever the machine."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import WorkloadError
from autotune.graph import Graph, Output, Value
from autotune.graph.builder import GraphBuilder
from autotune.graph.passes import PASSES
from autotune.graph.passes.fewer_points import MOST
from autotune.ops import parse_workload
from autotune.ops.workload import AttrValue
from autotune.search_spaces import templates_for
from autotune.target import Target
from autotune.tensor.dtype import DType
from autotune.tensor.rounding import sum_error

PLAIN: dict[str, AttrValue] = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}


def chain(*sides: int, channels: int = 64, dtype: str = "f32", constant: bool = True, dense: int = 0) -> Graph:
    """Convolutions of 3 x 3 of images with such sides, one a model of its own; and products of matrices."""
    net, outputs = GraphBuilder("net"), []
    for number, side in enumerate(sides):
        x = net.input(Value(f"x{number}", dtype, (1, channels, side, side)))
        weight = np.zeros((8, channels, 3, 3), DType(dtype).numpy)
        w = net.constant(weight) if constant else net.input(Value(f"w{number}", dtype, weight.shape))
        outputs.append(Output(f"y{number}", net.emit("conv2d", (x, w), "conv", "", **PLAIN)))
    for number in range(dense):
        x = net.input(Value(f"a{number}", "f32", (8, 576)))
        outputs.append(
            Output(
                f"b{number}",
                net.emit(
                    "matmul",
                    (x, net.constant(np.zeros((576, 8), np.float32))),
                    "product",
                    "",
                    trans_a=False,
                    trans_b=False,
                ),
            )
        )
    return net.build(outputs)


def points(graph: Graph) -> list[AttrValue]:
    """Of each convolution; 8 where it may have as many as there are."""
    after = PASSES["fewer-points"](graph)
    return [dict(node.attrs).get("points", 8) for node in after.nodes if node.op == "conv2d"]


def test_large_tiles_alone_err_too_much() -> None:
    assert points(chain(96, 96)) == [7, 7]


def test_they_stay_where_plain_sums_err_as_well() -> None:
    """Errors of many products outweigh those of one convolution."""
    assert points(chain(96, dense=4)) == [8]


def test_what_loses_the_least_gives_way_and_no_more_than_has_to() -> None:
    """60 pixels are ten tiles of six and twelve of five, 96 are sixteen and twenty: 656 points more, and 3216."""
    assert points(chain(96, 60, dense=3)) == [8, 7]
    assert points(chain(96, 60, dense=2)) == [8, 7]
    assert points(chain(96, 60, dense=5)) == [8, 8]


def test_tiles_of_seven_points_give_way_to_those_of_six() -> None:
    """15 pixels are three tiles of five. The error of a sum of very many products grows faster than a plain sum's."""
    assert points(chain(15, channels=512)) == [8]
    assert points(chain(15, channels=2048)) == [6]


def test_small_images_have_small_tiles_anyway() -> None:
    given = chain(8, 8)
    assert PASSES["fewer-points"](given) is given


@pytest.mark.parametrize("kind", [{"dtype": "f16"}, {"constant": False}, {"channels": 12}])
def test_others_stay(kind: dict[str, object]) -> None:
    """What is computed in other floats, has no weights to transform, or too few channels to fill vectors."""
    given = chain(96, 96, **kind)  # type: ignore[arg-type]
    assert PASSES["fewer-points"](given) is given


def test_it_is_done_once() -> None:
    after = PASSES["fewer-points"](chain(96, 96))
    assert PASSES["fewer-points"](after) is after


def test_parts_of_a_sum_err_less_than_the_whole_and_amplified_ones_more() -> None:
    assert sum_error(1) < sum_error(64) < sum_error(4096) < sum_error(4096, part=4096)
    assert sum_error(64, amplified=MOST) > sum_error(64)


@pytest.mark.parametrize(
    ("most", "names"),
    [(8, {"f6", "f5", "f4", "f4x2", "f2"}), (7, {"f5", "f4", "f4x2", "f2"}), (6, {"f4", "f4x2", "f2"})],
)
def test_tiles_have_no_more_points_than_a_convolution_allows(most: int, names: set[str]) -> None:
    workload = parse_workload(f"conv2d data=1,64,56,56 weight=64,64,3,3 pad=1 points={most}")
    templates = {entry.name for entry in templates_for(workload, Target.parse("x86 -mcpu=haswell"))}
    assert {name.removeprefix("conv2d.winograd_") for name in templates if "winograd_f" in name} == names


@pytest.mark.parametrize(("points", "words"), [(9, "more than the 8"), (0, "at least 1")])
def test_impossible_numbers_of_points_are_refused(points: int, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        parse_workload(f"conv2d data=1,64,56,56 weight=64,64,3,3 points={points}")
