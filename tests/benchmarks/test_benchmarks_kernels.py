"""The cases of the kernel benchmark are sound models that count what they say; a quick run reports and draws."""

from __future__ import annotations

import json
import math
from pathlib import Path

import onnx
import pytest

from benchmarks import kernels
from benchmarks.kernel_cases import Case, cases

OPERATORS = {"rows": ("Softmax", "LayerNormalization", "Erf"), "attention": ("Softmax",), "recurrent": ("LSTM", "GRU")}


@pytest.mark.parametrize(
    "case",
    [case for case in cases() if case.nbytes * case.count < 8 << 20],
    ids=lambda case: f"{case.group} {case.name}",
)
def test_a_case_counts_what_its_model_runs(case: Case) -> None:
    model = case.build()
    onnx.checker.check_model(model, full_check=True)
    kinds = OPERATORS.get(case.group, ("MatMul", "Conv"))
    nodes = [node for node in model.graph.node if node.op_type in kinds]
    if case.group == "recurrent":
        assert nodes
        return
    weights = {t.name: math.prod(t.dims) for t in model.graph.initializer}
    first = nodes[-case.count]
    assert len(nodes) in (case.count, case.count + 1)  # a fan has one convolution in front
    if case.flops and first.op_type == "Conv":
        output = next(v for v in model.graph.value_info if v.name == first.output[0])
        points = math.prod(d.dim_value for d in output.type.tensor_type.shape.dim[2:])
        assert case.flops == 2 * weights[first.input[1]] * points


def test_every_group_has_a_goal() -> None:
    assert {case.group for case in cases()} == set(kernels.GOALS)


def test_a_quick_run(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out, drawn = tmp_path / "kernels.json", tmp_path / "kernels.svg"
    assert kernels.main(["--quick", "--group", "attention", "--json", str(out), "--plot", str(drawn)]) == 0
    found = json.loads(out.read_text())
    (row,) = found["tables"]["attention, 1 threads"]
    assert row["untuned µs"] > 0 and row["onnxruntime µs"] > 0
    assert drawn.read_text().lstrip().startswith("<?xml")
