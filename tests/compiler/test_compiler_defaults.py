"""What kernels get without a record is found once, and the same wherever it is found."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from autotune import machine
from autotune.codegen.beside import FEW, Beside
from autotune.codegen.helper import Helper
from autotune.codegen.object_cache import ObjectCache
from autotune.compiler import defaults
from autotune.compiler.defaults import Defaults, Found
from autotune.compiler.tasks import kernel_tasks
from autotune.cost_model.prior_files import SHIPPED, own_path
from autotune.errors import WorkloadError
from autotune.measure.types import MeasureResult
from autotune.ops import parse_workload
from autotune.ops.workload import Workload
from autotune.records import Database
from autotune.search.recording import Recorder
from autotune.search.task import TuningTask
from autotune.search_spaces import default_config, lookup, task_space
from autotune.search_spaces.space import code_version, registry
from autotune.search_spaces.space.registry import ranked_with_default
from autotune.target import Target
from tests.compiler.test_compiler_results import top_graph

TARGET = Target.parse("x86 -mcpu=haswell -num-cores=1")
LAYER = parse_workload("matmul a=128,512 b=const:512,512")
WORKLOADS = [parse_workload(f"matmul a={rows},64 b={64},32") for rows in range(8, 8 + FEW + 2)]


def test_untuned_choices_are_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    cache, target = ObjectCache(tmp_path / "objects"), Target.parse("x86 -mcpu=haswell -num-cores=1")
    workload, asked = parse_workload("einsum data=var:24,16 data=var:16,32 equation=ik,kj->ij"), []

    def counted(workload: Workload, target: Target, *, strict_fp: bool = False, shared: bool = False) -> Found:
        asked.append(strict_fp)
        return ranked_with_default(workload, target, strict_fp=strict_fp)

    monkeypatch.setattr(defaults, "ranked_with_default", counted)
    first = Defaults(cache, target)(workload, False)
    assert Defaults(cache, target)(workload, False) == first and asked == [False]
    Defaults(cache, target)(workload, True)
    assert asked == [False, True]
    own = own_path()
    assert own is not None
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_bytes(SHIPPED.read_bytes() + b"x")  # another model, another key, even if it is damaged
    Defaults(cache, target)(workload, False)
    assert asked == [False, True, False]


@pytest.mark.parametrize("shared", [False, True])
def test_a_helper_finds_what_is_found_here(shared: bool) -> None:
    found = Defaults(None, TARGET, shared=shared)
    helper = Helper()
    try:
        assert found._find((LAYER, False), helper) == ranked_with_default(LAYER, TARGET, shared=shared)
    finally:
        helper.close()


def test_programs_of_several_shapes_read_weights_that_all_of_them_can_read(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    for _ in range(2):  # found, and remembered
        alone, shared = (Defaults(cache, TARGET, shared=shared)(LAYER, False) for shared in (False, True))
        assert lookup(alone.template or "").lone and not lookup(shared.template or "").lone
    with Database.open(tmp_path / "db.sqlite") as database:
        result = MeasureResult(1.0, 0.0, 8, 10, 100.0, 0.0, 0.0, 1e-5)
        Recorder(database, 1.0).add(TuningTask.of(LAYER, TARGET, untuned=alone), alone, None, result, 1.0)
        assert Defaults(None, TARGET, database=database)(LAYER, False) == alone
        assert Defaults(None, TARGET, database=database, shared=True)(LAYER, False) == shared


@pytest.mark.parametrize("cores", [1, 3])
def test_those_begun_ahead_are_the_same(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "allowed_cores", lambda: cores)
    with Beside() as beside:
        found = Defaults(None, TARGET, beside)
        found.ahead((workload, False) for workload in WORKLOADS)
        configs = [found(workload, False) for workload in WORKLOADS]
    assert configs == [default_config(workload, TARGET) for workload in WORKLOADS]


def test_what_users_have_registered_is_chosen_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "extended", lambda: True)
    with Beside() as beside:
        found = Defaults(None, TARGET, beside)
        found.ahead((workload, False) for workload in WORKLOADS)
        assert not found._begun and found(WORKLOADS[0], False) == default_config(WORKLOADS[0], TARGET)


def test_a_refusal_is_raised_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(workload: Workload, target: Target, *, strict_fp: bool = False, shared: bool = False) -> NoReturn:
        raise WorkloadError("no template")

    monkeypatch.setattr(defaults, "ranked_with_default", refuse)
    monkeypatch.setattr(machine, "allowed_cores", lambda: 1)
    with Beside() as beside:
        found = Defaults(None, TARGET, beside)
        found.ahead([(WORKLOADS[0], False)])
        with pytest.raises(WorkloadError, match="no template"):
            found(WORKLOADS[0], False)


def test_the_space_of_a_task_is_ranked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    cache, workload = ObjectCache(tmp_path / "objects"), parse_workload("conv2d data=1,16,8,8 weight=16,16,3,3 pad=1")
    wanted = task_space(workload, TARGET)
    first = Defaults(cache, TARGET).space(workload, False)

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("it is known")

    monkeypatch.setattr(defaults, "ranked_with_default", refuse)
    monkeypatch.setattr(registry, "templates_for", refuse)
    again = Defaults(cache, TARGET).space(workload, False)
    for found in (first, again):
        assert list(found.members) == list(wanted.members) and found.defaults() == wanted.defaults()
    with pytest.raises(AssertionError, match="it is known"):
        Defaults(cache, TARGET).space(workload, True)  # others are allowed


def test_the_tasks_of_a_model_are_listed_from_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    cache, graph = ObjectCache(tmp_path / "objects"), top_graph(2, 3)
    found = kernel_tasks(graph, TARGET, cache=cache)

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("it is known")

    monkeypatch.setattr(defaults, "ranked_with_default", refuse)
    assert kernel_tasks(graph, TARGET, cache=cache) == found


def test_records_tell_the_default_of_those_who_made_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workload, asked = WORKLOADS[0], []
    usual = default_config(workload, TARGET)
    task = TuningTask.of(workload, TARGET, untuned=usual)
    other = next(config for config in task.space.enumerate() if config != usual)

    def counted(workload: Workload, target: Target, *, strict_fp: bool = False, shared: bool = False) -> Found:
        asked.append(strict_fp)
        return ranked_with_default(workload, target, strict_fp=strict_fp)

    monkeypatch.setattr(defaults, "ranked_with_default", counted)
    with Database.open(tmp_path / "db.sqlite") as database:
        recorder = Recorder(database, 1.0)
        found = partial(Defaults, None, TARGET, database=database)
        for config, seconds in ((other, 1.0), (usual, 2.0)):
            assert found()(workload, False) == usual
            recorder.add(task, config, None, MeasureResult(seconds, 0.0, 8, 10, 100.0, 0.0, 0.0, 1e-5), 1.0)
        assert asked == [False, False]  # the record of another config says nothing
        assert found()(workload, False) == usual and len(asked) == 2
        assert found()(workload, True) == default_config(workload, TARGET, strict_fp=True) and asked[2:] == [True]
        monkeypatch.setattr(code_version, "prior_key", lambda: "other models")
        assert found()(workload, False) == usual and asked[3:] == [False]


def test_a_task_whose_default_nobody_told_records_none(tmp_path: Path) -> None:
    task = TuningTask.of(WORKLOADS[0], TARGET)
    with Database.open(tmp_path / "db.sqlite") as database:
        result = MeasureResult(1.0, 0.0, 8, 10, 100.0, 0.0, 0.0, 1e-5)
        Recorder(database, 1.0).add(task, task.space.default(), None, result, 1.0)
        assert [record.untuned_by for record in database.trials()] == [""]
