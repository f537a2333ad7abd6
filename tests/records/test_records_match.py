"""Tiers: exact, compatible, foreign, miss, each with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import DatabaseError
from autotune.records import Database, Match, Tier, TuningRecord, fit_target
from tests.records.records_samples import (
    TARGET,
    key_of,
    make_failure,
    make_record,
    target_json,
)

WORKLOAD_KEY = make_record().workload_key


def best(tmp_path: Path, *records: TuningRecord, target: str = TARGET, **wanted: str) -> Match:
    with Database.open(tmp_path / "db.sqlite") as db:
        db.add_many(records)
        return db.best(WORKLOAD_KEY, key_of(target), target, **wanted)


def test_the_fastest_verified_record_of_this_target_is_exact(tmp_path: Path) -> None:
    unverified = make_record(5, seconds=1e-9, verified=False)
    match = best(tmp_path, make_record(2), make_record(1), unverified, make_failure(3))
    assert (match.tier, match.record) == (Tier.EXACT, make_record(1))


def test_ties_go_to_the_smaller_config_key(tmp_path: Path) -> None:
    tied = [make_record(i, seconds=1e-3, config_key=key) for i, key in enumerate("cab")]
    assert best(tmp_path, *tied).record == tied[1]


def test_exact_beats_a_faster_compatible(tmp_path: Path) -> None:
    faster = make_record(7, seconds=1e-6, target=target_json(cpu="znver4"))
    assert best(tmp_path, faster, make_record()).record == make_record()


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"num_threads": 4}, "measured with num_threads 4, here 1"),
        ({"cpu": "znver4"}, "measured with cpu znver4, here znver5"),
        ({"l2_bytes": 7}, "measured with l2_bytes 7, here 1048576"),
        ({"features": ["avx2"]}, "measured without avx512f"),
        ({"core": {"ghz": 3.0}}, "measured with other figures of the core"),
        ({"l2_bytes": 7, "cpu": "a", "num_threads": 9}, "measured with cpu a, here znver5; with num_threads 9"),
    ],
)
def test_other_conditions_are_compatible(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    match = best(tmp_path, make_record(target=target_json(**change)))
    assert match.tier is Tier.COMPATIBLE
    assert match.reason.startswith(reason)
    assert match.record is not None


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"arch": "aarch64"}, "made for aarch64, this target is x86_64"),
        ({"features": ["avx2", "amx"]}, "made for a CPU with amx, which this target lacks"),
        ({"features": list("abcdef")}, "a, b, c, d and 2 more features"),
    ],
)
def test_a_missing_feature_or_another_architecture_is_foreign(
    tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    match = best(tmp_path, make_record(target=target_json(**change)))
    assert match.tier is Tier.FOREIGN
    assert reason in match.reason
    assert match.record is not None


def test_records_from_before_targets_had_a_core_are_compatible(tmp_path: Path) -> None:
    match = best(tmp_path, make_record(target=target_json()), target=target_json(core={"ghz": 3.0}))
    assert (match.tier, match.record) == (Tier.COMPATIBLE, make_record(target=target_json()))
    assert match.reason == "measured before targets had the core's figures"


def test_compatible_beats_foreign_and_the_nearest_target_wins(tmp_path: Path) -> None:
    foreign = make_record(1, seconds=1e-9, target=target_json(features=["amx"]))
    other_cpu = make_record(2, seconds=1e-8, target=target_json(cpu="znver4"))
    other_threads = make_record(3, seconds=1e-3, target=target_json(num_threads=2))
    assert best(tmp_path, foreign, other_cpu, other_threads).record == other_threads


@pytest.mark.parametrize(
    "records, reason",
    [
        ([], "never tuned"),
        ([make_failure(1), make_failure(2)], "2 trials, none verified"),
        ([make_record(workload='{"op":"other"}')], "never tuned"),
    ],
)
def test_a_miss_says_why(tmp_path: Path, records: list[TuningRecord], reason: str) -> None:
    match = best(tmp_path, *records)
    assert (match.tier, match.reason, match.record) == (Tier.MISS, reason, None)


def test_the_interface_asked_for_is_the_one_given(tmp_path: Path) -> None:
    blocked = make_record(1, interface='["NCHW16c"]')
    plain = make_record(2, interface='["NCHW"]')
    assert best(tmp_path, blocked, plain).record == blocked
    assert best(tmp_path, interface='["NCHW"]').record == plain
    assert best(tmp_path, interface='[ "NCHW" ]').record == plain  # however it is written
    match = best(tmp_path, interface='["NHWC"]')
    assert (match.tier, match.reason) == (Tier.MISS, "tuned, but not for this interface")


def test_another_residency_is_compatible(tmp_path: Path) -> None:
    hot = make_record(1, residency="L2")
    assert best(tmp_path, hot, residency="L2").tier is Tier.EXACT
    assert best(tmp_path).tier is Tier.EXACT
    match = best(tmp_path, residency="DRAM")
    assert (match.tier, match.reason) == (Tier.COMPATIBLE, "measured with weights in L2, here DRAM")


@pytest.mark.parametrize("target", ["[]", "{}", '{"arch":"x86_64"}', '{"arch":"x86_64","features":"avx2"}', "nope"])
def test_a_target_that_is_none_is_refused(target: str) -> None:
    with pytest.raises(DatabaseError, match="a target"):
        fit_target(TARGET, target)
