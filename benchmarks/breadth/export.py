"""From an architecture to an ONNX file beside its inputs, in the way that its name decides."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from autotune.engines.peers import load_peer
from benchmarks.breadth.architecture import Architecture, Axes, Sample

SEED = 0
OPSETS = {True: 20, False: 17}  # by whether torch.export is used


def warm() -> None:
    """Export a small network in both ways, so that forked processes inherit what exporters import."""
    import torch

    net = Architecture("warm/linear", lambda: Sample(torch.nn.Linear(2, 2), {"input": torch.ones(1, 2)}))
    with tempfile.TemporaryDirectory(prefix="autotune-breadth-") as folder:
        for dynamo in OPSETS:
            _export(net, Path(folder), dynamo, open_=False)


def export(architecture: Architecture, folder: Path) -> dict[str, Any]:
    """Write model.onnx and feeds.npz; how it was exported.

    What an exporter refuses is given to the other one, and what has open axes, then with fixed ones: both say more
    about exporters than about what is exported.
    """
    ways = [(architecture.dynamo, architecture.open), (not architecture.dynamo, architecture.open)]
    if architecture.open:
        ways += [(architecture.dynamo, False), (not architecture.dynamo, False)]
    refused: list[str] = []
    for dynamo, open_ in ways:
        try:
            return {**_export(architecture, folder, dynamo, open_), "refused": refused}
        except Exception as error:  # noqa: BLE001  exporters raise what they like
            refused.append(f"{_way(dynamo, open_)}: {' '.join(f'{type(error).__name__}: {error}'.split())[:200]}")
    raise RuntimeError("; ".join(refused))


def _way(dynamo: bool, open_: bool) -> str:
    return f"{'torch.export' if dynamo else 'TorchScript'}, {'open' if open_ else 'fixed'}"


def _export(architecture: Architecture, folder: Path, dynamo: bool, open_: bool) -> dict[str, Any]:
    import torch

    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # one operator that ONNX does not have
    sample = architecture.make()
    names = list(sample.inputs)
    axes: Axes = sample.axes if open_ else {}
    path = folder / "model.onnx"
    folder.mkdir(parents=True, exist_ok=True)
    how: dict[str, Any] = {"dynamic_axes": {name: dict(named) for name, named in axes.items()}}
    if dynamo:
        how = {"dynamic_shapes": _dynamic_shapes(sample.module, names, axes), "optimize": True, "verbose": False}
    with torch.no_grad():
        torch.onnx.export(
            sample.module.eval(), tuple(sample.inputs.values()), str(path), input_names=names, dynamo=dynamo,
            opset_version=OPSETS[dynamo], external_data=False, **how,
        )  # fmt: skip
    model = onnx.load(path)
    kept = {value.name for value in model.graph.input}  # inputs that nobody reads are dropped by one exporter
    feeds = {name: tensor.detach().numpy() for name, tensor in sample.inputs.items() if name in kept}
    np.savez(folder / "feeds.npz", allow_pickle=False, **feeds)
    load_peer("onnxruntime", path, 1, {}).run(feeds)  # what it cannot run was exported wrongly
    return {
        "exporter": "torch.export" if dynamo else "TorchScript",
        "axes": {name: {str(axis): label for axis, label in named.items()} for name, named in axes.items()},
        "nodes": len(model.graph.node),
        "bytes": path.stat().st_size,
    }


def _dynamic_shapes(module: Any, names: list[str], axes: Axes) -> Any:
    """Open dimensions for torch.export: nested as the module's parameters are."""
    import inspect

    import torch

    shapes = [dict.fromkeys(axes.get(name, {}), torch.export.Dim.DYNAMIC) for name in names]
    parameters: Mapping[str, inspect.Parameter] = inspect.signature(module.forward).parameters
    plain = [p for p in parameters.values() if p.kind is not inspect.Parameter.VAR_POSITIONAL]
    if len(plain) == len(parameters):
        return tuple(shapes)
    return (*shapes[: len(plain)], tuple(shapes[len(plain) :]))
