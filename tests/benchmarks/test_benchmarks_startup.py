"""Start-up, overhead and memory in miniature."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import autotune
from benchmarks import memory, startup
from benchmarks.models import example
from benchmarks.report import Report


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(startup.tiny_model(), tmp_path / "tiny.onnx")
    return tmp_path / "tiny.onnx"


def test_sessions_start_from_a_model_a_cache_and_a_compiled_file(model: Path, tmp_path: Path) -> None:
    found = startup.sessions(model, 1, None, 1, tmp_path)
    assert list(found) == ["no object cache", "object cache", "compiled file"]
    assert all(0 < row["session s"] < row["process s"] for row in found.values())
    assert list((tmp_path / "cache0").rglob("*")), "the object cache was not where the benchmark put it"
    report = Report("startup", "test")
    startup.claims(report, "tiny", {f"{what}, from records": row for what, row in found.items()})
    assert [claim.bound for claim in report.claims] == [1.5, 0.4, 0.3]


def test_overhead_compares_with_numpy() -> None:
    times = startup.overhead(2)
    assert times["autotune"] > times["numpy"] > 0


def test_a_compiled_file_starts_without_what_it_does_not_need(model: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "tiny.atc"
    autotune.compile(model, database=False).save(compiled)
    program = startup.CHILD + 'print(json.dumps({name: 1.0 for name in sys.modules if "." not in name}))'
    lines = startup.start(
        program.replace('print(json.dumps({"session', 'str(({"session'), tmp_path,
        model=str(compiled), target="native -num-cores=1", database=False,
    )  # fmt: skip
    assert not {"onnx", "xgboost", "sqlite3", "sqlite_utils", "typer"} & lines.keys()


def test_memory_is_above_the_baseline(model: Path) -> None:
    found = memory.peak("autotune", model, model, 1, None, None)
    assert found["baseline"] > 0 and found["peak"] >= found["stays"]
    assert example(onnx.load(model)).keys() == {"x"}


def test_winograd_weights_are_counted(tmp_path: Path) -> None:
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 64, 28, 28]) for name in ("x", "y")]
    weight = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [64, 64, 3, 3], [0.5] * (64 * 64 * 9))
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    graph = onnx.helper.make_graph([node], "conv", values[:1], values[1:], [weight])
    one = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])
    onnx.save(one, tmp_path / "conv.onnx")
    extra = memory.winograd_bytes(tmp_path / "conv.onnx", 1, None)
    assert extra in {0.0, *(64 * 64 * 9 * 4 * (growth - 1) for growth in memory.GROWTH.values())}
