"""Scanning a segment finds what parsing every line of it finds."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autotune.errors import DatabaseError
from autotune.records import TuningRecord, segment_scan
from autotune.records.block import Block, Summary, Task
from autotune.records.exchange import parse_line
from tests.records.records_samples import make_failure, make_record, make_session, records

HEADER = '{"format":"autotune-records","version":4}'


def ignored(done: int) -> None:
    pass


def trial(record: TuningRecord, respaced: bool = False) -> str:
    line = f'{{"trial":{record.to_json()}}}'
    return json.dumps(json.loads(line)) if respaced else line


def summary_of(records: list[TuningRecord]) -> Summary:
    verified = [record for record in records if record.verified]
    best = min(verified, key=lambda record: (record.disturbed, record.seconds), default=None)
    dates = [record.created for record in records]
    return Summary(
        trials=len(records), verified=len(verified),
        failures=Counter(record.failure_kind for record in records if record.failure_kind),
        best_seconds=None if best is None else best.seconds, oldest=min(dates), newest=max(dates),
    )  # fmt: skip


def blocks_of(path: Path) -> list[Block]:
    return segment_scan.scan(path, ignored).blocks


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(records(), st.booleans()), min_size=1, max_size=12))
@example(
    [(make_record(1), False), (make_record(2, description='a "quoted\\" \u00e9'), False), (make_failure(3), False)]
)
@example([(make_record(number, spread=number / 2, disturbed=number == 2), False) for number in (3, 2, 1)])
def test_blocks_are_those_of_the_records(
    tmp_path_factory: pytest.TempPathFactory, content: list[tuple[TuningRecord, bool]]
) -> None:
    path = tmp_path_factory.mktemp("scan") / "segment.jsonl"
    text = "\n".join([HEADER, *(trial(*one) for one in content), ""])
    path.write_text(text, encoding="ascii")
    tasks: dict[Task, list[TuningRecord]] = {}
    first: dict[tuple[str, str], Task] = {}
    for record, _ in content:
        task = first.setdefault(Task.of(record).key, Task.of(record))
        tasks.setdefault(task, []).append(record)
    found = segment_scan.scan(path, ignored)
    assert found.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert {block.task: block.summary for block in found.blocks} == {
        task: summary_of(those) for task, those in tasks.items()
    }
    for block in found.blocks:
        assert block.task is not None
        there = b"".join(text.encode()[start:end] for start, end in block.extent.ranges)
        assert hashlib.sha256(there).hexdigest() == block.extent.sha256
        assert [parse_line(line, True) for line in there.splitlines()] == tasks[block.task]


def test_lines_as_autotune_writes_them_are_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "segment.jsonl"
    content = [make_record(1), make_failure(2), make_record(3, spread=0.9), make_record(4, description="x")]
    path.write_text("\n".join([HEADER, *map(trial, content), ""]))
    parsed: list[bytes] = []

    def counting(line: bytes, started: bool) -> object:
        parsed.append(line)
        return parse_line(line, started)

    monkeypatch.setattr(segment_scan, "parse_line", counting)
    (block,) = blocks_of(path)
    assert len(parsed) == 2  # the header, and the first of the task
    assert block.extent.ranges == ((len(HEADER) + 1, path.stat().st_size),)


def test_sessions_are_a_block_and_headers_none(tmp_path: Path) -> None:
    path = tmp_path / "segment.jsonl"
    session = json.dumps({"session": {**make_session("s1").to_mapping(), "versions": {"autotune": "0.1"}}})
    path.write_text("\n".join([HEADER, session, trial(make_record(1)), HEADER, session, trial(make_record(2))]))
    sessions, trials = blocks_of(path)
    assert sessions.task is None
    assert len(sessions.extent.ranges) == len(trials.extent.ranges) == 2


def test_a_task_of_many_bytes_is_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = trial(make_record(1))
    monkeypatch.setattr(segment_scan, "MAX_BYTES", 2 * len(line) + 2)
    path = tmp_path / "segment.jsonl"
    path.write_text("\n".join([HEADER, *[line] * 5, ""]))
    assert [block.summary.trials for block in blocks_of(path) if block.summary] == [2, 2, 1]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "is empty"),
        (["[]"], "line 1: no header"),
        ([HEADER, '{"trial":{}}'], "line 2: a record needs the field"),
        ([HEADER, trial(make_record(1)), '{"trial":' + "[" * 50_000], "line 3: not JSON"),
        ([HEADER, trial(make_record(1)), trial(make_record(2))[:-30]], "line 3: not JSON"),
    ],
)
def test_what_is_no_segment_is_named_by_its_line(tmp_path: Path, lines: list[str], said: str) -> None:
    path = tmp_path / "segment.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(DatabaseError, match=said):
        blocks_of(path)
