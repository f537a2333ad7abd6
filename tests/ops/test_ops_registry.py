"""Workloads become definitions: names, several outputs, shared values, keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.errors import WorkloadError
from autotune.ops import (
    TensorType,
    Workload,
    WorkloadInput,
    WorkloadNode,
    compute_def,
    lookup,
    operators,
    parse_workload,
)
from autotune.tensor.evaluate import evaluate

X = WorkloadInput(TensorType("f32", (3, 4)))
RELU, EXP = WorkloadNode.make("relu", (0,)), WorkloadNode.make("exp", (1,))
CUMSUM = WorkloadNode.make("cumsum", (0,), axis=1, exclusive=False, reverse=False)


def outputs_of(workload: Workload) -> list[np.ndarray[Any, Any]]:
    definition = compute_def(workload)
    assert definition.outputs == tuple(f"out{n}" for n in range(len(workload.outputs)))
    assert [t.name for t in definition.inputs] == [f"in{n}" for n in range(len(workload.inputs))]
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    return list(evaluate(definition, {"in0": x}).values())


def test_a_value_may_be_an_output_and_read_on() -> None:
    workload = Workload((X,), (RELU, EXP), (1, 2))
    relu, exp = outputs_of(workload)
    np.testing.assert_array_equal(np.exp(relu), exp)
    assert len(compute_def(workload).stages) == 2  # nothing is computed twice


def test_the_same_value_twice_and_an_input_as_output() -> None:
    first, second, copy = outputs_of(Workload((X,), (RELU,), (1, 1, 0)))
    np.testing.assert_array_equal(first, second)
    assert copy.min() == -1


def test_scans_and_tuple_reducers_get_output_names() -> None:
    (scanned,) = outputs_of(Workload((X,), (CUMSUM,), (1,)))
    assert scanned.shape == (3, 4)
    arg = WorkloadNode.make("argmax", (0,), axis=1, keepdims=False, select_last_index=False)
    (found,) = outputs_of(Workload((X,), (arg,), (1,)))
    assert found.tolist() == [3, 3, 3]


def test_two_scans_in_a_row_keep_their_states_apart() -> None:
    again = WorkloadNode.make("cumsum", (1,), axis=0, exclusive=True, reverse=False)
    workload = Workload((X,), (CUMSUM, again), (2,))
    names = [t.name for t in compute_def(workload).tensors]
    assert len(set(names)) == len(names)
    (found,) = outputs_of(workload)
    x = np.linspace(-1, 1, 12).reshape(3, 4).cumsum(axis=1)
    np.testing.assert_allclose(found, x.cumsum(axis=0) - x, atol=1e-6)


def test_names_stay_unique_when_an_operator_occurs_twice() -> None:
    nodes = tuple(WorkloadNode.make("softmax", (n,), axis=1) for n in range(3))
    names = [t.name for t in compute_def(Workload((X,), nodes, (3,))).tensors]
    assert len(set(names)) == len(names) == 16


def test_constness_reaches_the_definition() -> None:
    assert [t.constant for t in compute_def(parse_workload("matmul a=2,3 b=3,4")).inputs] == [False, True]


def test_workload_json_and_key() -> None:
    workload = parse_workload("clip data=3,4 min=0 + relu")
    assert Workload.from_json(workload.to_json()) == workload
    assert len(workload.key) == 16
    assert workload.key != parse_workload("clip data=3,4 min=1 + relu").key


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"inputs":[],"nodes":[],"outputs":[]}', '{"inputs":3}'])
def test_text_that_is_no_workload(text: str) -> None:
    with pytest.raises(WorkloadError):
        Workload.from_json(text)


def test_unknown_dtype_and_forward_reads() -> None:
    with pytest.raises(WorkloadError, match="unknown dtype 'float'"):
        Workload((WorkloadInput(TensorType("float", (3,))),), (RELU,), (1,)).types()
    with pytest.raises(WorkloadError, match="does not exist yet"):
        Workload((X,), (WorkloadNode.make("relu", (1,)),), (1,))


def test_flops_count_values_and_not_indices() -> None:
    assert parse_workload("matmul a=8,16 b=16,4").flops == 2 * 8 * 16 * 4
    assert parse_workload("matmul a=8,16 b=16,4 + bias + relu").flops == 2 * 8 * 16 * 4 + 2 * 8 * 4
    assert parse_workload("transpose data=8,16 perm=1,0").flops == 0
    assert parse_workload("concat data=8,16 data=8,3").flops == 0
    assert parse_workload("relu data=8").flops == 8
    assert parse_workload("matmul a=8,16 b=16,4 dtype=i8").flops == 2 * 8 * 16 * 4


def test_every_operator_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/operators.md").read_text()
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert sorted(rows) == list(operators())
    for name, row in rows.items():
        op = lookup(name)
        assert all(word in row for word in (*op.operands, *op.defaults)), row
