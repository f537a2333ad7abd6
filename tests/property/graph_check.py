"""One property case of whole models: does a random graph, compiled, give what onnx.reference gives?"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from autotune.compiler.compile import compile_graph
from autotune.compiler.staged import compile_or_stage
from autotune.compiler.stages import Making
from autotune.errors import UnsupportedError
from autotune.graph import open_model
from autotune.measure.protocol import Json, Message
from autotune.target import Target
from tests.property.random_graph import Array, Model
from tests.property.random_models import random_model

REFUSED = "refused: "
TOLERANCE = {"f2": 2e-2, "f4": 2e-4, "f8": 1e-6}
"""Of the largest value of an output, through up to thirty operators. The reference rounds f16 after each of them, and
its Erf is f32."""


def run(seed: int, target: Target) -> str | None:
    """Case `seed`: None when right, "refused: ..." when an operator is not supported, else what is wrong."""
    model = random_model(seed)
    proto = model.proto()
    try:
        # Without records, and without the object cache: few kernels come twice, and its folder is the user's.
        compiled = compile_or_stage(
            open_model(proto.SerializeToString()), Making(lambda graph: compile_graph(graph, target))
        )
    except UnsupportedError as error:
        return f"{REFUSED}{error}"
    feeds = {name: model.values[name] for name in model.inputs}
    for _ in range(2):  # the second run finds the arena dirty
        found = compiled.run(feeds)
        for info, array in zip(proto.graph.output, found, strict=True):
            wrong = difference(array, model.values[info.name], TOLERANCE[model.dtype.str[1:]])
            if wrong is not None:
                return f"{info.name} of {' '.join(node.op_type for node in model.nodes)}: {wrong}"
    return None


def difference(found: Array, right: Array, tolerance: float) -> str | None:
    """What sets two arrays apart, None when they agree."""
    if found.shape != right.shape or found.dtype != right.dtype:
        return f"{found.dtype}{list(found.shape)} instead of {right.dtype}{list(right.shape)}"
    if right.dtype.kind != "f":
        return None if np.array_equal(found, right) else "other integers"
    scale = max(float(np.abs(right).max(initial=0.0)), 1e-3)
    error = float(np.abs(found.astype(np.float64) - right.astype(np.float64)).max(initial=0.0))
    return None if error <= tolerance * scale else f"off by {error:.2e} of {scale:.2e}"


def describe(seed: int) -> Model:
    """The model of a case, to look at: `.proto()`, `.values`."""
    return random_model(seed)


def worker(init: Mapping[str, Json]) -> Callable[[Message], Message]:
    """Entry point of an isolated process: see `handler`."""
    target = Target.parse(str(init["target"]))
    return handler(lambda seed: run(seed, target))


def handler(run: Callable[[int], str | None]) -> Callable[[Message], Message]:
    """What answers {"seeds": [...]} with {"bad": {seed: message}, "refused": n}, given what runs one case."""

    def handle(request: Message) -> Message:
        seeds = request.body["seeds"]
        assert isinstance(seeds, list)
        found: dict[str, str | None] = {}
        for seed in seeds:
            try:
                found[str(seed)] = run(int(str(seed)))
            except Exception as error:  # noqa: BLE001  whatever it is, it is a finding
                found[str(seed)] = f"{type(error).__name__}: {error}"
        bad: dict[str, Json] = {s: m for s, m in found.items() if m is not None and not m.startswith(REFUSED)}
        refused = sum(message is not None and message.startswith(REFUSED) for message in found.values())
        return Message({"bad": bad, "refused": refused})

    return handle
