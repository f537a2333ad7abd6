"""The package as users get it: in the root, installed in place, as a wheel, and as a wheel from the sdist."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGED = ["pyproject.toml", "README.md", "LICENSE", "autotune", "records", "cost_model", "search_spaces"]
IMPORTS = (
    "import autotune.records, autotune.cost_model, autotune.search_spaces, autotune.cli.main as m; print(m.__file__)"
)


def run(*command: str | Path, cwd: Path, path: Path | None = None) -> str:
    """Run a command in `cwd`, with `path` as PYTHONPATH; its output, or a failure that shows it."""
    env = {"PATH": "/usr/bin:/bin"} | ({"PYTHONPATH": str(path)} if path else {})
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def build(kind: str, source: Path, out: Path) -> Path:
    """Build a wheel or an sdist of `source` with the setuptools of this environment: no index needed."""
    out.mkdir(exist_ok=True)
    script = f"from setuptools import build_meta as b; b.build_{kind}({str(out)!r})"
    run(sys.executable, "-c", script, cwd=source)
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is packaged, links kept as links: building writes folders beside pyproject.toml."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in PACKAGED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", checkout, tmp_path_factory.mktemp("wheel"))


def test_imports_in_the_root() -> None:
    assert run(sys.executable, "-c", IMPORTS, cwd=ROOT) == str(ROOT / "autotune/cli/main.py")


def test_benchmarks_run_as_modules_in_the_root() -> None:
    assert run(sys.executable, "-c", "import benchmarks; print(benchmarks.__file__)", cwd=ROOT).startswith(str(ROOT))


def test_a_wheel_holds_one_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert top == {"autotune"}, "a top-level `records` would shadow the library of that name"
    for path in (ROOT / "autotune").rglob("*.py"):
        assert str(path.relative_to(ROOT)) in names
    assert {"autotune/records/__init__.py", "autotune/cost_model/__init__.py", "autotune/py.typed"} <= set(names)


def test_a_wheel_from_the_sdist_is_the_same(checkout: Path, wheel: Path, tmp_path: Path) -> None:
    sdist = build("sdist", checkout, tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    again = build("wheel", source, tmp_path / "wheel")
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_an_installed_wheel_works_elsewhere(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel, cwd=tmp_path)
    assert run(sys.executable, "-c", IMPORTS, cwd=tmp_path, path=site) == str(site / "autotune/cli/main.py")
    assert run(sys.executable, site / "bin/autotune", "--version", cwd=tmp_path, path=site).startswith("autotune 0.")


def test_an_editable_install_works_elsewhere(checkout: Path, tmp_path: Path) -> None:
    """`pip install -e .` finds the four folders, and puts no bare `records` on the path."""
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=tmp_path)
    site = next(venv.glob("lib/python*/site-packages"))
    outer = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "outer.pth").write_text(outer + "\n")  # the dependencies, pip and setuptools among them
    python = venv / "bin/python"
    options = ["--quiet", "--no-deps", "--no-build-isolation"]
    run(python, "-m", "pip", "install", *options, "--editable", checkout, cwd=tmp_path)
    assert run(python, "-c", IMPORTS, cwd=tmp_path) == str(checkout / "autotune/cli/main.py")
    found = "import importlib.util as u; print(u.find_spec('records'), u.find_spec('cost_model'))"
    assert run(python, "-c", found, cwd=tmp_path) == "None None"
