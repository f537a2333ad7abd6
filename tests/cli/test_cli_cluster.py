"""The commands of a cluster, and that all others know nothing of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.cli_models import invoke

NOWHERE = "tcp://127.0.0.1:9"


def test_nobody_imports_dask_who_needs_no_cluster() -> None:
    code = (
        "import sys, autotune, autotune.cli.commands, autotune.api.tune, autotune.cli.tune; "
        "print([name for name in sys.modules if name.split('.')[0] in ('dask', 'distributed')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    for command in (
        ["cluster", "status"], ["worker"], ["tune", "--op", "relu data=8", "--db", str(tmp_path / "db.sqlite")]
    ):  # fmt: skip
        found = invoke(*command, "--cluster", NOWHERE)
        assert found.exit_code == 1
        assert found.stderr.startswith(f"error: no Dask scheduler answers at {NOWHERE} (")
        assert found.stderr.count("\n") == 1
    assert not (tmp_path / "db.sqlite").exists()


def test_without_an_address_the_call_is_wrong() -> None:
    for command in (["cluster", "status"], ["worker"]):
        found = invoke(*command)
        assert found.exit_code == 2
        assert "--cluster tcp://HOST:8786" in found.stderr


def test_the_status_lists_who_is_there_and_a_run_on_the_cluster_is_a_run(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    from autotune.fleet.identity import Identity
    from autotune.fleet.service import Service
    from autotune.records import Database
    from autotune.target import Target
    from tests.fleet.cluster import Scripted, cluster

    target = Target.parse("native -num-cores=1")
    service = Service(Identity.here(builders=1, targets=[target]))
    try:
        with cluster() as made:
            made.join(service, "all")
            older = Identity({"autotune": "0.0.1"}, "0" * 64, "box", "z80", 1, 2)
            made.join(Scripted(older, lambda frame, by: b""), "older")
            shown = invoke("cluster", "status", "--cluster", made.address).stdout
            assert f"builds 1, runs {target.key}" in shown
            assert "older cannot be used: autotune 0.0.1 where this has" in shown
            found = json.loads(invoke("cluster", "status", "--cluster", made.address, "--json").stdout)
            assert [(one["name"], one["usable"]) for one in found["workers"]] == [("all", True), ("older", False)]
            assert found["workers"][0]["targets"][0]["key"] == target.key
            path = tmp_path / "db.sqlite"
            tuned = invoke(
                "tune", "--op", "matmul a=8,8 b=8,8", "--trials", "3", "--strategy", "random", "--db", str(path),
                "--cluster", made.address, "--target", target.key, "--json",
            )  # fmt: skip
            assert tuned.exit_code == 0, tuned.stderr
            assert json.loads(tuned.stdout)["new_trials"] == 3
        with Database.open(path, read_only=True) as database:
            assert [summary.target_key for summary in database.workloads()] == [target.key]
    finally:
        service.close()
