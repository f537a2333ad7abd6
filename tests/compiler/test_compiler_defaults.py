"""What kernels get without a record is found once, and the same wherever it is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune import machine
from autotune.codegen.beside import FEW, Beside
from autotune.codegen.helper import Helper
from autotune.codegen.object_cache import ObjectCache
from autotune.compiler import defaults
from autotune.compiler.defaults import Defaults
from autotune.cost_model.prior import SHIPPED, own_path
from autotune.errors import WorkloadError
from autotune.ops import parse_workload
from autotune.ops.workload import Workload
from autotune.search_spaces import Config, default_config
from autotune.target import Target

TARGET = Target.parse("x86 -mcpu=haswell -num-cores=1")
WORKLOADS = [parse_workload(f"matmul a={rows},64 b={64},32") for rows in range(8, 8 + FEW + 2)]


def test_untuned_choices_are_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    cache, target = ObjectCache(tmp_path / "objects"), Target.parse("x86 -mcpu=haswell -num-cores=1")
    workload, asked = parse_workload("einsum data=var:24,16 data=var:16,32 equation=ik,kj->ij"), []

    def counted(workload: Workload, target: Target, *, strict_fp: bool = False) -> Config:
        asked.append(strict_fp)
        return default_config(workload, target, strict_fp=strict_fp)

    monkeypatch.setattr(defaults, "default_config", counted)
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


def test_a_helper_finds_what_is_found_here() -> None:
    found = Defaults(None, TARGET)
    helper = Helper()
    try:
        assert found._find((WORKLOADS[0], False), helper) == default_config(WORKLOADS[0], TARGET)
    finally:
        helper.close()


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
    def refuse(workload: Workload, target: Target, *, strict_fp: bool = False) -> Config:
        raise WorkloadError("no template")

    monkeypatch.setattr(defaults, "default_config", refuse)
    monkeypatch.setattr(machine, "allowed_cores", lambda: 1)
    with Beside() as beside:
        found = Defaults(None, TARGET, beside)
        found.ahead([(WORKLOADS[0], False)])
        with pytest.raises(WorkloadError, match="no template"):
            found(WORKLOADS[0], False)
