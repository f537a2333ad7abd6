"""`autotune compile` on models whose shapes a run decides, and what other commands do with such a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.api.test_api_open_shapes import nonzero_model
from tests.api.test_api_staged import named_batch
from tests.cli.cli_models import conv_model, invoke, save

TARGET = ("--target", "native -num-cores=1", "--untuned")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("staged")
    (found / "batch.onnx").write_bytes(named_batch())
    save(nonzero_model(), found / "nonzero.onnx")
    save(conv_model(1), found / "conv.onnx")
    np.save(found / "image.npy", np.ones((1, 3, 8, 8), np.float32))
    for n in (2, 3):
        np.save(found / f"{n}.npy", np.ones((n, 6), np.float32))
    return found


def test_a_model_that_data_decides_becomes_a_file(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "nonzero.at"
    done = invoke("compile", folder / "nonzero.onnx", "-o", out, *TARGET)
    assert done.exit_code == 0, done.output
    assert "ready for: what these runs led to" in done.stdout
    assert "compiled when they come: other shapes, and values that lead to other programs" in done.stdout
    ran = invoke("run", out, "--random", "0", "--json")
    whole = invoke("run", folder / "nonzero.onnx", "--random", "0", "--json", *TARGET)
    assert json.loads(ran.stdout) == json.loads(whole.stdout)
    assert "node 'find' (NonZero)" in invoke("check", out).stdout
    timed = invoke("bench", out, "--rounds", "2", "--json")
    assert timed.exit_code == 0, timed.output


def test_shapes_and_inputs_say_what_it_is_ready_for(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "batch.at"
    found = json.loads(invoke("compile", folder / "batch.onnx", "-o", out, "--shape", "n=4", *TARGET, "--json").stdout)
    assert found["staged"] and found["shapes"] == {"exact": [{"n": 4}], "ranged": []}
    assert [one["inputs"] for one in found["programs"]] == [{"x": [4, 6]}]
    assert found["bytes"] == out.stat().st_size > found["model_bytes"] > 0
    runs = [word for n in (2, 3) for word in ("--input", f"x={folder / f'{n}.npy'}")]
    found = json.loads(invoke("compile", folder / "batch.onnx", "-o", out, *runs, *TARGET, "--json").stdout)
    assert found["shapes"] == {"exact": [{"n": 2}, {"n": 3}], "ranged": []}
    ranged = invoke("compile", folder / "batch.onnx", "-o", out, "--shape", "n=1..8", *TARGET).stdout
    assert "ready for: n = 1; n = 2; n = 4; n = 8" in ranged
    ran = invoke("run", out, "--shape", "n=8", "--random", "0")
    assert ran.exit_code == 0 and "[8, 5]" in ran.stdout


def test_what_is_refused(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.at"

    def refused(*args: str | Path) -> str:
        done = invoke("compile", *args, *TARGET)
        assert done.exit_code == 1
        return done.stderr

    library = refused(folder / "nonzero.onnx", "-o", tmp_path / "x.so")
    assert "node 'find' (NonZero)" in library and "write it to one file by `autotune compile -o FILE.at`" in library
    alone = refused(folder / "batch.onnx", "-o", out)
    assert "'x' has open dimensions (n,6): pass --shape x=1,6" in alone
    single = refused(folder / "conv.onnx", "-o", out, "--input", f"x={folder / 'image.npy'}")
    assert "--input is for models whose shapes a run decides" in single
    uneven = [*("--input", f"x={folder / '2.npy'}") * 2, *("--input", f"y={folder / '3.npy'}") * 3]
    assert "--input names x 2 times, another input 3 times" in refused(folder / "batch.onnx", "-o", out, *uneven)
    assert not out.exists()


def test_options_that_mean_nothing_to_it_are_told(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "nonzero.at"
    invoke("compile", folder / "nonzero.onnx", "-o", out, *TARGET)
    done = invoke("run", out, "--random", "0", "--precision", "bf16")
    assert "is compiled already: --precision have no effect on it" in done.output
