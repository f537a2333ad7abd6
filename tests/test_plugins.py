"""Plugins are found by their entry points; one that cannot be imported is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import ExtensionError, WorkloadError
from autotune.ops.registry import lookup
from autotune.plugins import GROUP, load_plugins, plugin_modules


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_plugins: None) -> Path:
    """A folder of installed packages with one plugin, whose module is still to be written."""
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nmine = my_plugin_module\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_an_unknown_operator_is_looked_for_in_plugins(install: Path) -> None:
    (install / "my_plugin_module.py").write_text(
        "from autotune.ops.registry import operator\n"
        "from autotune.tensor import compute\n"
        "operator('twice_of_mine')(lambda x, attrs: compute(x[0].shape, lambda *i: x[0][i] * 2, name='twice'))\n"
    )
    assert lookup("twice_of_mine").name == "twice_of_mine"
    assert "mine" in load_plugins()
    with pytest.raises(WorkloadError, match="unknown operator 'thrice_of_mine'"):
        lookup("thrice_of_mine")


@pytest.mark.parametrize("text", ["import no_such_module_anywhere", "raise SystemExit('not today')"])
def test_a_broken_plugin_is_named_with_its_package(install: Path, text: str) -> None:
    (install / "my_plugin_module.py").write_text(text)
    with pytest.raises(ExtensionError, match=r"plugin mine cannot be imported: .*; repair it, or pip uninstall mine"):
        lookup("no_operator_of_anybody")


def test_a_folder_that_comes_later_is_looked_through(request: pytest.FixtureRequest) -> None:
    assert "my_plugin_module" not in plugin_modules()
    request.getfixturevalue("install")
    assert "my_plugin_module" in plugin_modules()
