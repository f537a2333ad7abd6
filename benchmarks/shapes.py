"""Models whose shapes change from call to call, against ONNX Runtime: BERT-base of any length, ResNet-50 of any batch.

python -m benchmarks.shapes                    1,000 calls of BERT-base, then ResNet-50, with one thread
python -m benchmarks.shapes --calls 200 -t 2   fewer calls, two threads
python -m benchmarks.shapes --layers 2         two layers, which have the kernels of all twelve: a sixth of the time
python -m benchmarks.shapes --prepare          with the programs of all buckets made before the first call
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from autotune import machine
from benchmarks import zoo
from benchmarks.engine_process import status_bytes
from benchmarks.report import ROOT, Report, Row, parser, progress
from benchmarks.transformers import HEADS, INNER, LAYERS, WIDTH, gelu, layer_norm, linear

WORDS, LONGEST = 30522, 512
LENGTHS, BATCHES = (16, 384), (1, 8)
IMAGES = (1, 4, 16, 64)
OURS, PREPARED, PEER = "auto", "prepared", "onnxruntime"
WARM = 50
FIXED = 12  # shapes that tell how long programs of exactly that shape take beside the peer
SLOWEST = 0.03  # share of the calls, the slowest by that, of whose very shapes this is measured
ROUNDS = 5  # of a shape's runs by all engines in turn
METHOD = (
    "Each engine in a process of its own, on the cores that the benchmark may use; every call is made by one engine, "
    "then by the other. Seconds are those of run() alone, compiling included, but what is compiled in the background "
    "where a core is free. What a shape takes by itself is what the peer took just then, times what a program of "
    "exactly that shape takes of the peer's time: p + q / (b l), fitted to {FIXED} shapes that all three run in turn, "
    "{ROUNDS} rounds, medians; of the slowest {SLOWEST:.0%} of the calls by that, measured for their very shapes. "
    "Those of them that came after the last program was made count as they were then run again, {ROUNDS} times in turn "
    "with the program of their own: the same programs serve them, and a single call also tells what the host did. "
    "Memory: the largest resident size, less that before the model was loaded."
)


def bert(net: zoo.Net, layers: int = LAYERS) -> onnx.ModelProto:
    """BERT-base, or its first layers, from token ids and an attention mask, both (batch, length), as exporters do."""
    ids, mask = "input_ids", "attention_mask"
    x = net.node("Gather", net.near(0.0, 1.0, (WORDS, WIDTH)), ids, axis=0)
    length = net.node("Gather", net.node("Shape", ids), net.shape(1), axis=0)
    places = net.node("Slice", net.near(0.0, 0.3, (LONGEST, WIDTH)), net.shape(0), length, net.shape(0))
    x = layer_norm(net, net.node("Add", x, places))
    hidden = net.node("Sub", net.scalar(1.0), net.node("Cast", net.node("Unsqueeze", mask, net.shape(1, 2)), to=1))
    hidden = net.node("Mul", hidden, net.scalar(-10000.0))

    def heads(y: str) -> str:
        return net.node("Transpose", net.node("Reshape", y, net.shape(0, 0, HEADS, WIDTH // HEADS)), perm=[0, 2, 1, 3])

    for _ in range(layers):
        q, k, v = (heads(linear(net, x, WIDTH, WIDTH)) for _ in range(3))
        scores = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 1, 3, 2]))
        scores = net.node("Add", net.node("Div", scores, net.scalar((WIDTH / HEADS) ** 0.5)), hidden)
        y = net.node("Transpose", net.node("MatMul", net.node("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        y = linear(net, net.node("Reshape", y, net.shape(0, 0, WIDTH)), WIDTH, WIDTH)
        x = layer_norm(net, net.node("Add", y, x))
        x = layer_norm(net, net.node("Add", linear(net, gelu(net, linear(net, x, WIDTH, INNER)), INNER, WIDTH), x))
    model = net.finish(x)
    del model.graph.input[:], model.graph.output[:]
    dims = ("batch", "length")
    model.graph.input.extend(helper.make_tensor_value_info(name, TensorProto.INT64, dims) for name in (ids, mask))
    model.graph.output.append(helper.make_tensor_value_info(x, TensorProto.FLOAT, (*dims, WIDTH)))
    return model


def resnet50() -> onnx.ModelProto:
    """ResNet-50 of the zoo with an open batch, which its one Reshape keeps."""
    model = zoo.build("resnet50")
    weights = {tensor.name for tensor in model.graph.initializer}
    for value in (*model.graph.input, *model.graph.output):
        if value.name not in weights:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    targets = {node.input[1] for node in model.graph.node if node.op_type == "Reshape"}
    for tensor in model.graph.initializer:
        if tensor.name in targets:
            tensor.CopyFrom(numpy_helper.from_array(np.asarray([-1, 2048], np.int64), tensor.name))
    return model


def feeds_of(model: str, batch: int, length: int, seed: int) -> dict[str, NDArray[Any]]:
    """Inputs of a call: tokens with a padded sentence among them, or images."""
    rng = np.random.default_rng(seed)
    if model == "bert":
        mask = (np.arange(length) < rng.integers(1, length + 1, (batch, 1))).astype(np.int64)
        mask[0] = 1
        return {"input_ids": rng.integers(0, WORDS, (batch, length)), "attention_mask": mask}
    return {"gpu_0/data_0": rng.standard_normal((batch, 3, 224, 224), dtype=np.float32)}


class Caller:
    """An engine in a process of its own.

    Args:
        kind: "auto" and "compile" are ours by that policy, "prepared" with all buckets made before, "onnxruntime".
    """

    def __init__(self, kind: str, model: str, path: Path, threads: int, cache: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.shapes", "--serve", kind, model, str(path), str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env={**machine.environment(), "XDG_CACHE_HOME": str(cache)},
        )  # fmt: skip

    def call(self, batch: int, length: int = 0, seed: int = 0) -> dict[str, float]:
        """Seconds of one run, a number that tells its outputs, resident bytes, programs made."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{batch} {length} {seed}\n")
        self._process.stdin.flush()
        found: dict[str, float] = json.loads(self._process.stdout.readline())
        return found

    def __enter__(self) -> Caller:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()


def serve(kind: str, model: str, path: str, threads: str) -> None:
    """What a `Caller` talks to."""
    run: Callable[[Mapping[str, NDArray[Any]]], Sequence[NDArray[Any]]]
    if kind == PEER:
        from autotune.engines.peers import load_peer

        importlib.import_module(PEER)
        base = status_bytes("VmRSS")
        peer = load_peer(kind, Path(path), int(threads), {})
        run = peer.run

        def programs() -> int:
            return 1
    else:
        import autotune
        import autotune.api.load

        base = status_bytes("VmRSS")
        policy = "bucket" if kind == PREPARED else kind
        session = autotune.InferenceSession(
            path, target=f"native -num-cores={threads}", database=False, on_new_shape=policy
        )
        if kind == PREPARED:
            for length in range(LENGTHS[1], LENGTHS[0] - 1, -1):
                for batch in range(BATCHES[1], BATCHES[0] - 1, -1):
                    session.prepare(batch=batch, length=length)

        def run(feeds: Mapping[str, NDArray[Any]]) -> Sequence[NDArray[Any]]:
            return session.run(None, feeds)

        def programs() -> int:
            return len(session.shapes())

    for line in sys.stdin:
        batch, length, seed = map(int, line.split())
        feeds = feeds_of(model, batch, length, seed)
        start = time.perf_counter()
        outputs = run(feeds)
        seconds = time.perf_counter() - start
        told = float(np.mean(np.abs(outputs[0].astype(np.float64)) * np.linspace(1, 2, outputs[0].size).reshape(
            outputs[0].shape)))  # fmt: skip
        found = {"seconds": seconds, "told": told, "bytes": status_bytes("VmHWM") - base, "programs": programs()}
        print(json.dumps(found), flush=True)


Shape = tuple[int, int]
"""Batch and length."""


def draw(calls: int) -> list[Shape]:
    """The shapes of the calls."""
    rng = np.random.default_rng(0)
    return [(int(rng.integers(BATCHES[0], BATCHES[1] + 1)), int(rng.integers(LENGTHS[0], LENGTHS[1] + 1)))
            for _ in range(calls)]  # fmt: skip


def in_turn(callers: Sequence[Caller], shape: Shape) -> NDArray[np.float64]:
    """Seconds of runs of a shape by all callers in turn, [round, caller]."""
    for caller in callers:
        caller.call(*shape)
    return np.asarray([[caller.call(*shape)["seconds"] for caller in callers] for _ in range(ROUNDS)])


def measure_bert(
    report: Report, path: Path, threads: int, drawn: Sequence[Shape], cache: Path, ours_is: str, layers: int
) -> None:
    """The calls of random shapes, by both engines in turn."""
    where = f"BERT-base{'' if layers == LAYERS else f' of {layers} layers'}, {threads} threads"
    ours: list[dict[str, float]] = []
    peer: list[dict[str, float]] = []
    calls = len(drawn)
    warm = min(WARM, calls // 2)
    with ExitStack() as stack:
        one, two = (stack.enter_context(Caller(kind, "bert", path, threads, cache)) for kind in (ours_is, PEER))
        for n, (batch, length) in enumerate(drawn):
            ours.append(one.call(batch, length, n))
            peer.append(two.call(batch, length, n))
            if n % 50 == 49:
                progress(f"{n + 1} calls")
        seconds, others = (np.asarray([found["seconds"] for found in of]) for of in (ours, peer))
        exact = stack.enter_context(Caller("compile", "bert", path, threads, cache))

        def of_the_peers(shape: Shape) -> tuple[float, float]:
            """What an exact program takes of the peer's time, and how many times as long as that ours takes."""
            found = in_turn((one, two, exact), shape)
            return float(np.median(found[:, 2] / found[:, 1])), float(np.median(found[:, 0] / found[:, 2]))

        fixed = drawn[:: max(1, calls // FIXED)][:FIXED]
        terms = np.asarray([(1.0, 1.0 / (b * n)) for b, n in fixed])
        weights = np.linalg.lstsq(terms, np.asarray([of_the_peers(shape)[0] for shape in fixed]), rcond=None)[0]
        by_itself = others * (np.asarray([(1.0, 1.0 / (b * n)) for b, n in drawn]) @ weights)
        slowest = warm + np.argsort((by_itself / seconds)[warm:])[: max(2, round(calls * SLOWEST))]
        times = seconds / by_itself
        settled = next(n for n, found in enumerate(ours) if found["programs"] == ours[-1]["programs"])
        found_slow: list[Row] = []
        for n in slowest:
            share, again = of_the_peers(drawn[n])
            once = seconds[n] / (others[n] * share)
            times[n] = again if n > settled else once
            found_slow.append(
                {"call": int(n), "batch": drawn[n][0], "length": drawn[n][1], "ms": seconds[n] * 1e3,
                 "times": once, "times, afterwards": again, "counts": times[n]}
            )  # fmt: skip
    slower = times[warm:]
    report.table(
        f"{where}, the slowest calls by their shapes; the last program was there from call {settled}", found_slow
    )
    error = max(abs(a["told"] / b["told"] - 1) for a, b in zip(ours, peer))
    rows: list[Row] = [
        {"engine": name, "calls": calls, "seconds": float(s.sum()), "after 50 calls": float(s[WARM:].sum()),
         "median ms": float(np.median(s)) * 1e3, "MiB": of[-1]["bytes"] / 2**20}
        for name, s, of in (("autotune", seconds, ours), ("onnxruntime", others, peer))
    ]  # fmt: skip
    report.table(f"{where}, lengths {LENGTHS}, batches {BATCHES}", rows)
    report.claim(f"{where}: total time against onnxruntime", float(others.sum() / seconds.sum()), "at least", 1.05, "x")
    after = float(others[WARM:].sum() / seconds[WARM:].sum()) if calls > WARM else None
    report.claim(f"{where}: after {WARM} calls", after, "at least", 1.05, "x")
    report.claim(
        f"{where}: p99 after {WARM} calls, of the shape by itself", float(np.quantile(slower, 0.99)), "at most", 1.5
    )
    report.claim(
        f"{where}: median after {WARM} calls, of the shape by itself", float(np.median(slower)), "at most", 1.1
    )
    report.claim(f"{where}: memory, of onnxruntime's", ours[-1]["bytes"] / peer[-1]["bytes"], "at most", 1.5)
    report.claim(f"{where}: difference of the outputs' weighted mean", error, "at most", 1e-4)


def measure_resnet(report: Report, path: Path, threads: int, rounds: int, cache: Path) -> None:
    """Batches by both engines in turn."""
    rows: list[Row] = []
    with ExitStack() as stack:
        one, two = (stack.enter_context(Caller(kind, "resnet50", path, threads, cache)) for kind in (OURS, PEER))
        for batch in IMAGES:
            found = [(one.call(batch), two.call(batch)) for _ in range(max(3, rounds // batch) + 1)][1:]
            ours, peer = (float(np.median([pair[n]["seconds"] for pair in found])) for n in (0, 1))
            rows.append({"batch": batch, "autotune ms": ours * 1e3, "onnxruntime ms": peer * 1e3, "times": peer / ours})
            report.claim(f"ResNet-50, batch {batch}, {threads} threads", peer / ours, "at least", 1.2, "x")
    report.table(f"ResNet-50, {threads} threads", rows)


def main(arguments: list[str] | None = None) -> int:
    options = parser("shapes", __doc__)
    options.add_argument("--calls", type=int, default=1000, help="of BERT-base; 0 leaves it out")
    options.add_argument("--layers", type=int, default=LAYERS, help="of BERT-base")
    options.add_argument("--images", type=int, default=40, help="runs of ResNet-50 with one image; 0 leaves it out")
    options.add_argument("-t", "--threads", type=int, default=1)
    options.add_argument(
        "--prepare", action="store_true", help="make the programs of all buckets before the first call"
    )
    options.add_argument("--cache", type=Path, help="folder of compiled kernels; an empty one if not given")
    given = options.parse_args(arguments)
    calls, images = (6, 2) if given.quick else (given.calls, given.images)
    report = Report("shapes", METHOD.format(FIXED=FIXED, SLOWEST=SLOWEST, ROUNDS=ROUNDS), given.quick)
    with tempfile.TemporaryDirectory(prefix="autotune-shapes-") as folder:
        cache = given.cache or Path(folder) / "cache"
        if calls:
            path = Path(folder) / "bert.onnx"
            onnx.save(bert(zoo.Net("bert", zoo.Weights(0)), given.layers), path)
            kind = PREPARED if given.prepare else OURS
            measure_bert(report, path, given.threads, draw(calls), cache, kind, given.layers)
        if images:
            path = Path(folder) / "resnet50.onnx"
            onnx.save(resnet50(), path)
            measure_resnet(report, path, given.threads, images, cache)
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    else:
        sys.exit(main())
