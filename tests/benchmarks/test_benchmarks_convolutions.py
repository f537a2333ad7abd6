"""The benchmark of all convolutions of the zoo's models."""

from __future__ import annotations

from autotune.search_spaces.operators.conv2d_shape import sizes
from benchmarks import convolutions
from benchmarks.report import Report
from tests.search_spaces.conv_cases import conv


def test_convolutions_of_a_model_are_distinct() -> None:
    found = convolutions.convolutions(["squeezenet"])
    shapes = [sizes(workload) for workload in found]
    assert len(set(shapes)) == len(shapes) > 10
    assert all(owners == ["squeezenet"] for owners in found.values())


def test_every_kind_of_convolution_gets_a_row_and_dense_ones_count() -> None:
    report = Report("convolutions", "test")
    kinds = {conv(16, 9, 9, 16, groups=groups): ["m"] for groups in (1, 2, 16)}
    dense = convolutions.measure(report, "native", kinds, 2)
    rows = report.tables["convolutions, native"]
    chosen = {str(row["template"]).removesuffix("_across") for row in rows}  # which is up to the CPU
    assert chosen == {"conv2d.direct", "conv2d.grouped", "sketch.contraction"}
    assert len(dense) == 1 and all(float(row["% of probe"] or 0) > 0 for row in rows)


def test_a_convolution_is_described_by_what_distinguishes_it() -> None:
    assert convolutions.describe(sizes(conv(4, 9, 8, 8, 3, groups=4, stride=(2, 2)))) == "9×8 4→8 3×3 s2 g4"
    assert convolutions.describe(sizes(conv(4, 9, 8, 8, 1, pad=(0, 0, 0, 0)))) == "9×8 4→8 1×1"
