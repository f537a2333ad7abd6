"""`autotune profile` and `autotune passes` on a small model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.graph.passes import PASSES, describe
from tests.cli.cli_models import conv_model, invoke, save

TARGET = ("--target", "native -num-cores=1")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(conv_model(), tmp_path_factory.mktemp("model") / "small.onnx")


def test_profile_covers_every_kernel_and_writes_a_trace(model: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    done = invoke("profile", model, *TARGET, "--untuned", "--rounds", "3", "--trace", trace, "--json")
    found = json.loads(done.stdout)
    kernels = found["kernels"]
    assert sum(kernel["share"] for kernel in kernels) == pytest.approx(1.0)
    assert all(kernel["bytes"] > 0 and kernel["of_limit"] > 0 and kernel["tier"] == "miss" for kernel in kernels)
    assert sum("conv2d" in kernel["kernel"] for kernel in kernels) == 2
    events = json.loads(trace.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert [event["args"]["operator"] for event in spans] == [kernel["kernel"] for kernel in kernels]
    assert [event["args"]["nodes"] for event in spans] == [kernel["nodes"] for kernel in kernels]
    named = {event["name"]: event["args"]["nodes"] for event in spans if "conv2d" in event["args"]["operator"]}
    assert named == {"a (+1)": ["a", "r"], "y": ["y"]}
    ends = [event["ts"] + event["args"]["us"] for event in spans]
    assert all(after["ts"] == pytest.approx(end) for after, end in zip(spans[1:], ends))
    assert all(event["dur"] <= event["args"]["us"] for event in spans), "one thread: its part is all of it"


def test_profile_as_text_names_the_limits(model: Path) -> None:
    shown = invoke("profile", model, *TARGET, "--untuned", "--rounds", "2", "--top", "1").stdout
    assert "more kernels" in shown and "GFLOP/s fp32" in shown and "from memory" in shown


def test_a_trace_into_a_missing_folder_is_refused_first(model: Path, tmp_path: Path) -> None:
    done = invoke("profile", model, *TARGET, "--trace", tmp_path / "none" / "trace.json")
    assert done.exit_code == 1 and "there is no folder" in done.stderr


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_says_what_it_requires_and_ensures(name: str) -> None:
    found = describe(name)
    assert found.summary and found.requires and found.ensures
    assert name in invoke("passes").stdout


def test_passes_of_a_model_with_dumps(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "graphs"
    found = json.loads(invoke("passes", model, "--dump-graph", folder, "--json").stdout)
    assert found[0]["pass"] == "imported" and len(found) > 1
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 2 * len(found)
    assert names[0] == "00-imported.dot"
    text = (folder / "00-imported.txt").read_text()
    assert "conv2d(" in text
    drawing = (folder / names[0]).read_text()
    assert drawing.startswith("digraph {") and drawing.count('"') % 2 == 0 and "->" in drawing


def test_a_pass_can_be_skipped(model: Path) -> None:
    every = {entry["pass"] for entry in json.loads(invoke("passes", model, "--json").stdout)}
    assert "dead-code" in every
    some = json.loads(invoke("passes", model, "--skip-pass", "dead-code", "--json").stdout)
    assert "dead-code" not in {entry["pass"] for entry in some}
    done = invoke("passes", model, "--skip-pass", "no-such")
    assert done.exit_code == 1 and "there is no graph pass 'no-such'" in done.stderr
