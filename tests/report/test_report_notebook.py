"""What a notebook shows of values is short and escaped; what programs get of them is JSON."""

from __future__ import annotations

import json
import xml.etree.ElementTree
from dataclasses import replace
from pathlib import Path

import autotune
from autotune.api.compile import tasks
from autotune.api.explain import explain
from autotune.compiler.compile import KernelReport
from autotune.engines.compare import Comparison, EngineResult
from autotune.graph import load_model
from autotune.ops.parse import parse_workload
from autotune.records import Tier
from autotune.report.coverage import Coverage
from autotune.report.naming import task_name
from autotune.report.notebook import MOST_ROWS, html_table
from autotune.report.profile import HostProfile, KernelProfile, Profile
from tests.cli.cli_models import conv_model, save

TARGET = "native -num-cores=1"


def cells(html: str) -> list[list[str]]:
    """The rows of a table, once it has been parsed as a document; line by line."""
    root = xml.etree.ElementTree.fromstring(f"<div>{html}</div>")
    return [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]


def kernel(seconds: float, node: str = "conv1") -> KernelReport:
    workload = parse_workload("relu data=1000")
    return KernelReport(workload, '{"template":"generic"}', Tier.MISS, "never <b>tuned</b>", seconds, 64, (node,))


def test_tables_are_short_and_escaped() -> None:
    shown = html_table("<script>", ("a & b",), [(f"<i>{n}</i>",) for n in range(MOST_ROWS + 3)], ("x < y",))
    assert "<script>" not in shown and "<i>" not in shown
    assert cells(shown)[:2] == [["a & b"], ["<i>0</i>"]] and len(cells(shown)) == MOST_ROWS + 1
    assert "and 3 more" in shown and "x &lt; y" in shown


def test_every_cell_is_one_line_and_texts_stand_to_the_left() -> None:
    """Notebooks wrap cells, and centre tables, by rules of their own that name cells and tables."""
    shown = html_table("times", ("time", "node"), [("1.0 µs", "conv1"), ("-", "conv2")])
    assert shown.count('style="white-space: nowrap"') == 3
    assert shown.count('style="white-space: nowrap; text-align: left"') == 3
    assert '<table style="margin-left: 0">' in shown


def test_coverage() -> None:
    found = Coverage.of([kernel(1e-3)])
    assert json.loads(json.dumps(found.to_dict()))["reasons"] == [{"reason": "never <b>tuned</b>", "kernels": 1}]
    assert cells(found._repr_html_())[1] == ["default", "100.0 %", "1", "1.000 ms"]
    assert "1 kernel: never &lt;b&gt;tuned" in found._repr_html_()


def test_a_profile_shows_what_takes_longest_first() -> None:
    kernels = (
        KernelProfile(kernel(1e-3, "small"), 0.0, 1e-4, 1e-5),
        KernelProfile(kernel(1e-3, "<large>"), 0.0, 8.999e-4, 4.5e-4),
        KernelProfile(kernel(1e-3, "largest"), 0.0, 9e-4, 4.5e-4),
    )
    found = Profile(kernels, (), 1, 2e-3, 100.0, (("L2", 1 << 20, 50.0),))
    assert [row[3] for row in cells(found._repr_html_())] == ["node", "largest", "<large>", "small"]
    assert cells(found._repr_html_())[1][:3] == ["900.0 µs", "47.4 %", "50.0 %"]
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert [one["nodes"] for one in values["kernels"]] == [["small"], ["<large>"], ["largest"]]
    assert values["latency"] == 2e-3 and values["bandwidth"] == {"L2": 50.0}
    hosted = replace(found, hosts=(HostProfile("NonZero", 0.0, 1.0),), doubts=("too low",))
    assert cells(hosted._repr_html_())[1][3] == "NonZero"
    assert "the limits are in doubt: too low" in hosted._repr_html_()


def test_an_explanation() -> None:
    found = explain("matmul a=32,64 b=64,32", TARGET, False)
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values["flops"] == found.workload.flops and values["steps"] == found.steps
    rows = dict(cells(found._repr_html_())[1:])
    assert {"work", "schedule", "code", "spills"} <= set(rows) and rows["measured"] == "-"


def test_a_best_schedule() -> None:
    found = autotune.best_schedule("relu data=64", TARGET, False)
    rows = dict(cells(found._repr_html_())[1:])
    assert rows["schedule"].startswith("miss: ") and rows["measured"] == "-" and "template=" in rows["config"]


def test_a_comparison_without_an_error_that_json_could_hold() -> None:
    ours = EngineResult("autotune", "1", 1.0, 0.0, 1.0, 0.1, float("inf"), (1.0, 1.0, 1.0))
    peer = EngineResult("other", "2", 2.0, 0.0, 1.0, 0.1, 1e-7, (2.0, 2.0, 2.0))
    values = json.loads(json.dumps(Comparison((ours, peer), 10.0, 3).to_dict(), allow_nan=False))
    assert [(one["max_error"], one["speedup"]) for one in values["engines"]] == [(None, 1.0), (1e-7, 2.0)]


def test_a_tuning_report_and_tasks(tmp_path: Path) -> None:
    report = autotune.tune("relu data=64", TARGET, tmp_path / "t.sqlite", trials=2)
    values = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert values["new_trials"] == 2 and values["tasks"][0]["operator"] == "relu data=64"
    assert cells(report._repr_html_())[1][4:] == ["2", "", "relu data=64"]
    found = tasks(save(conv_model(), tmp_path / "m.onnx"), TARGET)
    assert isinstance(found, tuple)
    rows = cells(found._repr_html_())
    assert len(rows) == len(found) + 1 and rows[0] == ["share of FLOP", "uses", "node", "operator"]


def test_a_task_is_called_after_its_first_kernel_and_says_how_many_there_are() -> None:
    assert task_name([]) == task_name([()]) == ""
    assert task_name([("conv1",)]) == "conv1"
    assert task_name([("conv1", "bn1", "relu1"), ("conv2", "bn2", "relu2"), ()]) == "conv1 (+2) ×2"


def test_lines_of_graphs_and_schedules_are_not_broken() -> None:
    """A notebook breaks those of preformatted text, between any two letters."""
    shown = autotune.best_schedule("relu data=64", TARGET, False).schedule, load_model(conv_model().SerializeToString())
    assert all("white-space: pre" in one._repr_html_().partition(">")[0] for one in shown)
