"""What is installed, told from the names of folders, is what `importlib.metadata` finds."""

from __future__ import annotations

import sys
import zipfile
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from autotune import packages


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first one with packages."""
    monkeypatch.setattr(sys, "path", [str(tmp_path / "missing"), str(tmp_path), *sys.path])
    packages._folders.cache_clear()
    return tmp_path


def installed(folder: Path, name: str, version: str) -> Path:
    found = folder / name
    found.mkdir(parents=True)
    (found / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.partition('-')[0]}\nVersion: {version}\n")
    return found


@pytest.mark.parametrize("name", ["llvmlite", "ml_dtypes", "ml-dtypes", "ML.Dtypes", "numpy", "onnx", "sqlite-utils"])
def test_versions_are_those_of_the_packages(name: str) -> None:
    assert packages.version(name) == metadata.version(name)


def test_what_is_not_installed_has_none(folder: Path) -> None:
    installed(folder, "mine_extras-1.0.dist-info", "1.0")
    assert packages.version("mine") is None


def test_the_first_folder_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(folder, "mine-2.0.dist-info", "2.0")
    installed(folder / "before", "mine-1.0.dist-info", "1.0")
    assert packages.version("mine") == "2.0"
    monkeypatch.setattr(sys, "path", [str(folder / "before"), *sys.path])
    assert packages.version("mine") == metadata.version("mine") == "1.0"


def test_older_folders_are_opened(folder: Path) -> None:
    (installed(folder, "mine.egg-info", "3.0") / "METADATA").rename(folder / "mine.egg-info" / "PKG-INFO")
    assert packages.version("mine") == metadata.version("mine") == "3.0"


def test_packages_in_a_zip_file_are_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(folder / "all.zip", "w") as file:
        file.writestr("mine-4.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: mine\nVersion: 4.0\n")
    monkeypatch.setattr(sys, "path", [str(folder / "all.zip"), *sys.path])
    assert packages.version("mine") == metadata.version("mine") == "4.0"
    assert packages.version("nobody-s") is None
    assert packages.may_have_entry_points("any")


def test_entry_points_are_surely_not_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no other finder is about: importlib_metadata, which some packages import, brings one."""
    finders = [one for one in sys.meta_path if one is PathFinder or not hasattr(one, "find_distributions")]
    monkeypatch.setattr(sys, "meta_path", finders)
    points = installed(folder, "mine-1.0.dist-info", "1.0") / "entry_points.txt"
    assert not packages.may_have_entry_points("some.group")
    points.write_text("[some.group]\nname = module\n")
    assert packages.may_have_entry_points("some.group")
    assert not packages.may_have_entry_points("another")
