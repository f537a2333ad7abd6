"""The learned model through its commands: trained from records, evaluated, explained, set back; bad files warn."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from autotune.api.model import evaluate_model, model_in_use, reset_model, train_model
from autotune.cli.commands import COMMANDS
from autotune.cli.main import make_app
from autotune.cost_model import prior as prior_module
from autotune.cost_model.prior_files import SHIPPED, own_path
from autotune.errors import CostModelError
from autotune.ops import parse_workload
from autotune.records import Database, TuningRecord
from autotune.search.learning import lessons
from autotune.search_spaces import lookup
from autotune.search_spaces.sketch.space import SketchSpace
from autotune.target import Target

TEXTS = ("einsum data=var:64,48 data=var:48,64 equation=ik,kj->ij", "matmul a=var:40,64 b=const:64,96",
         "einsum data=var:4,24,32 data=var:4,24,32 equation=bnd,bmd->bnm")  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def database(home: Path) -> Path:
    """Trials as a search would leave them, whose times follow from the nests."""
    target, path = Target.parse("x86 -mcpu=haswell -num-cores=1"), home / "tuning.sqlite"
    with Database.open(path) as opened:
        for text in TEXTS:
            workload, rng = parse_workload(text), random.Random(text)
            space = lookup("sketch.contraction").space(workload, target)
            assert isinstance(space, SketchSpace)
            for n, config in enumerate({space.sample(rng) for _ in range(60)}):
                row = dict(zip(space.feature_names, space.encode(config).tolist()))
                named = config.replace(template="sketch.contraction")
                opened.add(
                    TuningRecord(
                        workload_key=workload.key, workload=workload.to_json(), description=workload.describe(),
                        target_key=target.key, target=target.to_json(), config_key=named.key, config=named.to_json(),
                        template="sketch.contraction", seconds=1e-5 * (1 + row["cycles"] + row["registers"]),
                        verified=True, created=float(n),
                    )
                )  # fmt: skip
    return path


def test_records_become_lessons(database: Path) -> None:
    with Database.open(database, read_only=True) as opened:
        found = lessons(opened)
    assert len(found) == len(TEXTS) and {lesson.operator for lesson in found} == {"einsum", "matmul"}
    assert all(len(lesson.features) == len(lesson.seconds) > 30 for lesson in found)


def test_an_own_model_is_used_until_it_is_reset(database: Path) -> None:
    shipped = model_in_use()
    assert shipped is not None and shipped[1] == SHIPPED
    trained = train_model([database])
    assert trained.path == own_path() and trained.tasks == len(TEXTS)
    used = model_in_use()
    assert used is not None and used[1] == own_path() and used[0].key != shipped[0].key
    assert reset_model() == own_path() and reset_model() is None
    again = model_in_use()
    assert again is not None and again[0].key == shipped[0].key


def test_evaluation_tells_of_every_task(database: Path) -> None:
    found = evaluate_model([database], "task")
    assert len(found.before) == len(found.left_out) == len(TEXTS)
    with pytest.raises(CostModelError, match="nothing to evaluate"):
        evaluate_model([False])


@pytest.mark.parametrize("content", [b"", b"nonsense\n", b"autotune forest 00\nx"])
def test_a_damaged_own_model_warns_once_and_the_shipped_one_is_used(
    home: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = own_path()
    assert path is not None
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    prior_module._warn.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            used = model_in_use()
    assert used is not None and used[1] == SHIPPED
    (record,) = [r for r in caplog.records if "is not used" in r.message]
    assert "\n" not in record.message and "autotune model train" in record.message


def test_a_model_of_other_features_is_passed_over(database: Path, caplog: pytest.LogCaptureFixture) -> None:
    from dataclasses import replace

    used = model_in_use()
    path = own_path()
    assert used is not None and path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(replace(used[0], version=99).to_bytes())
    with caplog.at_level(logging.WARNING):
        again = model_in_use()
    assert again is not None and again[1] == SHIPPED and "other features" in caplog.text


def test_commands(database: Path) -> None:
    def run(*args: object) -> Result:
        return CliRunner().invoke(make_app(COMMANDS), ["model", *map(str, args)])

    assert "candidates of 3 tasks" in run("train", "--db", database, "-o", database.parent / "mine").output
    evaluated = run("evaluate", "--db", database, "--leave-out", "operator", "--json")
    assert len(json.loads(evaluated.output)["left_out"]) == len(TEXTS)
    refused = run("evaluate", "--db", database, "--leave-out", "colour")
    assert refused.exit_code != 0 and "choose task, operator, target or machine" in refused.output
    assert "looks at" in run("explain").output
    assert run("reset").exit_code == 0
    assert run("train", "--db", database.parent / "none.sqlite").exit_code != 0
