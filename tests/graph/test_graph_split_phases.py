"""Transposed convolutions in groups as convolutions of their phases."""

from __future__ import annotations

import pytest

from autotune.ops.workload import AttrValue
from tests.graph.test_graph_passes import Net, ops, run_pass

SPLIT = ["reshape", "transpose", "reshape"]


def transposed(net: Net, weight: str, rank: int, groups: int, **attrs: AttrValue) -> str:
    plain: dict[str, AttrValue] = {
        "stride": (2,) * rank, "pad": (0,) * (2 * rank), "dilation": (1,) * rank, "output_padding": (0,) * rank,
    }  # fmt: skip
    return net.op(f"conv_transpose{rank}d", net.x, weight, **{**plain, "groups": groups, **attrs})


@pytest.mark.parametrize(
    ("rank", "groups", "window", "attrs", "cut"),
    [
        (2, 2, (4, 4), {}, False),
        (2, 4, (3, 3), {"stride": (3, 3)}, False),
        (2, 2, (4, 4), {"pad": (1, 0, 1, 2)}, True),
        (2, 2, (2, 6), {"stride": (1, 3), "pad": (0, 2, 0, 1)}, True),
        (2, 2, (4, 2), {"pad": (1, 1, 1, 1), "output_padding": (1, 1)}, True),
        (1, 3, (4,), {}, False),
        (3, 2, (2, 2, 4), {"pad": (0, 0, 1, 0, 0, 1)}, True),
    ],
)
def test_phases(rank: int, groups: int, window: tuple[int, ...], attrs: dict[str, AttrValue], cut: bool) -> None:
    """`run_pass` checks that the values are the same."""
    net = Net(2, 12, *(4, 5, 3)[:rank])
    y = transposed(net, net.random(12, 2, *window), rank, groups, **attrs)
    assert ops(run_pass(net.graph(y), "split-phases")) == [f"conv{rank}d", *SPLIT, *(["slice"] if cut else [])]


@pytest.mark.parametrize(
    ("filters", "groups", "window", "attrs"),
    [
        (2, 1, (4, 4), {}),  # there is a template for one group
        (1, 12, (4, 4), {}),  # and a fast way for one channel
        (2, 2, (3, 3), {}),  # a phase with fewer taps would multiply zeros with what may be infinite
        (2, 2, (4, 4), {"dilation": (2, 2)}),
        (2, 2, (2, 2), {"output_padding": (1, 1)}),  # zeros behind all phases
    ],
)
def test_others_stay(filters: int, groups: int, window: tuple[int, int], attrs: dict[str, AttrValue]) -> None:
    net = Net(1, 12, 4, 5)
    graph = net.graph(transposed(net, net.random(12, filters, *window), 2, groups, **attrs))
    assert run_pass(graph, "split-phases") is graph
