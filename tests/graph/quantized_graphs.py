"""Random quantised graphs whose scales are powers of two: all that they say is exact in f32, ties included."""

from __future__ import annotations

import random

import numpy as np

from autotune.graph.builder import GraphBuilder
from autotune.graph.ir import Array, Graph, Output, Value
from autotune.ops.workload import AttrValue

DTYPES = {"u8": np.uint8, "i8": np.int8}
NARROW = ((1, 2, 4, 6), 48, 4_000)
WIDE = ((3, 16, 20, 32), 80, 20_000)
"""Channels of the input, and at which number of channels and of elements a graph ends: of vectors, or of less."""


class Quantized:
    """A graph of quantised values as it grows; methods take and give names of real values."""

    def __init__(self, seed: int) -> None:
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.builder = GraphBuilder("quantised")
        self.kind = self.rng.choice(("u8", "i8"))

    def feeds(self, graph: Graph) -> dict[str, Array]:
        return {v.name: self.numbers.integers(-64, 64, v.shape).astype(np.float32) / 16 for v in graph.inputs}

    def input(self, *shape: int) -> str:
        return self.builder.input(Value("x", "f32", shape))

    def constant(self, array: Array) -> str:
        return self.builder.constant(array)

    def emit(self, op: str, *inputs: str, **attrs: AttrValue) -> str:
        return self.builder.emit(op, inputs, op, "", **attrs)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.builder.values[name].shape

    def scale(self) -> Array:
        return np.asarray(2.0 ** self.rng.randint(-6, -2), np.float32)

    def zero(self, kind: str) -> Array:
        info = np.iinfo(DTYPES[kind])
        return np.asarray(self.rng.choice((0, info.min, info.max, (info.min + info.max + 1) // 2, 5)), DTYPES[kind])

    def quantized(self, name: str, same: tuple[str, str] | None = None) -> str:
        """Quantised and dequantised again; on the grid `same` (scale, zero point) if one is given."""
        scale, zero = same or (self.constant(self.scale()), self.constant(self.zero(self.kind)))
        to = self.builder.values[zero].dtype
        return self.emit("dequantize", self.emit("quantize", name, scale, zero, to=to), scale, zero, to="f32")

    def weight(self, shape: tuple[int, ...], axis: int) -> str:
        """A constant of bytes, dequantised by one scale or by one per element of an axis."""
        kind = self.rng.choice(("i8", "i8", "u8"))
        info = np.iinfo(DTYPES[kind])
        array = self.numbers.integers(info.min, info.max, shape, DTYPES[kind], endpoint=True)
        each = tuple(extent if d == axis else 1 for d, extent in enumerate(shape)) if self.rng.random() < 0.6 else ()
        scale = np.asarray(2.0 ** self.numbers.integers(-9, -5, each), np.float32)
        zero = np.zeros((), DTYPES[kind])
        if kind == "u8" or self.rng.random() < 0.3:
            zero = self.numbers.integers(info.min // 2, info.max, each).astype(DTYPES[kind]) + np.zeros(
                each, DTYPES[kind]
            )
        return self.emit(
            "dequantize", self.constant(array), self.constant(scale), self.constant(np.asarray(zero)), to="f32"
        )

    def convolution(self, x: str) -> str:
        rank, c = len(self.shape(x)) - 2, self.shape(x)[1]
        groups = self.rng.choice([g for g in (1, 1, 2, c) if c % g == 0])
        k = groups * self.rng.choice((1, 2, 3))
        window = tuple(self.rng.choice((1, 2, 3)) for _ in range(rank))
        pad = tuple(self.rng.choice((0, 1)) for _ in range(2 * rank))
        stride = (self.rng.choice((1, 1, 2)),) * rank
        if any(n + pad[d] + pad[d + rank] < window[d] for d, n in enumerate(self.shape(x)[2:])):
            return x
        weight = self.weight((k, c // groups, *window), 0)
        attrs: dict[str, AttrValue] = {"stride": stride, "pad": pad, "dilation": (1,) * rank, "groups": groups}
        return self.bias(self.emit(f"conv{rank}d", x, weight, **attrs), (1, k, *(1,) * rank))

    def product(self, x: str) -> str:
        rows, k, n = self.shape(x)[-2], self.shape(x)[-1], self.rng.choice((1, 3, 5))
        turned = self.rng.random() < 0.4
        weight = self.weight((n, k), 0) if turned else self.weight((k, n), 1)
        assert rows
        return self.bias(self.emit("matmul", x, weight, trans_a=False, trans_b=turned), (n,))

    def product_of_values(self, x: str) -> str:
        rank = len(self.shape(x))
        other = self.emit("transpose", self.emit("neg", x), perm=(*range(rank - 2), rank - 1, rank - 2))
        return self.emit("matmul", x, self.quantized(other), trans_a=False, trans_b=False)

    def function(self, x: str) -> str:
        """Much work on each element, which is exact: a power, and a root of it."""
        return self.emit("sqrt", self.emit("mul", x, x))

    def bias(self, name: str, shape: tuple[int, ...]) -> str:
        """Plus a bias, whole on the grid of the sum or not."""
        if self.rng.random() < 0.3:
            return name
        array = self.numbers.integers(-200, 200, shape)
        if self.rng.random() < 0.5:
            return self.emit("add", name, self.constant(array.astype(np.float32) / np.float32(64)))
        parameters = (np.asarray(2.0**-11, np.float32), np.zeros((), np.int32))
        made = self.emit("dequantize", self.constant(array.astype(np.int32)), *map(self.constant, parameters), to="f32")
        return self.emit("add", name, made)

    def bounds(self, x: str) -> str:
        if self.rng.random() < 0.5:
            return self.emit("relu", x)
        return self.emit("clip", x, min=self.rng.choice((0.0, -1.0)), max=self.rng.choice((1.0, 6.0)))

    def pool(self, x: str) -> str:
        rank = len(self.shape(x)) - 2
        if min(self.shape(x)[2:]) < 2:
            return x
        attrs: dict[str, AttrValue] = {
            "kernel": (2,) * rank, "stride": (self.rng.choice((1, 2)),) * rank, "dilation": (1,) * rank,
            "ceil_mode": False,
        }  # fmt: skip
        if self.rng.random() < 0.6:
            return self.emit("max_pool", x, pad=(self.rng.choice((0, 1)),) * 2 * rank, **attrs)
        return self.emit("avg_pool", x, pad=(0,) * 2 * rank, count_include_pad=False, **attrs)

    def movement(self, x: str) -> str:
        """The elements in another order or place, some more or some less; as many dimensions as before."""
        shape = self.shape(x)
        rank = len(shape)
        kind = self.rng.choice(("transpose", "slice", "pad", "reshape", "resize", "concat"))
        if kind == "transpose":
            return self.emit("transpose", x, perm=(*range(rank - 2), rank - 1, rank - 2))
        if kind == "slice":
            size = tuple(max(n - 1, 1) for n in shape)
            return self.emit("slice", x, begin=tuple(n - s for n, s in zip(shape, size)), size=size, step=(1,) * rank)
        if kind == "pad":
            return self.emit("pad", x, pads=(0,) * (2 * rank - 1) + (1,), value=self.rng.choice((0.0, 0.25, 0.0123)))
        if kind == "resize":
            sizes = (*shape[:-1], 2 * shape[-1])
            return self.emit(
                "resize", x, sizes=sizes, scales=(), mode="nearest", coordinates="asymmetric", rounding="floor",
                cubic_a=-0.75, antialias=False, exclude_outside=False, extrapolation=0.0, roi=(),
            )  # fmt: skip
        if kind == "concat":
            return self.emit("concat", x, self.quantized(self.emit("neg", x)), axis=rank - 1)
        flat = self.emit("reshape", x, shape=(shape[0], int(np.prod(shape[1:]))))
        return self.emit("reshape", flat, shape=(*shape[:-2], shape[-1], shape[-2]))

    def step(self, x: str, before: list[str]) -> str:
        """One more layer on x; `before` are values that it may be added to."""
        layers = (
            self.convolution, self.convolution, self.product, self.product_of_values, self.bounds, self.pool,
            self.function, self.movement,
        )  # fmt: skip
        made = self.rng.choice(layers)(x)
        same = [name for name in before if self.shape(name) == self.shape(made)]
        if same and self.rng.random() < 0.4:
            made = self.emit("add", made, self.rng.choice(same))
        return self.quantized(made) if self.rng.random() < 0.8 else made


def random_quantized(
    seed: int, channels: tuple[int, ...] = NARROW[0], most_channels: int = NARROW[1], most: int = NARROW[2]
) -> tuple[Graph, dict[str, Array]]:
    """A graph of a few layers and what to feed it."""
    net = Quantized(seed)
    rank = net.rng.choice((1, 2, 2))
    x = net.input(net.rng.choice((1, 2)), net.rng.choice(channels), *(net.rng.choice((3, 4, 6)) for _ in range(rank)))
    values = [net.quantized(x)]
    for _ in range(net.rng.randint(1, 5)):
        values.append(net.step(values[-1], values))
        if net.shape(values[-1])[1] > most_channels or np.prod(net.shape(values[-1])) > most:
            break
    outputs = {values[-1], net.rng.choice(values)}
    graph = net.builder.build([Output(f"y{n}", name) for n, name in enumerate(sorted(outputs))])
    return graph, net.feeds(graph)
