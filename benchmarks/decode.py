"""One token of a GPT-2 and of a LLaMA of 418 M behind others, weights of 32, 8 and 4 bits: ours and the peers, in turn.

python -m benchmarks.decode                                  both, 8 and 4 bits, one thread, behind 16 tokens
python -m benchmarks.decode gpt2 --weights int4 --past 2000  one of them
python -m benchmarks.decode --threads 2

`int8` and `int4` are MatMulNBits in blocks of 32, with the accuracy level that leaves activations as they are (`exact`)
or the one that lets them be bytes (`bytes`); `dynamic` are MatMulInteger behind DynamicQuantizeLinear.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from autotune.measure.peaks import read_limits, settle
from autotune.measure.timing import latency, speedup, spread
from autotune.target import Target
from benchmarks.engines import Engine, EngineError, runs_per_turn, time_in_turn
from benchmarks.report import Report, Row, parser, progress
from benchmarks.transformers import gelu, layer_norm
from benchmarks.zoo import Net, Weights

WEIGHTS = ("f32", "dynamic", "int8", "int4")
BLOCK = 32
LEVELS = {"exact": 0, "bytes": 4}
"""Values of accuracy_level."""
PEERS = ("onnxruntime", "openvino", "openvino-bf16")
METHOD = (
    "Random seeded weights, one embedded token, caches as inputs and outputs. Each engine in its own process, pinned "
    "to its cores; all loaded side by side and timed in turn, a warm-up run before each turn; latency is the median of "
    "all runs. GB/s: bytes of the file's weights over the latency; of memory: of what the machine read a moment before."
)


@dataclass(frozen=True, slots=True)
class Size:
    """Of a decoder; `inner` is the width of its feed-forward layers."""

    width: int
    heads: int
    layers: int
    inner: int
    vocabulary: int


GPT2 = Size(768, 12, 12, 3072, 50257)
LLAMA = Size(1024, 16, 30, 2816, 32000)
TOKENS, MASK, POSITIONS = "input_ids", "attention_mask", "position_ids"
TOTAL, LONGEST = "past + tokens", 4096
Product = Callable[[Net, str, int, int], str]
"""(net, rows, ins, outs): rows times a constant matrix."""


def product_of(weights: str, level: int = 0) -> Product:
    """How products are written whose weights are such."""
    if weights == "f32":
        return lambda net, x, ins, outs: net.node("MatMul", x, net.matrix(ins, outs))
    if weights == "dynamic":
        return _dynamic
    bits = int(weights.removeprefix("int"))
    return lambda net, x, ins, outs: _blocked(net, x, ins, outs, bits, level)


def _blocked(net: Net, x: str, ins: int, outs: int, bits: int, level: int) -> str:
    """Codes drawn evenly, with scales that keep the variance."""
    blocks, deviation = ins // BLOCK, (1 << bits) / 12**0.5
    codes = net.codes((outs, blocks, BLOCK * bits // 8))
    scales = net.near(1 / (deviation * ins**0.5), 0.1 / (deviation * ins**0.5), (outs, blocks))
    return net.node(
        "MatMulNBits", x, codes, scales, domain="com.microsoft", K=ins, N=outs, bits=bits, block_size=BLOCK,
        accuracy_level=level,
    )  # fmt: skip


def _dynamic(net: Net, x: str, ins: int, outs: int) -> str:
    """As ONNX Runtime's tool writes it, with scales per column."""
    quantized, scale, zero = net.nodes("DynamicQuantizeLinear", 3, x)
    codes, middle = net.codes((ins, outs)), net.tensor(np.full(outs, 128, np.uint8))
    sums = net.node("Cast", net.node("MatMulInteger", quantized, codes, zero, middle), to=TensorProto.FLOAT)
    deviation = 256 / 12**0.5
    scales = net.near(1 / (deviation * ins**0.5), 0.1 / (deviation * ins**0.5), (outs,))
    return net.node("Mul", sums, net.node("Mul", scale, scales))


def gpt2(product: Product, past: int | None, size: Size = GPT2) -> onnx.ModelProto:
    """GPT-2 small for one embedded token behind `past` others; the cache of each layer comes in and goes out longer.
    None: any batch of tokens behind any others, with a mask and positions, as exporters of transformers write it."""
    net = Net("decoder", Weights(0))
    caches = _Caches(net, size, past)

    def linear(x: str, ins: int, outs: int) -> str:
        return net.node("Add", net.near(0.0, 0.2, (outs,)), product(net, x, ins, outs))

    width, x = size.width, caches.embedded
    if past is None:
        x = net.node("Add", x, net.node("Gather", net.near(0.0, 0.3, (LONGEST, width)), POSITIONS))
    for _ in range(size.layers):
        qkv = linear(layer_norm(net, x, width), width, 3 * width)
        q, k, v = (
            _by_head(net, net.node("Slice", qkv, *map(net.shape, (i * width, (i + 1) * width, 2))), size)
            for i in range(3)
        )
        x = net.node("Add", x, linear(caches.attended(q, k, v), width, width))
        y = gelu(net, linear(layer_norm(net, x, width), width, size.inner))
        x = net.node("Add", x, linear(y, size.inner, width))
    logits = product(net, layer_norm(net, x, width), width, size.vocabulary)
    return caches.finished(logits)


def llama(product: Product, past: int | None, size: Size = LLAMA) -> onnx.ModelProto:
    """A LLaMA for one embedded token behind `past` others: RMS norm, rotary embedding, SwiGLU. None: as for `gpt2`."""
    net = Net("decoder", Weights(0))
    caches = _Caches(net, size, past)
    width, head, x = size.width, size.width // size.heads, caches.embedded
    places = np.arange(LONGEST)[:, None] if past is None else past
    angles = places * 1e4 ** -(np.tile(np.arange(0, head, 2), 2) / head)
    cos, sin = (net.tensor(f(angles).astype(np.float32)) for f in (np.cos, np.sin))
    if past is None:
        cos, sin = (net.node("Unsqueeze", net.node("Gather", f, POSITIONS), net.shape(1)) for f in (cos, sin))

    def rms_norm(x: str) -> str:
        mean = net.node("ReduceMean", net.node("Pow", x, net.scalar(2.0)), axes=[-1])
        root = net.node("Sqrt", net.node("Add", mean, net.scalar(1e-6)))
        return net.node("Mul", net.near(1.0, 0.25, (width,)), net.node("Div", x, root))

    def rotated(x: str) -> str:
        halves = [net.node("Slice", x, *map(net.shape, (i * head // 2, (i + 1) * head // 2, 3))) for i in range(2)]
        turned = net.node("Concat", net.node("Neg", halves[1]), halves[0], axis=-1)
        return net.node("Add", net.node("Mul", x, cos), net.node("Mul", turned, sin))

    for _ in range(size.layers):
        y = rms_norm(x)
        q, k, v = (_by_head(net, product(net, y, width, width), size) for _ in range(3))
        x = net.node("Add", x, product(net, caches.attended(rotated(q), rotated(k), v), width, width))
        y = rms_norm(x)
        gate = product(net, y, width, size.inner)
        gate = net.node("Mul", gate, net.node("Sigmoid", gate))
        y = net.node("Mul", gate, product(net, y, width, size.inner))
        x = net.node("Add", x, product(net, y, size.inner, width))
    return caches.finished(product(net, rms_norm(x), width, size.vocabulary))


MODELS: dict[str, Callable[..., onnx.ModelProto]] = {"gpt2": gpt2, "llama": llama}


class _Caches:
    """Inputs and outputs of the layers' keys and values, and what tells how many there are."""

    def __init__(self, net: Net, size: Size, past: int | None) -> None:
        self._net, self._size, self._past = net, size, past
        self._names: list[tuple[str, str]] = []
        self.embedded = "input"
        self._hidden = ""
        if past is None:
            self.embedded = net.node("Gather", net.near(0.0, 1.0, (size.vocabulary, size.width)), TOKENS)
            self._hidden = self._mask()

    def _mask(self) -> str:
        """What is added to scores: nothing, or very little where a key is padding, or behind the query."""
        net = self._net
        total = net.node("Gather", net.node("Shape", MASK), net.index(1), axis=0)
        keys, queries = net.node("Range", net.index(0), total, net.index(1)), net.shape(1, 3)
        causal = net.node("LessOrEqual", keys, net.node("Unsqueeze", POSITIONS, queries))
        given = net.node("Cast", net.node("Unsqueeze", MASK, net.shape(1, 2)), to=TensorProto.BOOL)
        return net.node("Where", net.node("And", causal, given), net.scalar(0.0), net.scalar(-1e9))

    def attended(self, q: str, k: str, v: str) -> str:
        """Attention of the tokens to what the caches hold, and to themselves."""
        net, size = self._net, self._size
        present = [self._grown(new) for new in (k, v)]
        scores = net.node("MatMul", q, net.node("Transpose", present[0], perm=[0, 1, 3, 2]))
        scores = net.node("Div", scores, net.scalar((size.width / size.heads) ** 0.5))
        scores = net.node("Add", scores, self._hidden) if self._hidden else scores
        mixed = net.node("MatMul", net.node("Softmax", scores, axis=-1), present[1])
        return net.node("Reshape", net.node("Transpose", mixed, perm=[0, 2, 1, 3]), net.shape(0, 0, size.width))

    def _grown(self, new: str) -> str:
        name = f"past.{len(self._names)}"
        self._names.append((name, self._net.node("Concat", name, new, axis=2)))
        return self._names[-1][1]

    def finished(self, logits: str) -> onnx.ModelProto:
        size, past = self._size, self._past
        model = self._net.finish(logits, (1, 1, size.width), (1, 1, size.vocabulary))
        batch: int | str = "batch" if past is None else 1
        lengths: tuple[int | str, int | str] = ("past", TOTAL) if past is None else (past, past + 1)
        if past is None:
            del model.graph.input[:], model.graph.output[:]
            model.graph.input.extend(
                helper.make_tensor_value_info(name, TensorProto.INT64, (batch, length))
                for name, length in ((TOKENS, "tokens"), (MASK, TOTAL), (POSITIONS, "tokens"))
            )
            shape = (batch, "tokens", size.vocabulary)
            model.graph.output.append(helper.make_tensor_value_info(logits, TensorProto.FLOAT, shape))
        for names, values, length in zip(zip(*self._names), (model.graph.input, model.graph.output), lengths):
            form = (batch, size.heads, length, size.width // size.heads)
            values.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, form) for name in names)
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        return model


def _by_head(net: Net, x: str, size: Size) -> str:
    split = net.node("Reshape", x, net.shape(0, 0, size.heads, size.width // size.heads))
    return net.node("Transpose", split, perm=[0, 2, 1, 3])


def weight_bytes(model: onnx.ModelProto) -> int:
    return sum(len(t.raw_data) for t in model.graph.initializer)


def written(name: str, weights: str, past: int, folder: Path) -> tuple[dict[str, Path], onnx.ModelProto]:
    """The files by what they say of the accuracy, and one of the models."""
    levels = LEVELS if weights in ("int8", "int4") else {"exact": 0}
    files = {label: folder / f"{name}.{weights}.{label}.onnx" for label in levels}
    for label, level in levels.items():
        model = MODELS[name](product_of(weights, level), past)
        onnx.save(model, files[label])
    return files, model


def race(
    files: Mapping[str, Path], feeds: Mapping[str, NDArray[Any]], threads: int, rounds: int
) -> list[dict[str, Any]]:
    """One row per engine and file: latency, and the logits' distance from ONNX Runtime's exact ones, of their range."""
    rows: list[dict[str, Any]] = []
    logits: dict[str, NDArray[Any]] = {}
    with ExitStack() as stack:
        engines: list[Engine] = []
        for kind in ("autotune", *PEERS):
            for label, path in files.items():
                if kind.startswith("openvino") and label != "exact":
                    continue  # which does not read the level
                try:
                    options = {"database": False} if kind == "autotune" else {}
                    engine = stack.enter_context(Engine(kind, path, threads, label=f"{kind} {label}", options=options))
                    engine.feed(feeds)
                    logits[engine.label] = engine.run()[0]
                    engines.append(engine)
                except EngineError as error:
                    rows.append({"engine": f"{kind} {label}", "note": str(error)})
        samples = time_in_turn(engines, rounds, runs_per_turn(engines[0])) if engines else []
        for engine, found in zip(engines, samples):
            rows.append({
                "engine": engine.label, "ms": latency(found) * 1e3, "spread %": spread(found) * 100,
                "runs": len(found), "resident MB": engine.memory()["now"] / 1e6,
            })  # fmt: skip
    reference = logits.get("onnxruntime exact")
    for row in rows:
        if reference is not None and row["engine"] in logits:
            row["error"] = float(np.abs(logits[row["engine"]] - reference).max() / np.ptp(reference))
    return rows


def bandwidth(threads: int) -> float:
    """What the machine reads from memory now, GB/s."""
    limit = read_limits(Target.parse(f"native -num-cores={threads}"))["dram"]
    settle([limit])
    return limit.rate.all_cores


def reading(rows: Sequence[Row], size: int, memory: float) -> list[Row]:
    """With the rate at which `size` bytes of weights were read, and its share of the memory's (GB/s)."""
    found: list[Row] = []
    for row in rows:
        rate = size / float(row["ms"] or math.inf) / 1e6 if "ms" in row else None
        found.append({**row, **({"GB/s": rate, "of memory %": rate / memory * 100} if rate else {})})
    return found


def claims(report: Report, where: str, rows: Sequence[Row]) -> None:
    """We are no slower than the best peer, and read at least 85 % of what the memory gives."""
    times = {str(row["engine"]): float(row["ms"] or 0) for row in rows if "ms" in row}
    peers = [ms for name, ms in times.items() if not name.startswith("autotune")]
    ours = [ms for name, ms in times.items() if name.startswith("autotune")]
    if ours and peers:
        report.claim(f"{where}: best peer over ours", speedup(min(ours), min(peers)), "at least", 1.0, "x")
    reads = [
        float(row["of memory %"] or 0) for row in rows if "ms" in row and str(row["engine"]).startswith("autotune")
    ]
    if reads:
        report.claim(f"{where}: ours, of the memory's bandwidth", max(reads), "at least", 85.0, " %")


def main(arguments: list[str] | None = None) -> int:
    options = parser("decode", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("models", nargs="*", metavar="MODEL", help=f"default: {' '.join(MODELS)}")
    options.add_argument("--weights", action="append", choices=WEIGHTS, help="may be repeated (default: all but f32)")
    options.add_argument("--past", type=int, action="append", help="tokens before; may be repeated (default: 16)")
    options.add_argument("--threads", type=int, action="append", help="may be repeated (default: 1)")
    options.add_argument("--rounds", type=int, default=11)
    given = options.parse_args(arguments)
    unknown = [name for name in given.models if name not in MODELS]
    if unknown:
        options.error(f"unknown model {', '.join(unknown)}; there are {', '.join(MODELS)}")
    report = Report("decode", METHOD, given.quick)
    for name in given.models or (["gpt2"] if given.quick else MODELS):
        for weights in given.weights or (["int4"] if given.quick else WEIGHTS[1:]):
            for past in given.past or [16]:
                with tempfile.TemporaryDirectory(prefix="autotune-decode-") as folder:
                    progress(f"{name} {weights}: writing")
                    files, model = written(name, weights, past, Path(folder))
                    rng, size = np.random.default_rng(0), weight_bytes(model)
                    feeds: dict[str, NDArray[Any]] = {
                        value.name: rng.standard_normal(
                            [d.dim_value for d in value.type.tensor_type.shape.dim], np.float32
                        )
                        for value in model.graph.input
                    }
                    for threads in given.threads or [1]:
                        where = f"{name} {weights}, behind {past}, {threads} threads"
                        progress(where)
                        timed = race(files, feeds, threads, 2 if given.quick else given.rounds)
                        rows = reading(timed, size, bandwidth(threads))
                        of = {"model": name, "weights": weights, "past": past, "threads": threads}
                        report.table("latency", [{**of, **row} for row in rows])
                        claims(report, where, rows)
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
