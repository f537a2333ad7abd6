"""Libraries linked by the system's compiler, called from C, C++ and, through ctypes, from here."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autotune
from autotune import machine
from autotune.aot import library as linking
from autotune.aot import save_library
from autotune.aot.cpu_check import CHECKER
from autotune.cpuid import BITS, EVERYWHERE
from autotune.cpus import CPUS
from autotune.errors import CodegenError, CompiledModelError, InputError
from autotune.target import Target
from tests.cli.cli_models import conv_model, invoke, save

EXAMPLES = Path(__file__).parents[2] / "examples" / "c"
TWO = "native -num-cores=2"
OLD = "x86 -mcpu=haswell -num-cores=2"

pytestmark = pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("c++") and shutil.which("objcopy")), reason="needs a C compiler"
)


def compiled(target: str = TWO, model: onnx.ModelProto | None = None) -> autotune.CompiledModel:
    return autotune.compile((model or conv_model(1)).SerializeToString(), target, False)


def image() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def called(path: Path, prefix: str, *arrays: np.ndarray) -> str:
    """One run through ctypes, the last array being the result; the variant that ran."""
    made = ctypes.CDLL(str(path))
    functions = {name: getattr(made, f"{prefix}_{name}") for name in ("create", "destroy", "run", "error", "variant")}
    functions["create"].restype = ctypes.c_void_p
    functions["error"].restype = functions["variant"].restype = ctypes.c_char_p
    model = ctypes.c_void_p(functions["create"]())
    assert model, functions["error"]()
    pointers = [ctypes.c_void_p(array.ctypes.data if array.size else 0) for array in arrays]
    code = functions["run"](model, *pointers)
    functions["destroy"](model)
    if code:
        raise RuntimeError(functions["error"]().decode())
    return bytes(functions["variant"]()).decode()


def test_a_c_program_gets_the_same_answer(tmp_path: Path) -> None:
    model = save(conv_model(1), tmp_path / "m.onnx")
    done = invoke(
        "compile", model, "-o", tmp_path / "model.so", "--header", tmp_path / "model.h", "--target", TWO, "--untuned"
    )
    assert done.exit_code == 0, done.stderr
    (y,) = compiled().run({"x": image()})
    image().tofile(tmp_path / "image.bin")
    shutil.copy(EXAMPLES / "classify.c", tmp_path)
    run(["cc", "-O2", "-Wall", "-Werror", "classify.c", "./model.so", "-o", "classify"], tmp_path)
    best, value = run(["./classify", "image.bin"], tmp_path).split()
    assert int(best) == int(y.argmax()) and np.float32(value) == y.max()
    assert "python" not in run(["ldd", "./model.so"], tmp_path).lower()


def test_cpp_takes_the_header_and_threads_have_models_of_their_own(tmp_path: Path) -> None:
    save_library(tmp_path / "model.so", [compiled()], "model", tmp_path / "model.h")
    shutil.copy(EXAMPLES / "threads.cpp", tmp_path)
    run(["c++", "-O2", "-std=c++17", "-Wall", "threads.cpp", "./model.so", "-lpthread", "-o", "threads"], tmp_path)
    assert "equal on both threads" in run(["./threads"], tmp_path)


def test_the_first_variant_that_can_run_is_used(tmp_path: Path) -> None:
    targets = [f"x86 -mcpu={cpu} -num-cores=2" for cpu in CPUS]
    newer = [text for text in targets if not Target.parse(text).runs_on_host()]
    asked_for = [text for text in newer if set(Target.parse(text).features) - EVERYWHERE <= set(BITS)]
    variants = [compiled(asked_for[0]), compiled(OLD)]
    save_library(tmp_path / "two.so", variants, "two")
    (expected,) = compiled(OLD).run({"x": image()})
    y = np.empty_like(expected)
    assert called(tmp_path / "two.so", "two", image(), y) == "haswell"
    np.testing.assert_array_equal(y, expected)
    save_library(tmp_path / "newer.so", variants[:1], "newer")
    made = ctypes.CDLL(str(tmp_path / "newer.so"))
    made.newer_create.restype, made.newer_error.restype = ctypes.c_void_p, ctypes.c_char_p
    assert made.newer_create() is None and made.newer_error().startswith(b"this CPU lacks ")


def test_weights_beside_the_library_are_mapped(tmp_path: Path) -> None:
    variants = [compiled(), compiled(OLD)]
    save_library(tmp_path / "w.so", variants, "w", weights=tmp_path / "w.bin")
    (expected,) = variants[0].run({"x": image()})
    y = np.empty_like(expected)
    called(tmp_path / "w.so", "w", image(), y)
    np.testing.assert_array_equal(y, expected)
    (tmp_path / "w.bin").write_bytes(b"short")
    with pytest.raises(AssertionError, match="w.bin"):
        called(tmp_path / "w.so", "w", image(), y)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(AssertionError, match="w.bin: No such file"):
        called(tmp_path / "w.so", "w", image(), y)
    with pytest.raises(InputError, match="must lie in the library's folder"):
        save_library(tmp_path / "w.so", variants, "w", weights=tmp_path / "sub" / "w.bin")


def views_and_checks() -> onnx.ModelProto:
    """An output that is the input, one that is a constant, and an index that must be in range."""
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["row"], axis=0),
        helper.make_node("Identity", ["i"], ["same"]),
        helper.make_node("Shape", ["table"], ["sizes"]),
    ]
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, [2])],
        [
            helper.make_tensor_value_info("same", TensorProto.INT64, [2]),
            helper.make_tensor_value_info("sizes", TensorProto.INT64, [2]),
            helper.make_tensor_value_info("row", TensorProto.FLOAT, [2, 3]),
        ],
        [onnx.numpy_helper.from_array(table, "table")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_outputs_of_every_kind_and_values_out_of_range(tmp_path: Path) -> None:
    save_library(tmp_path / "g.so", [compiled(model=views_and_checks())], "g")
    i, same, sizes, row = np.array([3, 1]), np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros((2, 3), np.float32)
    called(tmp_path / "g.so", "g", i, same, sizes, row)
    assert same.tolist() == [3, 1] and sizes.tolist() == [4, 3]
    assert row.tolist() == [[9, 10, 11], [3, 4, 5]]
    with pytest.raises(RuntimeError, match="outside of -4..3"):
        called(tmp_path / "g.so", "g", np.array([3, 4]), same, sizes, row)
    with pytest.raises(RuntimeError, match="input 0 is NULL"):
        called(tmp_path / "g.so", "g", np.empty(0), same, sizes, row)
    with pytest.raises(RuntimeError, match="output 1 is NULL"):
        called(tmp_path / "g.so", "g", i, same, np.empty(0), row)


def test_the_cpu_is_asked_as_llvm_asks_it(tmp_path: Path) -> None:
    """Every feature that we can ask for is found where LLVM finds it, and nowhere else."""
    asked = [
        f"  printf(\"{name} %d\\n\", !!(cpu_word({leaf:#x}u, {sub}u, '{register}') & (1u << {bit})));"
        for name, (leaf, sub, register, bit) in BITS.items()
    ]
    text = "#include <cpuid.h>\n#include <stdio.h>\n" + CHECKER + "int main(void) {\n" + "\n".join(asked) + "\n}\n"
    (tmp_path / "ask.c").write_text(text)
    run(["cc", "-Wno-unused-function", "ask.c", "-o", "ask"], tmp_path)
    answers = dict(line.split() for line in run(["./ask"], tmp_path).splitlines())
    known = set(machine.known_features())
    here = set(machine.cpu_features())
    differing = {name for name, found in answers.items() if name in known and (found == "1") != (name in here)}
    assert not {name for name in differing if name in here}, "features that LLVM sees and we do not"
    # LLVM also asks whether the system keeps their registers, as the library does apart from this.
    assert all(name.startswith(("avx", "amx", "f16c", "fma", "vaes", "vpcl", "xop")) for name in differing)


def test_wrong_uses_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = save(conv_model(1), tmp_path / "m.onnx")
    at = invoke("compile", model, "-o", tmp_path / "m.at", "--header", tmp_path / "m.h")
    assert at.exit_code == 1 and "are about libraries" in at.stderr
    prefix = invoke("compile", model, "-o", tmp_path / "m.so", "--prefix", "a b", "--untuned")
    assert prefix.exit_code == 1 and "'a b' is no prefix" in prefix.stderr
    with pytest.raises(CompiledModelError, match=r"cannot write .*none"):
        save_library(tmp_path / "m.so", [compiled()], "m", tmp_path / "none" / "m.h")
    monkeypatch.setattr(linking, "MOST_EMBEDDED", 1)
    with pytest.raises(InputError, match="too many for a library: put them beside it"):
        save_library(tmp_path / "m.so", [compiled()], "m")
    monkeypatch.undo()
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(InputError, match="no-such-compiler is not there: install gcc or clang"):
        save_library(tmp_path / "m.so", [compiled()], "m")
    monkeypatch.setenv("CC", "false")
    with pytest.raises(CodegenError, match="false failed"):
        save_library(tmp_path / "m.so", [compiled()], "m")
    assert not (tmp_path / "m.so").exists()
