"""What README and docs print works: every command and every piece of Python, page by page, on small models."""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.measure.checkup import Observation
from autotune.measure.peaks import Peaks, Rate
from autotune.measure.quiet import Disturbance
from autotune.measure.rounds import Moment
from autotune.plugins import GROUP
from autotune.target import Target
from tests.cli.cli_models import invoke
from tests.compiler.test_compiler_growing import decoder
from tests.pages import PAGES, ROOT, Block, blocks, name_of

NOT_OURS = ("pip ", "make ", "cc ", "python -m benchmarks", "mkdir ", "cd ")
NEEDED = {"use-from-pytorch.md": ("torch", "torchvision", "onnxscript")}
FEWER = {
    "n=1..8": "n=1..3",
    "n=2..8=1": "n=2..3=1",
    "length=16..384": "length=64..128",
    "length=16..128": "length=64..128",
}
"""Ranges of shapes, each with as many kinds of programs as the printed one, but fewer of a kind."""
SHORT = {"--budget": "1s", "--trials": "2", "--rounds": "1", "--duration": "0.1s", "--warm-up": "0.01s"}
"""What takes long is asked for briefly; it is as long as printed for users."""
USED = {"bench": ["--rounds", "1"], "report": ["--rounds", "1"]}
WITH_CODE = [page for page in PAGES if any(block.language in ("sh", "python") for block in blocks(page))]


def image_model(data: str = "data") -> onnx.ModelProto:
    """A patch embedding with a classifier: input `data` f32[1, 3, 224, 224], nodes conv1, pool and head."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((8, 3, 16, 16)) / 30, "v": rng.standard_normal((8, 10))}
    nodes = [
        helper.make_node("Conv", [data, "w"], ["a"], "conv1", strides=[16, 16]),
        helper.make_node("GlobalAveragePool", ["a"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("MatMul", ["f", "v"], ["y"], "head"),
    ]
    graph = helper.make_graph(
        nodes,
        "image",
        [helper.make_tensor_value_info(data, TensorProto.FLOAT, [1, 3, 224, 224])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def found_model() -> onnx.ModelProto:
    """Where a patch embedding is not zero: input `images` f32[1, 3, 224, 224], a result as long as that is often."""
    model = image_model("images")
    nodes = [helper.make_node("Relu", ["a"], ["r"]), helper.make_node("NonZero", ["r"], ["where"])]
    model.graph.node.extend(nodes)
    model.graph.output.append(helper.make_tensor_value_info("where", TensorProto.INT64, [4, "count"]))
    return model


def token_model() -> onnx.ModelProto:
    """Embeddings and their softmax: input `tokens` i64[n, 128]."""
    table = np.random.default_rng(0).standard_normal((50, 16)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["e"], "embed"),
        helper.make_node("Softmax", ["e"], ["y"], "softmax"),
    ]
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["n", "length"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(table, "table")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the files that the pages speak of."""
    monkeypatch.chdir(tmp_path)
    rate = Rate(100.0, 200.0)
    peaks = Peaks(rate, None, None, rate, rate, rate, rate)
    for place in ("autotune.measure.peaks", "autotune.api.report"):  # which takes seconds, on a busy machine many
        monkeypatch.setattr(f"{place}.measure_peaks", lambda target: peaks)
    calm = Moment(Target.parse("native").core.ghz, 100.0, 8.0)
    seen = Observation(Disturbance(), (calm,), (True,), calm)  # whatever runs beside these tests
    monkeypatch.setattr("autotune.measure.checkup.observe", lambda *_: seen)
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "user.sqlite"))
    for name in ("resnet50.onnx", "model.onnx"):
        onnx.save(image_model(), name)
    onnx.save(image_model("image"), "detector.onnx")
    onnx.save(token_model(), "encoder.onnx")
    onnx.save(found_model(), "yolo_with_nms.onnx")
    onnx.save(decoder(), "decoder_with_past.onnx")
    np.save("image.npy", np.zeros((1, 3, 224, 224), np.float32))
    for number, name in enumerate(("street.npy", "night.npy")):
        np.save(name, np.random.default_rng(number).standard_normal((1, 3, 224, 224), np.float32))
    with autotune.Database.open(tmp_path / "colleague.sqlite"):
        return tmp_path


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_plugins: None) -> None:
    """What `pip install` makes of the package in docs/how-to/add-an-operator.md, for this process and its workers."""
    site = tmp_path / "site"
    info = site / "l1_distance-1.0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(ROOT / "examples/plugin/l1_distance.py", site)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: l1-distance\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nl1_distance = l1_distance\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(ROOT), os.environ.get("PYTHONPATH", "")]))


def run_commands(block: Block, page: Path) -> None:
    for number, line in enumerate(re.sub(r"\\\n\s*", "", block.text).splitlines()):
        if not line.strip() or line.startswith(NOT_OURS):
            continue
        words = [FEWER.get(word, word) for word in shlex.split(line, comments=True)]
        assert words[0] == "autotune", f"{page.name}:{block.line + number}: what runs {words[0]}?"
        for place, word in enumerate(words[:-1]):
            words[place + 1] = SHORT.get(word, words[place + 1])
        words = words[1:] + (USED.get(words[1], []) if "--rounds" not in words else [])
        if Path(words[0]).suffix == ".onnx":
            words = ["quick", *words, "--budget", "1s"]
        done = invoke(*words)
        assert done.exit_code == 0, f"{page.name}:{block.line + number}: {line}\n{done.stderr}"


def run_python(block: Block, page: Path, names: dict[str, Any]) -> dict[str, Any]:
    """Runs a block where `names` are known; what is known after it."""
    path = Path(f"{page.stem}_{block.line}.py")
    path.write_text(re.sub(r'budget(="|": ")\w+"', r'budget\g<1>1s"', block.text))
    return {**names, **runpy.run_path(str(path), names)}


@pytest.mark.parametrize("page", WITH_CODE, ids=map(name_of, WITH_CODE))
def test_what_a_page_prints_works(page: Path, folder: Path, request: pytest.FixtureRequest) -> None:
    missing = [name for name in NEEDED.get(page.name, ()) if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    if page.name == "add-an-operator.md":
        request.getfixturevalue("plugin")
    names: dict[str, Any] = {}
    for block in blocks(page):
        if block.language == "sh":
            run_commands(block, page)
        elif block.language == "python" and "@operator(" not in block.text:  # that is the plugin
            names = run_python(block, page, names)


def test_most_pages_have_code() -> None:
    assert len(WITH_CODE) >= 8


def test_the_api_page_lists_public_names() -> None:
    listed = re.findall(r"^::: autotune\.(\w+)$", (ROOT / "docs/reference/api.md").read_text(), re.MULTILINE)
    assert len(listed) > 20 and set(listed) <= {*autotune.__all__, "errors"}


def test_the_site_lists_pages_that_exist() -> None:
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text())
    assert len(listed) > 20 and [page for page in listed if not (ROOT / "docs" / page).is_file()] == []


def test_the_tutorial_shows_the_plugin_that_is_tested() -> None:
    shown = next(block.text for block in blocks(ROOT / "docs/how-to/add-an-operator.md") if "@operator(" in block.text)
    assert shown == (ROOT / "examples/plugin/l1_distance.py").read_text()
