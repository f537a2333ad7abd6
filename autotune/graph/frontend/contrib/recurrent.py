"""DynamicQuantizeLSTM of ONNX Runtime: an LSTM whose weights are bytes.

The inputs of all steps are quantised by their range and multiplied in integers, as ONNX Runtime does it. It quantises
the states, too, anew in each step; here they stay real, and meet recurrent weights that are made real once: a result
of higher precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotune.errors import ModelError
from autotune.graph.frontend.contrib.attention import refuse
from autotune.graph.frontend.contrib.quantization import real_product
from autotune.graph.frontend.node import OnnxNode, contributed
from autotune.graph.frontend.quantization import dynamic_quantize_linear
from autotune.graph.frontend.recurrent import lstm_layer

W, R, W_SCALE, R_SCALE = 1, 2, 8, 10  # a zero point comes behind each scale


@contributed("DynamicQuantizeLSTM", inputs=12)
def dynamic_quantize_lstm(node: OnnxNode) -> Sequence[str]:
    """(all states, the last one, the last cells), as of LSTM.

    W (directions, features, 4·hidden) and R (directions, hidden, 4·hidden) have a scale and a zero point for each
    direction or for each of its columns.
    """
    refuse(node, 12, "more", "layout")
    for position in (W, R):
        if node.rank(position) != 3 or node.value(position).dtype not in ("i8", "u8"):
            raise ModelError(f"{node.label}: input {position}, {node.value(position)}, is no 3-D tensor of bytes")
    turned = [node.transposed(node.input(position), (0, 2, 1)) for position in (W, R)]
    scale, zero = (node.reshaped(_of_columns(node, p, R), (*node.shape(R)[::2], 1)) for p in (R_SCALE, R_SCALE + 1))
    recurrent = node.emit("dequantize", turned[1], scale, zero, to="f32")
    inner = replace(node, inputs=(node.input(0), turned[0], recurrent, *node.inputs[3:W_SCALE]))
    return lstm_layer(inner, _products(node))


def _products(node: OnnxNode) -> str:
    """(steps·batch, directions·4·hidden)"""
    steps, batch, features = node.shape() if node.rank() == 3 else (0, 0, 0)
    directions, depth, each = node.shape(W)
    if depth != features:
        raise ModelError(f"{node.label}: weights of shape {node.shape(W)} for data of shape {node.shape()}")
    quantised, scale, zero = dynamic_quantize_linear(node)
    weight = node.reshaped(node.transposed(node.input(W), (1, 0, 2)), (features, directions * each))
    rows = node.reshaped(quantised, (steps * batch, features))
    scales, zeros = (node.reshaped(_of_columns(node, p, W), (directions * each,)) for p in (W_SCALE, W_SCALE + 1))
    return real_product(node, (rows, weight, zero, zeros), scale, scales)


def _of_columns(node: OnnxNode, position: int, weight: int) -> str:
    """(directions, 4·hidden): a weight's scale or zero point, of which there is one for each direction or column."""
    directions, _, columns = node.shape(weight)
    shape = node.shape(position)
    if shape not in ((directions,), (directions, columns)):
        raise ModelError(f"{node.label}: input {position} has shape {shape}, needs ({directions},) "
                         f"or ({directions}, {columns})")  # fmt: skip
    each = node.reshaped(node.input(position), (directions, columns if len(shape) == 2 else 1))
    return node.expanded(each, (directions, columns))
