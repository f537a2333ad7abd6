"""`autotune explain`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.cli_models import conv_model, invoke, save

TARGET = ("--target", "native -num-cores=1")
PRODUCT = ("--op", "matmul a=64,128 b=128,64")


@pytest.fixture(autouse=True)
def no_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "none.sqlite"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(conv_model(1), tmp_path / "m.onnx")


def test_an_operator_is_explained() -> None:
    done = invoke("explain", *PRODUCT, *TARGET)
    assert done.exit_code == 0, done.stderr
    for heading in ("kernel", "work", "schedule", "loops and what they touch", "spills", "densest loop"):
        assert heading in done.stdout


def test_parts_are_shown_when_asked_for() -> None:
    plain = invoke("explain", *PRODUCT, *TARGET).stdout
    assert "unroll for" not in plain and "retq" not in plain
    whole = invoke("explain", *PRODUCT, *TARGET, "--show", "nest", "--show", "steps", "--show", "assembly").stdout
    assert "unroll for" in whole and "retq" in whole and "split(" in whole


def test_a_layer_of_a_model_is_found_by_its_node(model: Path) -> None:
    named = invoke("tasks", model, *TARGET, "--json")
    (node, *_), *_ = json.loads(named.stdout)["tasks"][0]["nodes"]
    done = invoke("explain", model, node, *TARGET, "--json")
    found = json.loads(done.stdout)
    assert found["workload"] == json.loads(named.stdout)["tasks"][0]["workload"]
    assert found["loops"] and found["nest"].startswith("kernel") and found["difference"] is None
    by_key = invoke("explain", model, found["workload"][:6], *TARGET, "--json")
    assert json.loads(by_key.stdout)["workload"] == found["workload"]
    assert json.loads(invoke("explain", model, *TARGET, "--json").stdout)["workload"]


def test_a_schedule_is_compared_with_another() -> None:
    same = invoke("explain", *PRODUCT, *TARGET, "--against", "default")
    assert same.exit_code == 0 and "the loops are those of default" in same.stdout


def test_a_template_is_explained_and_compared_with_another() -> None:
    done = invoke("explain", *PRODUCT, *TARGET, "--template", "generic", "--against", "sketch.contraction")
    assert done.exit_code == 0, done.stderr
    assert "generic, asked for" in done.stdout and "loops, from sketch.contraction to this" in done.stdout
    itself = invoke("explain", *PRODUCT, *TARGET, "--template", "generic", "--against", "generic")
    assert "the loops are those of generic" in itself.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint", "code"),
    [
        ((), "give one thing", 2),
        (("none.onnx",), "none.onnx", 1),
        (("--op", "matmul a=1"), "matmul", 1),
        ((*PRODUCT, "--config", "{"), "not JSON", 1),
        ((*PRODUCT, "--config", '{"template":"no.such"}'), "no.such", 1),
        ((*PRODUCT, "--show", "everything"), "everything", 2),
        ((*PRODUCT, "--template", "conv2d.direct"), "cannot compute matmul", 1),
        ((*PRODUCT, "--against", "generc"), "did you mean 'generic'", 1),
        ((*PRODUCT, "--template", "generic", "--config", "{}"), "give a config or a template, not both", 1),
    ],
)
def test_wrong_uses_are_one_line(arguments: tuple[str, ...], complaint: str, code: int) -> None:
    done = invoke("explain", *arguments)
    assert done.exit_code == code and complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_a_node_that_no_kernel_computes(model: Path) -> None:
    done = invoke("explain", model, "no_such_node", *TARGET)
    assert done.exit_code == 1 and "no kernel computes a node 'no_such_node'; `autotune tasks`" in done.stderr
