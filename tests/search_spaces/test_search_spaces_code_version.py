"""The code version covers all of our sources between config and code, and speaks for nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.ops import parse_workload, registry
from autotune.search_spaces import Config
from autotune.search_spaces.space import code_version as module
from autotune.search_spaces.space.registry import default_config, lookup
from autotune.sources import files_of
from autotune.target import Target

RELU = parse_workload("relu data=64")


def test_it_covers_every_room() -> None:
    version = module.source_hash()
    assert version is not None and len(version) == 64
    root = Path(module.__file__).resolve().parent.parent.parent / "autotune"
    for room in module.ROOMS:
        assert any(path.suffix == ".py" for path in files_of(root, room)), room


@pytest.mark.parametrize("name", ["target.py", "core/pipes.json"])
def test_it_changes_with_what_is_known_about_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "ops").mkdir()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    monkeypatch.setattr(registry, "__file__", str(tmp_path / "ops" / "registry.py"))
    found = set()
    for text in ("1", "2"):
        (tmp_path / name).write_text(text)
        found.add(module.source_hash.__wrapped__())
    assert len(found) == 2


def test_it_changes_with_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ops").mkdir()
    monkeypatch.setattr(registry, "__file__", str(tmp_path / "ops" / "registry.py"))
    found = set()
    for text in ("x = 1", "x = 2"):
        (tmp_path / "ops" / "registry.py").write_text(text)
        found.add(module.source_hash.__wrapped__())
    assert len(found) == 2


def test_it_does_not_speak_for_what_the_user_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    config = default_config(RELU, Target.parse("native"))
    assert module.code_version(RELU, config) == module.source_hash()
    assert module.code_version(RELU, Config(())) is None
    assert module.code_version(RELU, Config((("template", "no.such"),))) is None
    monkeypatch.setattr(type(lookup(config.template or "").rules), "__module__", "my_templates")
    assert module.code_version(RELU, config) is None
