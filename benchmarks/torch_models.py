"""`torch.compile` with our backend and with inductor, on models of torchvision and timm: answers and times, in turn.

    python -m benchmarks.torch_models --threads 1 resnet50 timm:convnext_tiny

Needs the extra `torch`, torchvision, timm, and for inductor a C++ compiler. Weights are random, inputs 1×3×224×224.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from autotune.engines.compare import compare
from autotune.engines.engine import Array, Feeds
from autotune.target import Target

MODELS = (
    "resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "densenet121", "squeezenet1_1",
    "vgg11", "regnet_y_400mf", "convnext_tiny", "vit_b_16", "timm:mixer_s16_224", "timm:resmlp_12_224",
)  # fmt: skip


class Torch:
    """A model under one of `torch.compile`'s backends; none is eager execution."""

    version = torch.__version__

    def __init__(self, model: Any, backend: str | None, options: dict[str, Any] | None = None) -> None:
        self.name = backend or "torch"
        self._model = model if backend is None else torch.compile(model, backend=backend, options=options)

    def run(self, feeds: Feeds) -> Sequence[Array]:
        with torch.inference_mode():
            return [self._model(torch.from_numpy(feeds["x"])).numpy()]


def build(name: str) -> Any:
    """The model with random weights; "timm:..." is one of timm, any other one of torchvision."""
    torch.manual_seed(0)
    if name.startswith("timm:"):
        import timm

        return timm.create_model(name.removeprefix("timm:"), pretrained=False).eval()
    import torchvision

    return torchvision.models.get_model(name, weights=None).eval()


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("models", nargs="*", default=MODELS)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--budget", help="tune each program for so long")
    arguments.add_argument("--json", type=Path, help="append a line of JSON for each model")
    given = arguments.parse_args()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    torch.set_num_threads(given.threads)
    target = Target.parse(f"native -num-cores={given.threads}")
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)}
    options = {"database": None if given.budget else False, **({"budget": given.budget} if given.budget else {})}
    for name in given.models:
        torch._dynamo.reset()
        model = build(name)
        engines = [Torch(model, "autotune", options), Torch(model, "inductor"), Torch(model, None)]
        first = []
        for engine in engines:
            start = time.perf_counter()
            engine.run(feeds)
            first.append(time.perf_counter() - start)
        found = compare(engines, feeds, target, flops=0, rounds=given.rounds, reference="torch")
        ours, inductor, eager = found.results
        ratio = found.speedup(inductor)
        low, high = ratio.interval or (float("nan"), float("nan"))
        print(
            f"{name:20} ours {ours.seconds * 1e3:8.2f} ms  inductor {inductor.seconds * 1e3:8.2f}"
            f"  torch {eager.seconds * 1e3:8.2f}  {ratio.median:5.2f}x ({low:.2f} to {high:.2f})"
            f"  error {ours.max_error:.1e}  first call {first[0]:.1f} s, {first[1]:.1f} s  {found.disturbance}",
            flush=True,
        )
        if given.json is not None:
            with given.json.open("a") as file:
                file.write(json.dumps({"model": name, "threads": given.threads, **found.to_dict()}) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
