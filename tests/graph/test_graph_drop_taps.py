"""Convolutions whose windows reach beyond the image wherever they are."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotune.graph import Graph, Value
from autotune.graph.passes import PASSES
from autotune.ops.workload import AttrValue
from tests.graph.test_graph_passes import Net, run_pass


def convolution(net: Net, weight: str, **attrs: AttrValue) -> Graph:
    plain: dict[str, AttrValue] = {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    return net.graph(net.op("conv2d", net.x, weight, **{**plain, **attrs}))


@pytest.mark.parametrize(
    ("attrs", "window", "pad", "dilation"),
    [
        ({"dilation": (24, 24), "pad": (24, 24, 24, 24)}, (1, 1), (0, 0, 0, 0), (1, 1)),
        ({"dilation": (6, 3), "pad": (6, 3, 6, 3)}, (1, 3), (0, 3, 0, 3), (1, 3)),
        ({"dilation": (1, 5), "pad": (0, 7, 1, 5)}, (3, 2), (0, 2, 1, 5), (1, 5)),
        ({"dilation": (7, 7), "pad": (7, 7, 7, 7), "stride": (2, 2)}, (1, 1), (0, 0, 0, 0), (1, 1)),
    ],
)
def test_taps_in_the_padding_are_dropped(
    attrs: dict[str, AttrValue], window: tuple[int, ...], pad: tuple[int, ...], dilation: tuple[int, ...]
) -> None:
    """`run_pass` checks that the values are the same."""
    net = Net(2, 3, 5, 5)
    graph = run_pass(convolution(net, net.random(4, 3, 3, 3), **attrs), "drop-taps")
    (node,) = graph.nodes
    assert graph.values[node.inputs[1]].shape[2:] == window
    assert (node.int_tuple("pad"), node.int_tuple("dilation")) == (pad, dilation)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_window(data: st.DataObject) -> None:
    pair, small = st.tuples(*[st.integers(1, 4)] * 2), st.integers(0, 9)
    image, window, stride = data.draw(pair), data.draw(pair), data.draw(pair)
    dilation = data.draw(st.tuples(*[st.integers(1, 6)] * 2))
    pad = data.draw(st.tuples(small, small, small, small))
    reach = [(w - 1) * step + 1 for w, step in zip(window, dilation, strict=True)]
    assume(all(image[d] + pad[d] + pad[d + 2] >= reach[d] for d in range(2)))
    net = Net(1, 2, *image)
    graph = convolution(net, net.random(2, 2, *window), stride=stride, pad=pad, dilation=dilation)
    run_pass(graph, "drop-taps")


def test_others_stay() -> None:
    """Where each tap reads the image once, none ever does, or weights come from a run."""
    net = Net(1, 3, 5, 5)
    far: dict[str, AttrValue] = {"dilation": (9, 9), "pad": (9, 9, 9, 9)}
    weights = net.builder.input(Value("weights", "f32", (4, 3, 3, 3)))
    for graph in (
        convolution(net, net.random(4, 3, 3, 3), dilation=(4, 4), pad=(4, 4, 4, 4)),
        convolution(net, net.random(4, 3, 1, 1), stride=(9, 9), pad=(2, 2, 4, 4)),
        convolution(net, weights, **far),
    ):
        assert PASSES["drop-taps"](graph) is graph
