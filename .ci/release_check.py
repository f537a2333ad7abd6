#!/usr/bin/env python3
"""Whether a release would work where users install it: `make release-check`, minutes for each Python.

Builds the sdist, and the wheel from it; then, in environments of their own, on every Python 3.10-3.13 that is found:
the newest dependencies, the oldest that pyproject.toml allows (on the oldest Python), and NumPy alone. In each a model
is compiled (or only run), and answers as NumPy does. Needs Python 3.11 and a package index; neither the tree nor its
environment is touched. --python NAME picks interpreters, --keep FOLDER keeps what was built.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.10", "3.11", "3.12", "3.13")

# Compiles a model, and gives what the other programs need to run it and compare.
WHOLE = """
import sys, numpy as np, autotune
from onnx import TensorProto, helper
rng = np.random.default_rng(0)
w, x = rng.standard_normal((8, 4, 3, 3), dtype=np.float32), rng.standard_normal((1, 4, 16, 16), dtype=np.float32)
info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", x.shape), ("y", (1, 8, 16, 16)))]
nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4), helper.make_node("Relu", ["c"], ["y"])]
weights = [helper.make_tensor("w", TensorProto.FLOAT, w.shape, w.tobytes(), raw=True)]
model = helper.make_model(helper.make_graph(nodes, "conv", info[:1], info[1:], weights),
                          opset_imports=[helper.make_opsetid("", 13)])
model.ir_version = 8
open("model.onnx", "wb").write(model.SerializeToString())
(y,) = autotune.InferenceSession("model.onnx", database=False).run(None, {"x": x})
windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
np.testing.assert_allclose(y, np.maximum(np.einsum("nchwij,kcij->nkhw", windows, w), 0), rtol=1e-4, atol=1e-4)
np.savez("case.npz", x=x, y=y)
"""
RUNTIME = """
import numpy as np, autotune
case = np.load("case.npz")
(y,) = autotune.InferenceSession("model.at").run(None, {"x": case["x"]})
np.testing.assert_array_equal(y, case["y"])
try:
    autotune.InferenceSession("model.onnx")
except autotune.AutotuneError as error:
    assert "is not installed: pip install autotune-compiler" in str(error), error
else:
    raise AssertionError("compiled a model without LLVM")
"""
COMMANDS = (
    ("--version",),
    ("check", "model.onnx"),
    ("tune", "model.onnx", "--budget", "3s", "--db", "t.sqlite"),
    ("compile", "model.onnx", "--db", "t.sqlite", "-o", "tuned.at"),
    ("compile", "model.onnx", "--untuned", "-o", "model.at"),
    ("run", "tuned.at", "--random", "0"),
)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--python", action="append", metavar="NAME", help="an interpreter [default: those found]")
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="where sdist and wheel are kept")
    given = options.parse_args()
    pythons = given.python or found_pythons()
    if not pythons:
        options.error(f"no Python {', '.join(VERSIONS)} was found; name one with --python")
    with tempfile.TemporaryDirectory(prefix="autotune-release-") as temporary:
        folder = Path(temporary)
        sdist, wheel = built(folder)
        if given.keep is not None:
            given.keep.mkdir(parents=True, exist_ok=True)
            for made in (sdist, wheel):
                shutil.copy(made, given.keep)
        for number, python in enumerate(pythons):
            check(f"{python}, newest", python, wheel, folder, [])
            if number == 0:
                check(f"{python}, oldest", python, wheel, folder, ["--constraint", oldest(folder)])
            runtime_only(f"{python}, NumPy alone", python, wheel, folder)
    print("the release works")
    return 0


def found_pythons() -> list[str]:
    """One interpreter of each version: on the path, or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = []
    for version in VERSIONS:
        of_pyenv = sorted(pyenv.glob(f"{version}.*/bin/python"))
        places = [*map(str, of_pyenv), shutil.which(f"python{version}")]
        found += [next(place for place in places if place)] if any(places) else []
    return found


def built(folder: Path) -> tuple[Path, Path]:
    """The sdist of what is committed or changed here, and the wheel that it gives; both have what PyPI asks for."""
    files = call(["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], ROOT).split("\0")
    source = folder / "source"
    for name in filter(None, files):
        if (ROOT / name).is_symlink() or (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name, follow_symlinks=False)
    python = environment(folder / "build", sys.executable, "build", "twine")
    call([python, "-m", "build", "--outdir", folder / "dist", source], folder)
    (sdist,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    call([python, "-m", "twine", "check", "--strict", sdist, wheel], folder)
    print(f"built {sdist.name} ({sdist.stat().st_size >> 10} KiB) and {wheel.name} ({wheel.stat().st_size >> 10} KiB)")
    return sdist, wheel


def oldest(folder: Path) -> Path:
    """A file of constraints: every direct dependency in the lowest version that pyproject.toml allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = re.findall(r"^([\w-]+)>=([\d.]+)", "\n".join(project["dependencies"]), re.MULTILINE)
    lines = [f"{name}=={lowest}" for name, lowest in bounds]
    path = folder / "oldest.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def check(title: str, python: str, wheel: Path, folder: Path, options: list[str | Path]) -> None:
    """Install everything; compile, tune and run a model."""
    start, place = time.monotonic(), folder / "case"
    place.mkdir(exist_ok=True)
    installed = environment(folder / "venv", python, *options, wheel)
    call([installed, "-m", "pip", "check"], place)
    call([installed, "-c", WHOLE], place)
    for words in COMMANDS:
        call([installed.with_name("autotune"), *words], place)
    print(f"{title}: works ({time.monotonic() - start:.0f} s)", flush=True)


def runtime_only(title: str, python: str, wheel: Path, folder: Path) -> None:
    """Install NumPy and the wheel alone; run what `check` has compiled."""
    start = time.monotonic()
    installed = environment(folder / "venv", python, "numpy")
    call([installed, "-m", "pip", "install", "--quiet", "--no-deps", wheel], folder)
    call([installed, "-c", RUNTIME], folder / "case")
    print(f"{title}: works ({time.monotonic() - start:.0f} s)", flush=True)


def environment(folder: Path, python: str, *packages: str | Path) -> Path:
    """A fresh environment; its interpreter."""
    shutil.rmtree(folder, ignore_errors=True)
    call([python, "-m", "venv", folder], ROOT)
    call([folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], folder)
    return folder / "bin/python"


def call(command: list[str | Path], cwd: Path) -> str:
    """Run a command in a plain environment; its output, or an end that shows what it said."""
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    env |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    env |= {"XDG_CACHE_HOME": str(cwd / ".cache")} if cwd.name == "case" else {}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))[:200]}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
