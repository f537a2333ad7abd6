"""Recurrent networks of the zoo, as the exporter of PyTorch writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx

if TYPE_CHECKING:
    from benchmarks.zoo import Net

STEPS, WIDTH, LAYERS = 64, 512, 2


def lstm(net: Net) -> onnx.ModelProto:
    """Two LSTM layers over 64 embedded tokens of one sentence, a dense layer behind the last state: 0.5 GFLOP."""
    x = net.node("Transpose", "input", perm=[1, 0, 2])
    start = net.tensor(np.zeros((1, 1, WIDTH), np.float32))
    for _ in range(LAYERS):
        # Uniform in ± 1 / sqrt(width), as torch.nn initialises them.
        w, r, b = (net.near(0.0, WIDTH**-0.5, (1, 4 * WIDTH, n)) for n in (WIDTH, WIDTH, 2))
        b = net.node("Reshape", b, net.shape(1, 8 * WIDTH))
        y = net.node("LSTM", x, w, r, b, "", start, start, hidden_size=WIDTH)
        x = net.node("Squeeze", y, net.shape(1))
    last = net.node("Gather", x, net.index(-1), axis=0)
    return net.finish(net.dense(last, WIDTH, 1000), (1, STEPS, WIDTH))
