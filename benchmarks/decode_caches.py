"""One token more, and one more: decoders of 32 bits whose caches come in and go out, ours and the peers, in turn.

python -m benchmarks.decode_caches                      GPT-2 and a LLaMA of 150 M behind 16, 512 and 2000 tokens
python -m benchmarks.decode_caches llama --past 2000 --threads 2
python -m benchmarks.decode_caches in-place             a GPT-2 whose caches are input and output at once

`gpt2` and `llama` are as exporters of transformers write them, any batch of tokens behind any others: each step's
caches are those before by Concat. Peers are given what they gave: as arrays, or ("bound") as values of their own, or
("state") keep it to themselves. `in-place` runs GroupQueryAttention on memory with room for 2048 tokens.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from autotune.api.session import InferenceSession
from benchmarks.decode import GPT2, MASK, MODELS, POSITIONS, TOKENS, Size, product_of
from benchmarks.report import Report, Row, parser, progress
from benchmarks.transformers import gelu, layer_norm, linear
from benchmarks.zoo import Net, Weights

Array = NDArray[Any]
SIZES = {"gpt2": GPT2, "llama": Size(768, 12, 14, 2048, 32000)}
PAST, ROOM = (16, 512, 2000), 2048
IN_PLACE = "in-place"
OURS = "autotune"
STEPS = 8
"""In a turn, behind one that warms up."""
PAUSE = 0.06
"""Seconds between turns: threads of the engine before spin on, those of ONNX Runtime for 40 ms."""
METHOD = (
    "Random seeded weights, f32, one sequence. All engines in one process, in turn: caches of random rows, a step that "
    "does not count, then {STEPS} that follow from one another; milliseconds are the median of all. Error: largest "
    "difference of the first step's logits from ONNX Runtime's, of their range."
)


class Decoder(Protocol):
    """An engine that decodes."""

    def start(self, caches: Mapping[str, Array]) -> None:
        """Go on behind these rows, (1, heads, rows, head) by input."""

    def step(self, feeds: Mapping[str, Array]) -> Array:
        """The logits of one token."""


class Plain:
    """A session that takes and gives arrays: ours, and ONNX Runtime's."""

    def __init__(self, run: Callable[[None, dict[str, Array]], Sequence[Array]]) -> None:
        self._run, self._caches = run, dict[str, Array]()

    def start(self, caches: Mapping[str, Array]) -> None:
        self._caches = dict(caches)

    def step(self, feeds: Mapping[str, Array]) -> Array:
        logits, *present = self._run(None, {**feeds, **self._caches})
        self._caches = dict(zip(self._caches, present, strict=True))
        return logits


class Bound:
    """ONNX Runtime, whose values never become arrays."""

    def __init__(self, session: Any) -> None:
        self._session, self._caches = session, dict[str, Any]()
        self._outputs = [value.name for value in session.get_outputs()]

    def start(self, caches: Mapping[str, Array]) -> None:
        from onnxruntime import OrtValue

        self._caches = {name: OrtValue.ortvalue_from_numpy(array) for name, array in caches.items()}

    def step(self, feeds: Mapping[str, Array]) -> Array:
        binding = self._session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        for name, value in self._caches.items():
            binding.bind_ortvalue_input(name, value)
        for name in self._outputs:
            binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(binding)
        logits, *present = binding.get_outputs()
        self._caches = dict(zip(self._caches, present, strict=True))
        found: Array = logits.numpy()
        return found


class OpenVino:
    """OpenVINO, which reads what the request before has written, or keeps the caches as its state."""

    def __init__(self, path: Path, threads: int, state: bool) -> None:
        import openvino as ov
        from openvino._offline_transformations import apply_make_stateful_transformation

        core = ov.Core()
        model = core.read_model(str(path))
        self._pasts = [value.any_name for value in model.inputs if value.any_name.startswith("past")]
        if state:
            presents = [value.any_name for value in model.outputs][1:]
            apply_make_stateful_transformation(model, dict(zip(self._pasts, presents, strict=True)))
        options = {
            "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": str(threads),
            "INFERENCE_PRECISION_HINT": "f32",
        }  # fmt: skip
        compiled = core.compile_model(model, "CPU", options)
        self._requests = [compiled.create_infer_request() for _ in range(1 if state else 2)]
        self._tensor, self._state = ov.Tensor, state
        self._caches: dict[str, Array] = {}

    def start(self, caches: Mapping[str, Array]) -> None:
        self._caches = dict(caches)
        for state in self._requests[0].query_state():
            name = next(name for name in sorted(caches, key=len, reverse=True) if state.name.startswith(name))
            state.state = self._tensor(caches[name])

    def step(self, feeds: Mapping[str, Array]) -> Array:
        request = self._requests[0]
        given = dict(feeds) if self._state else {**feeds, **self._caches}
        logits, *present = request.infer(given, share_inputs=True, share_outputs=True).values()
        if not self._state:
            self._caches = dict(zip(self._pasts, present, strict=True))
            self._requests.reverse()  # its outputs are the next one's inputs
        found: Array = logits
        return found


def growing(name: str, threads: int, folder: Path) -> tuple[dict[str, Decoder], dict[str, tuple[int, ...]]]:
    """The engines for a decoder whose caches grow by Concat, and the shapes of these, 0 rows of them."""
    size, path = SIZES[name], folder / f"{name}.onnx"
    model = MODELS[name](product_of("f32"), None, size)
    onnx.save(model, path)
    shapes: dict[str, tuple[int, ...]] = {
        value.name: (1, size.heads, 0, size.width // size.heads)
        for value in model.graph.input
        if value.name.startswith("past")
    }
    del model
    ours = InferenceSession(path, target=f"native -num-cores={threads}", database=False)
    peer = onnxruntime_session(str(path), threads)
    found: dict[str, Decoder] = {
        OURS: Plain(ours.run),
        "onnxruntime": Plain(peer.run),
        "onnxruntime bound": Bound(peer),
    }
    if importlib.util.find_spec("openvino") is not None:
        found["openvino"] = OpenVino(path, threads, state=False)
        found["openvino state"] = OpenVino(path, threads, state=True)
    return found, shapes


def onnxruntime_session(model: str | bytes, threads: int) -> Any:
    """As fast as it gets."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def measure_growing(report: Report, name: str, threads: int, past: Sequence[int], rounds: int) -> None:
    """Steps of all engines in turn, behind caches of each length."""
    with tempfile.TemporaryDirectory(prefix="autotune-decode-") as folder:
        decoders, shapes = growing(name, threads, Path(folder))
    rng = np.random.default_rng(0)
    for rows in past:
        caches = {n: rng.standard_normal((*s[:2], rows, s[3]), np.float32) for n, s in shapes.items()}
        seconds: dict[str, list[float]] = {engine: [] for engine in decoders}
        first: dict[str, Array] = {}
        for round_ in range(rounds + 1):
            for engine, decoder in decoders.items():
                time.sleep(PAUSE)
                decoder.start(caches)
                for step in range(STEPS + 1):
                    ids, length = np.full((1, 1), 17 + step), rows + step
                    feeds = {TOKENS: ids, MASK: np.ones((1, length + 1), np.int64), POSITIONS: np.full((1, 1), length)}
                    begin = time.perf_counter()
                    logits = decoder.step(feeds)
                    if round_ and step:  # all programs are there
                        seconds[engine].append(time.perf_counter() - begin)
                    elif not step:
                        first[engine] = logits.copy()
        right = first["onnxruntime"]
        table: list[Row] = [
            {"model": name, "threads": threads, "past": rows, "engine": engine, "ms": statistics.median(found) * 1e3,
             "error": float(np.abs(first[engine] - right).max() / np.ptp(right))}
            for engine, found in seconds.items()
        ]  # fmt: skip
        report.table("steps", table)
        claim(
            report, f"{name}, {threads} threads, behind {rows}", {e: statistics.median(s) for e, s in seconds.items()}
        )


def claim(report: Report, where: str, seconds: Mapping[str, float]) -> None:
    """We are a fifth faster than the best of the peers."""
    best = min(found for engine, found in seconds.items() if not engine.startswith(OURS))
    report.claim(f"{where}: best peer over ours", best / seconds[OURS], "at least", 1.2, "x")


def in_place_decoder(room: int, size: Size = GPT2) -> onnx.ModelProto:
    """GPT-2 small for one embedded token; `last` says how many others of the cache's `room` come before it."""
    net, width, head = Net("decoder", Weights(0)), size.width, size.width // size.heads
    x = "input"
    for n in range(size.layers):
        qkv = linear(net, layer_norm(net, x, width), width, 3 * width)
        mixed = net.node("GroupQueryAttention", qkv, "", "", f"past.{n}.key", f"past.{n}.value", "last", "total",
                         domain="com.microsoft", num_heads=size.heads, kv_num_heads=size.heads)  # fmt: skip
        x = net.node("Add", x, linear(net, mixed, width, width))
        y = linear(net, layer_norm(net, x, width), width, size.inner)
        x = net.node("Add", x, linear(net, gelu(net, y), size.inner, width))
    logits = net.node("MatMul", layer_norm(net, x, width), net.matrix(width, size.vocabulary))
    model = net.finish(logits, (1, 1, width), (1, 1, size.vocabulary))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    graph, shape = model.graph, (1, size.heads, room, head)
    graph.input.append(helper.make_tensor_value_info("last", TensorProto.INT32, (1,)))
    graph.initializer.append(helper.make_tensor("total", TensorProto.INT32, (1,), [room]))
    for node in graph.node:
        if node.op_type == "GroupQueryAttention":
            past = node.input[3:5]
            present = [name.replace("past", "present") for name in past]
            node.output.extend(present)
            graph.input.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in past)
            graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in present)
    return model


def bound_in_place(model: onnx.ModelProto, threads: int, feeds: Mapping[str, Array]) -> Callable[[], object]:
    """A step by ONNX Runtime, whose caches are input and output at once."""
    from onnxruntime import OrtValue

    session = onnxruntime_session(model.SerializeToString(), threads)
    binding = session.io_binding()
    for name, array in feeds.items():
        value = OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_input(name, value)
        if name.startswith("past"):
            binding.bind_ortvalue_output(name.replace("past", "present"), value)
    binding.bind_output(model.graph.output[0].name)
    return lambda: session.run_with_iobinding(binding)


def measure_in_place(report: Report, threads: int, past: Sequence[int], rounds: int) -> None:
    """The same step again and again, in turn; "copied" is ours with outputs of their own."""
    model = in_place_decoder(ROOM)
    session = InferenceSession(model, target=f"native -num-cores={threads}", database=False)
    rng = np.random.default_rng(0)
    for rows in past:
        feeds: dict[str, Array] = {
            value.name: rng.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim], np.float32)
            for value in model.graph.input
        }
        feeds["last"] = np.asarray([rows], np.int32)
        into = {name.replace("past", "present"): feeds[name] for name in feeds if name.startswith("past")}
        steps: dict[str, Callable[[], object]] = {
            OURS: partial(session.run_into, into, feeds),
            f"{OURS} copied": partial(session.run, None, feeds),
            "onnxruntime bound": bound_in_place(model, threads, feeds),
        }
        seconds: dict[str, list[float]] = {engine: [] for engine in steps}
        for _ in range(rounds * STEPS + 1):
            for engine, step in steps.items():
                begin = time.perf_counter()
                step()
                seconds[engine].append(time.perf_counter() - begin)
        found = {engine: statistics.median(times[1:]) for engine, times in seconds.items()}
        report.table("steps", [{"model": IN_PLACE, "threads": threads, "past": rows, "engine": engine, "ms": s * 1e3}
                               for engine, s in found.items()])  # fmt: skip
        claim(report, f"{IN_PLACE}, {threads} threads, behind {rows}", found)


def main(arguments: list[str] | None = None) -> int:
    options = parser("decode_caches", __doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    names = (*SIZES, IN_PLACE)
    options.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(names)} (default: the first two)")
    options.add_argument("--past", type=int, action="append", help=f"tokens before; may be repeated (default: {PAST})")
    options.add_argument("--threads", type=int, action="append", help="may be repeated (default: 1)")
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args(arguments)
    unknown = [name for name in given.models if name not in names]
    if unknown:
        options.error(f"unknown model {', '.join(unknown)}; there are {', '.join(names)}")
    report = Report("decode_caches", METHOD.format(STEPS=STEPS), given.quick)
    past, rounds = given.past or PAST, given.rounds
    if given.quick:
        past, rounds = past[:1], 1
    for name in given.models or (["gpt2"] if given.quick else SIZES):
        for threads in given.threads or [1]:
            progress(f"{name}, {threads} threads")
            if name == IN_PLACE:
                measure_in_place(report, threads, past, rounds)
            else:
                measure_growing(report, name, threads, past, rounds)
    report.finish(given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
