"""`autotune report`: a tuned model's page, and wrong uses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.cli_models import conv_model, invoke, save

TARGET = ("--target", "native -num-cores=1")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("report")
    model = save(conv_model(1), folder / "m.onnx")
    done = invoke("tune", model, *TARGET, "--db", folder / "db.sqlite", "--trials", "6", "--verdict", "tuned")
    assert done.exit_code == 0, done.stderr
    return model, folder / "db.sqlite"


def test_a_tuned_model_has_a_page(tuned: tuple[Path, Path], tmp_path: Path) -> None:
    model, db = tuned
    out = tmp_path / "page.html"
    done = invoke(
        "report",
        model,
        *TARGET,
        "--db",
        db,
        "-o",
        out,
        "--other-db",
        db,
        "--against",
        "onnxruntime",
        "--rounds",
        "2",
        "--json",
    )
    assert done.exit_code == 0, done.stderr
    values, text = json.loads(done.stdout), out.read_text()
    assert values["bytes"] == out.stat().st_size and values["kernels"] >= 1 and values["exact"] > 0
    for heading in ("Latency", "Where the time goes", "Best so far", "The cost model", f"Against {db}"):
        assert f"<h2>{heading}" in text
    assert "onnxruntime" in text and "answers differ from ONNX Runtime" in text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("none.onnx",), "none.onnx"),
        (("MODEL", "-o", "nowhere/page.html"), "there is no folder nowhere"),
        (("MODEL", "--other-db", "none.sqlite"), "none.sqlite"),
        (("MODEL", "--against", "tensorflux"), "tensorflux"),
    ],
)
def test_wrong_uses_are_one_line(
    arguments: tuple[str, ...],
    complaint: str,
    tuned: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [str(tuned[0]) if word == "MODEL" else word for word in arguments]
    done = invoke("report", *words, *TARGET, "--db", tuned[1], "--rounds", "1")
    assert done.exit_code == 1 and complaint in done.stderr and len(done.stderr.strip().splitlines()) == 1
