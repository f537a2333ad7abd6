"""The package as users get it: in the root, installed in place, as a wheel, and as a wheel from the sdist."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autotune

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


def test_compiled_files_run_with_numpy_alone(wheel: Path, tmp_path: Path) -> None:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Gemm", ["x", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["y"])],
            "tiny",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])],
            [helper.make_tensor("w", TensorProto.FLOAT, [16, 8], np.linspace(-1, 1, 128).tolist())],
        ),
        opset_imports=[helper.make_opsetid("", 13)],
    )
    autotune.compile(model, "native -num-cores=2", database=False).save(tmp_path / "tiny.at")
    onnx.save(model, tmp_path / "tiny.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    autotune.compile_shapes(model, {"n": (4,)}, "native -num-cores=2", False).save(tmp_path / "several.at")
    x = np.random.default_rng(0).standard_normal((4, 16), dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    python, site = tmp_path / "venv/bin/python", next(tmp_path.glob("venv/lib/python*/site-packages"))
    for part in Path(np.__file__).parent.parent.glob("numpy*"):
        (site / part.name).symlink_to(part)
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel, cwd=tmp_path)

    code = "import autotune, numpy as np; s = autotune.InferenceSession('tiny.at'); x = np.load('x.npy'); "
    run(python, "-c", code + "np.save('y.npy', s.run(None, {'x': x})[0])", cwd=tmp_path)
    (y,) = autotune.InferenceSession(tmp_path / "tiny.at").run(None, {"x": x})
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), y)
    devices = "s.get_input_epdevices() == autotune.get_ep_devices(), len(s.get_input_memory_infos())"
    assert run(python, "-c", f"{code}print({devices})", cwd=tmp_path) == "True 1"
    code = "import autotune, numpy as np; s = autotune.InferenceSession('several.at'); x = np.load('x.npy'); "
    run(python, "-c", code + "np.save('y.npy', s.run(None, {'x': np.concatenate([x, x[:2]])})[0])", cwd=tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.concatenate([y, y[:2]]))

    brings = "is not installed: pip install autotune-compiler brings it"
    for what, code in (
        ("compiling a model", "autotune.InferenceSession('tiny.onnx')"),
        ("autotune.compile", "autotune.compile"),
        ("the element type bf16", "from autotune.tensor import DType; DType.bf16.numpy"),
    ):
        done = subprocess.run([python, "-c", f"import autotune; {code}"], cwd=tmp_path, capture_output=True, text=True)
        (*_, last) = done.stderr.splitlines()
        assert last.startswith(f"autotune.errors.IncompleteInstallError: {what} needs the package "), done.stderr
        assert last.endswith(brings)
    done = subprocess.run([python, "-m", "autotune", "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, f"error: the command line needs the package typer, which {brings}\n")


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
