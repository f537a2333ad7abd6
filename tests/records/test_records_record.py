"""TuningRecord: what it refuses, what it normalises, and JSON both ways."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from autotune.errors import DatabaseError
from autotune.records import TuningRecord
from tests.records.records_samples import make_failure, make_record, records


@given(records())
def test_json_round_trip(record: TuningRecord) -> None:
    line = record.to_json()
    assert "\n" not in line
    assert TuningRecord.from_json(line) == record
    assert TuningRecord.from_json(line).to_json() == line


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"workload_key": ""}, "workload_key must be 1 to 128"),
        ({"workload_key": "two words"}, "workload_key"),
        ({"workload": "{"}, "workload must be JSON text"),
        ({"workload": "[1]"}, "workload must be a JSON object"),
        ({"config": "[" * 100_000}, "nested too deeply"),
        ({"seconds": 0.0}, "seconds must be greater than 0"),
        ({"seconds": math.inf}, "seconds must be finite"),
        ({"seconds": math.nan}, "seconds must be finite"),
        ({"seconds": "fast"}, "seconds must be a number"),
        ({"seconds": True}, "seconds must be a number"),
        ({"seconds": None}, "either seconds or a failure_kind"),
        ({"failure_kind": "timeout"}, "either seconds or a failure_kind"),
        ({"seconds": None, "failure_kind": "timeout"}, r"a failed trial \(timeout\) cannot be verified"),
        ({"seconds": None, "failure_kind": "Time out", "verified": False}, "one lower-case word"),
        ({"failure_message": "but it worked"}, "needs a failure_kind"),
        ({"verified": 1}, "verified must be True or False"),
        ({"number": 0}, "number must be a positive integer"),
        ({"number": 2**63}, "number must be a positive integer"),
        ({"tolerance": -1e-9}, "tolerance must not be negative"),
        ({"max_abs_err": -math.inf}, "max_abs_err"),
        ({"created": math.inf}, "created must be finite"),
        ({"description": "\ud800"}, "cannot be stored as UTF-8"),
    ],
)
def test_refuses_impossible_values(changes: dict[str, Any], said: str) -> None:
    keys = {"workload_key": "w", "config_key": "c"}
    with pytest.raises(DatabaseError, match=said) as raised:
        make_record(**{**keys, **changes})
    assert "\n" not in str(raised.value)


def test_json_texts_become_canonical() -> None:
    record = make_record(config='{ "b": 1,\n "a": [1, 2] }')
    assert record.config == '{"a":[1,2],"b":1}'
    assert record == make_record(config='{"a":[1,2],"b":1}', config_key=record.config_key)


def test_infinite_attributes_survive_in_strict_json() -> None:
    record = make_record(workload='{"max":Infinity, "min":-1e999}')
    assert record.workload == '{"max":Infinity,"min":-Infinity}'
    line = record.to_json()
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert TuningRecord.from_json(line) == record


def test_numpy_scalars_become_plain_numbers() -> None:
    record = make_record(seconds=np.float32(0.5), number=np.int64(3))
    assert (type(record.seconds), type(record.number)) == (float, int)


def test_an_output_of_nan_is_an_infinite_error() -> None:
    record = make_failure(kind="incorrect", max_abs_err=math.nan, max_rel_err=math.inf)
    assert record.max_abs_err == record.max_rel_err == math.inf
    assert TuningRecord.from_json(record.to_json()) == record


def test_a_wild_failure_message_is_cleaned_not_refused() -> None:
    wild = b"\xff segfault".decode(errors="surrogateescape") + "x" * 10_000
    message = make_record(seconds=None, verified=False, failure_kind="crash", failure_message=wild).failure_message
    assert message is not None
    assert message.startswith("? segfault")
    assert len(message) == 4096


@pytest.mark.parametrize(
    "line, said",
    [
        ("", "must be a JSON object"),
        ("[]", "got list"),
        ("{}", "needs the field 'workload_key'"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_from_json_refuses(line: str, said: str) -> None:
    with pytest.raises(DatabaseError, match=said):
        TuningRecord.from_json(line)


def test_from_json_refuses_unknown_fields() -> None:
    values = {**json.loads(make_record().to_json()), "colour": "red"}
    with pytest.raises(DatabaseError, match="no field 'colour'"):
        TuningRecord.from_json(json.dumps(values))
