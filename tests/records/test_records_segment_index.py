"""An index says what a segment has; one that lies, is damaged or never ends is refused in one line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import DatabaseError
from autotune.records import segment_index
from autotune.records.block import Block, Extent, Summary, Task
from autotune.records.segment_index import read_index, write_index
from tests.records.records_samples import make_record, target_json

TASK = Task.of(make_record(1, description="matmul", family_key="f"))
OTHER = Task.of(make_record(1, workload='{"max":Infinity,"op":"clip"}', target=target_json(cpu="other")))
BLOCKS = [
    Block(
        Extent(ranges=((40, 60), (80, 100)), sha256="a" * 64), TASK,
        Summary(trials=3, verified=1, failures={"timeout": 1}, best_seconds=0.5, oldest=1.0, newest=2.0),
    ),
    Block(Extent(ranges=((60, 80),), sha256="b" * 64), OTHER, Summary(trials=1, oldest=3.0, newest=3.0)),
    Block(Extent(ranges=((100, 120),), sha256="c" * 64)),
]  # fmt: skip


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def rewritten(path: Path, lines: list[Any]) -> Path:
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_index(BLOCKS, 120, tmp_path / "index")
    assert list(read_index(tmp_path / "index", 120)) == BLOCKS
    assert list(read_index(tmp_path / "index", None)) == BLOCKS
    again = tmp_path / "again"
    write_index(BLOCKS, 120, again)
    assert again.read_bytes() == (tmp_path / "index").read_bytes()  # its name is its hash


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ranges": [[0, 10**30]]}, "a range must be a whole number"),
        ({"ranges": [[60, 999]]}, "more than the segment's 120 bytes"),
        ({"ranges": [[60, 50]]}, "ranges must be ascending"),
        ({"ranges": [[60, 80], [70, 90]]}, "ranges must be ascending"),
        ({"ranges": [[0, 2**40]]}, "a block has 1 to"),
        ({"ranges": []}, "a block has 1 to"),
        ({"ranges": "all"}, "a block needs ranges and sha256"),
        ({"ranges": [[0.5, 2]]}, "a range must be two whole numbers"),
        ({"sha256": "../../etc/passwd"}, "sha256 must be 64 hex digits"),
        ({"workload_key": "k" * 999}, "workload_key must be 1 to 128"),
        ({"workload": "{"}, "workload must be JSON text"),
        ({"description": 3}, "description must be a string"),
        ({"target_key": "nowhere"}, "no target 'nowhere' before it"),
        ({"target_key": []}, "no target"),
        ({"trials": -1}, "trials must be a positive integer"),
        ({"trials": 1, "verified": 9}, "1 trials cannot have 9 verified"),
        ({"failures": {"timeout": -1}}, "failures must be a whole number"),
        ({"failures": 7}, "failures must be counts by kind"),
        ({"best_seconds": 1.0}, "best_seconds belongs to verified trials"),
        ({"oldest": "now"}, "oldest must be a number"),
        ({"newest": None}, "newest must be a number"),
        ({"extra": "x" * 10**6}, "a block has no field 'extra'"),
    ],
)
def test_a_block_that_makes_no_sense(tmp_path: Path, change: dict[str, object], said: str) -> None:
    path = tmp_path / "index"
    write_index(BLOCKS, 120, path)
    lines = lines_of(path)
    (at,) = (number for number, line in enumerate(lines) if line.get("block", {}).get("sha256") == "b" * 64)
    lines[at] = {"block": {**lines[at]["block"], **change}}
    with pytest.raises(DatabaseError, match=f"^its index, line {at + 1}: {said}") as raised:
        list(read_index(rewritten(path, lines), 120))
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "its index is empty"),
        (["x"], "line 1: no header of an index"),
        ([{"format": "autotune-index", "version": 99, "bytes": 1}], "line 1: format version 99"),
        ([{"format": "autotune-index", "version": 1, "bytes": 7}], "line 1: it is of another segment: of 7 bytes"),
        ([{"format": "autotune-index", "version": 1, "bytes": 120}, {"run": "rm -rf /"}], "neither a target nor"),
        ([{"format": "autotune-index", "version": 1, "bytes": 120}, {"block": {}}], "a block needs ranges"),
    ],
)
def test_what_is_no_index(tmp_path: Path, lines: list[Any], said: str) -> None:
    with pytest.raises(DatabaseError, match=said):
        list(read_index(rewritten(tmp_path / "index", lines), 120))


def test_more_bytes_than_the_segment_has_are_not_claimed_many_times(tmp_path: Path) -> None:
    write_index([BLOCKS[0]] * 4, 120, tmp_path / "index")
    with pytest.raises(DatabaseError, match="more than the segment's 120 bytes"):
        list(read_index(tmp_path / "index", 120))


def test_damaged_and_endless_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index"
    write_index(BLOCKS, 120, path)
    whole = path.read_bytes()
    for damaged in (whole[:-20], whole[:10], b"\x1f\x8b", b"not gzip", whole[:40] + b"\xff" * 20 + whole[60:]):
        path.write_bytes(damaged)
        with pytest.raises(DatabaseError, match="its index"):
            list(read_index(path, 120))
    path.write_bytes(gzip.compress(b"[" * 100_000))
    with pytest.raises(DatabaseError, match="its index, line 1: not JSON: nested too deeply"):
        list(read_index(path, 120))
    monkeypatch.setattr(segment_index, "MAX_BYTES", 1000)
    path.write_bytes(gzip.compress(b"{}" + b" " * 10**6))
    with pytest.raises(DatabaseError, match="its index, line 1: too large"):
        list(read_index(path, 120))
