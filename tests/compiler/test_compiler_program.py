"""Compiled graphs give the values of the reference executor, whatever was in memory before."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from autotune.compiler.compile import CompiledModel, compile_graph
from autotune.errors import CompiledModelError, InputError
from autotune.graph import Graph, Node, Output, Value, evaluate_graph, optimize
from autotune.runtime import native
from autotune.runtime.artifact import load_artifact
from autotune.runtime.executor import MAX_CONTEXTS, Executor
from autotune.target import Target
from autotune.tensor import DType

Array = npt.NDArray[Any]


def conv(name: str, source: str, weight: str, shape: tuple[int, ...], pad: int, stride: int = 1) -> Node:
    attrs = (("dilation", (1, 1)), ("groups", 1), ("pad", (pad,) * 4), ("stride", (stride, stride)))
    return Node("conv2d", (source, weight), Value(name, "f32", shape), attrs)


def fire_graph() -> Graph:
    """Like SqueezeNet's fire module: two convolutions concatenated in place, a residual add, a ragged size."""
    rng = np.random.default_rng(5)

    def weights(*shape: int) -> Array:
        scaled: Array = (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        return scaled

    constants = {
        "w0": weights(32, 3, 3, 3), "w1": weights(16, 32, 1, 1), "w2": weights(32, 32, 3, 3),
        "w3": weights(48, 48, 3, 3), "b": weights(1, 48, 1, 1),
    }  # fmt: skip
    nodes = (
        conv("a", "x", "w0", (1, 32, 13, 11), 1),
        Node("relu", ("a",), Value("r", "f32", (1, 32, 13, 11))),
        conv("left", "r", "w1", (1, 16, 13, 11), 0),
        conv("right", "r", "w2", (1, 32, 13, 11), 1),
        Node("concat", ("left", "right"), Value("cat", "f32", (1, 48, 13, 11)), (("axis", 1),)),
        conv("c", "cat", "w3", (1, 48, 13, 11), 1),
        Node("add", ("c", "b"), Value("biased", "f32", (1, 48, 13, 11))),
        Node("add", ("biased", "cat"), Value("sum", "f32", (1, 48, 13, 11))),
        Node("relu", ("sum",), Value("y", "f32", (1, 48, 13, 11))),
    )
    return Graph("fire", (Value("x", "f32", (1, 3, 13, 11)),), nodes, (Output("y", "y"),), constants)


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    return compile_graph(optimize(fire_graph()), Target.parse("native -num-cores=2"))


def feeds(seed: int) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).standard_normal((1, 3, 13, 11)).astype(np.float32)}


def reference(seed: int) -> Array:
    return evaluate_graph(fire_graph(), feeds(seed), DType.f64)["y"]


def test_values(model: CompiledModel) -> None:
    (y,) = model.run(feeds(0))
    np.testing.assert_allclose(y, reference(0), atol=2e-4)


def test_dirty_arena_does_not_show(model: CompiledModel) -> None:
    executor = model.executor
    context = executor.context()
    context.arena[...] = 255  # NaN everywhere, halos too
    executor.release(context)
    (y,) = executor.run(feeds(1))
    np.testing.assert_allclose(y, reference(1), atol=2e-4)


def test_concat_needs_no_kernel(model: CompiledModel) -> None:
    assert not any("concat" in call.label for call in model.program.calls)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads(threads: int) -> None:
    compiled = compile_graph(optimize(fire_graph()), Target.parse(f"native -num-cores={threads}"))
    np.testing.assert_allclose(compiled.run(feeds(2))[0], reference(2), atol=2e-4)


def test_avx2() -> None:
    compiled = compile_graph(optimize(fire_graph()), Target.parse("x86 -mcpu=haswell -num-cores=1"))
    np.testing.assert_allclose(compiled.run(feeds(3))[0], reference(3), atol=2e-4)


def test_concurrent_runs_do_not_mix(model: CompiledModel) -> None:
    wanted = {seed: reference(seed) for seed in range(MAX_CONTEXTS + 4)}  # more callers than arenas: some wait
    wrong: list[int] = []

    def work(seed: int) -> None:
        for _ in range(20):
            (y,) = model.run(feeds(seed))
            if not np.allclose(y, wanted[seed], atol=2e-4):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in wanted]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_unaligned_and_strided_feeds(model: CompiledModel) -> None:
    x = feeds(4)["x"]
    room = np.empty(x.size + 1, np.float32)
    room[1:] = x.reshape(-1)
    for form in (room[1:].reshape(x.shape), np.asfortranarray(x)):
        np.testing.assert_allclose(model.run({"x": form})[0], reference(4), atol=2e-4)


def test_outputs_into_arrays_of_the_caller(model: CompiledModel) -> None:
    room = np.empty(48 * 13 * 11 + 1, np.float32)
    for y in (np.zeros((1, 48, 13, 11), np.float32), room[1:].reshape(1, 48, 13, 11)):
        (found,) = model.executor.run(feeds(7), {"y": y})
        assert found is y
        np.testing.assert_allclose(y, reference(7), atol=2e-4)
    (other,) = model.run(feeds(8))
    assert not np.shares_memory(other, room)
    np.testing.assert_allclose(room[1:].reshape(1, 48, 13, 11), reference(7), atol=2e-4)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("z", np.zeros((1, 48, 13, 11), np.float32)),
        ("y", np.zeros((1, 48, 13, 12), np.float32)),
        ("y", np.zeros((1, 48, 13, 11), np.float64)),
        ("y", np.zeros((1, 48, 13, 11), np.float32, order="F")),
        ("y", np.broadcast_to(np.float32(0), (1, 48, 13, 11))),
    ],
)
def test_arrays_that_cannot_take_an_output(model: CompiledModel, name: str, array: Array) -> None:
    with pytest.raises(InputError, match="output"):
        model.executor.run(feeds(0), {name: array})


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({}, "takes x: f32"),
        ({"z": np.zeros((1, 3, 13, 11), np.float32)}, "got z"),
        ({"x": np.zeros((1, 3, 13, 12), np.float32)}, "must be f32"),
        ({"x": np.zeros((1, 3, 13, 11), np.float64)}, "float64"),
    ],
)
def test_wrong_feeds(model: CompiledModel, bad: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        model.run(bad)


def test_a_compiled_file_compiles_nothing(
    model: CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fire.atm"
    model.save(path)
    expected = model.run(feeds(6))[0]

    def never() -> bytes:
        raise AssertionError("the runtime was compiled again")

    monkeypatch.setattr(native, "runtime_object", never)
    np.testing.assert_array_equal(Executor(*load_artifact(path)).run(feeds(6))[0], expected)


def test_file_round_trip(model: CompiledModel, tmp_path: Path) -> None:
    path = tmp_path / "fire.atm"
    model.save(path)
    program, objects, constants, runtime = load_artifact(path)
    assert program == model.program
    (y,) = Executor(program, objects, constants, runtime).run(feeds(6))
    np.testing.assert_array_equal(y, model.run(feeds(6))[0])


def test_any_damaged_byte_is_noticed(model: CompiledModel, tmp_path: Path) -> None:
    path = tmp_path / "fire.atm"
    model.save(path)
    data = bytearray(path.read_bytes())
    spots = np.random.default_rng(0).integers(0, len(data), 60)
    length = int.from_bytes(data[8:16], "little")
    # Padding between blobs is never read.
    for spot in [*range(0, 48, 5), *(int(s) for s in spots if s < 48 + length)]:
        changed = bytearray(data)
        changed[spot] ^= 0x41
        path.write_bytes(changed)
        with pytest.raises(CompiledModelError):
            load_artifact(path)
    for size in (0, 7, 60, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(CompiledModelError):
            load_artifact(path)


def test_unwritable_place(model: CompiledModel, tmp_path: Path) -> None:
    with pytest.raises(CompiledModelError, match="cannot write"):
        model.save(tmp_path / "missing" / "fire.atm")


def test_large_outputs_are_written_in_place_and_belong_to_the_caller() -> None:
    shape = (64, 1024)
    nodes = (
        Node("relu", ("x",), Value("r", "f32", shape)),
        Node("reshape", ("r",), Value("flat", "f32", (64 * 1024,)), (("shape", (64 * 1024,)),)),
        Node("neg", ("r",), Value("n", "f32", shape)),
    )
    outputs = (Output("flat", "flat"), Output("r", "r"), Output("n", "n"))
    compiled = compile_graph(Graph("g", (Value("x", "f32", shape),), nodes, outputs), Target.parse("native"))
    assert {ref.space for _, ref in compiled.program.outputs} == {"output"}
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    first = compiled.run({"x": x})
    kept = [a.copy() for a in first]
    second = compiled.run({"x": -x})
    for got, sign in ((first, 1), (second, -1)):
        wanted = np.maximum(sign * x, 0)
        np.testing.assert_array_equal(got[0], wanted.reshape(-1))
        np.testing.assert_array_equal(got[1], wanted)
        np.testing.assert_array_equal(got[2], -wanted)
    for now, before in zip(first, kept, strict=True):
        np.testing.assert_array_equal(now, before)


def test_parts_of_a_large_output_are_written_in_their_places() -> None:
    shape = (64, 1024)
    nodes = (
        Node("relu", ("x",), Value("r", "f32", shape)),
        Node("neg", ("x",), Value("n", "f32", shape)),
        Node("concat", ("r", "n"), Value("y", "f32", (128, 1024)), (("axis", 0),)),
    )
    compiled = compile_graph(Graph("g", (Value("x", "f32", shape),), nodes, (Output("y", "y"),)), Target.parse("native"))
    assert len(compiled.program.calls) == 2
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(compiled.run({"x": x})[0], np.concatenate([np.maximum(x, 0), -x]))


def test_a_reshaped_input_has_no_halo() -> None:
    """A padded convolution reads a view of the input: the zeros around it are not in the user's memory."""
    x = np.random.default_rng(0).standard_normal((1, 4, 1)).astype(np.float32)
    weight = np.random.default_rng(1).standard_normal((4, 4, 1, 3)).astype(np.float32)
    attrs = (("dilation", (1, 1)), ("groups", 1), ("pad", (0, 1, 0, 1)), ("stride", (1, 1)))
    nodes = (
        Node("reshape", ("x",), Value("r", "f32", (1, 4, 1, 1)), (("shape", (1, 4, 1, 1)),)),
        Node("conv2d", ("r", "w"), Value("y", "f32", (1, 4, 1, 1)), attrs),
    )
    graph = Graph("g", (Value("x", "f32", (1, 4, 1)),), nodes, (Output("y", "y"),), {"w": weight})
    (found,) = compile_graph(graph, Target.parse("native -num-cores=1")).run({"x": x})
    np.testing.assert_allclose(found[0, :, 0, 0], weight[:, :, 0, 1] @ x[0, :, 0], rtol=1e-5)
