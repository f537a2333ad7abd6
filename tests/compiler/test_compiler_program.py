"""Compiled graphs give the values of the reference executor, whatever was in memory before."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from autotune.codegen import runtime_ir
from autotune.compiler.compile import CompiledModel, compile_graph
from autotune.errors import CompiledModelError, InputError
from autotune.graph import Graph, Node, Output, Value, evaluate_graph, optimize
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

    monkeypatch.setattr(runtime_ir, "runtime_object", never)
    np.testing.assert_array_equal(Executor(*load_artifact(path).alone()).run(feeds(6))[0], expected)


def test_file_round_trip(model: CompiledModel, tmp_path: Path) -> None:
    path = tmp_path / "fire.atm"
    model.save(path)
    found = load_artifact(path)
    assert found.programs == [model.program] and found.selection is None
    (y,) = Executor(*found.alone()).run(feeds(6))
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
    graph = Graph("g", (Value("x", "f32", shape),), nodes, (Output("y", "y"),))
    compiled = compile_graph(graph, Target.parse("native"))
    assert len(compiled.program.calls) == 2
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(compiled.run({"x": x})[0], np.concatenate([np.maximum(x, 0), -x]))


def test_elementwise_kernels_work_in_place() -> None:
    """Gathering rows needs another buffer; what comes behind it takes over the memory."""
    shape = (48, 64)
    nodes = (
        Node("softmax", ("x",), Value("s", "f32", shape), (("axis", 1),)),
        Node("gather", ("s", "rows"), Value("t", "f32", shape), (("axis", 0),)),
        Node("exp", ("t",), Value("e", "f32", shape)),
        Node("add", ("e", "row"), Value("a", "f32", shape)),
        Node("gather", ("a", "rows"), Value("u", "f32", shape), (("axis", 0),)),
        Node("mul", ("u", "x"), Value("m", "f32", shape)),
        Node("add", ("m", "s"), Value("y", "f32", shape)),
    )
    constants: dict[str, Array] = {"row": np.linspace(0, 1, 64, dtype=np.float32), "rows": np.arange(48)[::-1].copy()}
    graph = Graph("g", (Value("x", "f32", shape),), nodes, (Output("y", "y"),), constants)
    compiled = compile_graph(graph, Target.parse("native -num-cores=2"))
    frames = [call.frame for call in compiled.program.calls if call.label.startswith(("exp", "mul"))]
    assert len(frames) == 2
    for frame in frames:
        assert frame[0] in frame[1:-2]  # the operand's memory is an output's too
    assert compiled.program.arena_bytes <= 3 * 4 * 48 * 64 + 64
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    expected = evaluate_graph(graph, {"x": x})["y"]
    for _ in range(2):
        np.testing.assert_allclose(compiled.run({"x": x})[0], expected, rtol=1e-5, atol=1e-6)


def sliced(name: str, source: str, begin: tuple[int, ...], size: tuple[int, ...]) -> Node:
    attrs = (("begin", begin), ("size", size), ("step", (1,) * len(size)))
    return Node("slice", (source,), Value(name, "f32", size), attrs)


def split_graph() -> Graph:
    """As in ShuffleNet v2: half of the channels goes through a padded convolution, half past it; the rest is small."""
    rng = np.random.default_rng(3)
    constants = {
        "w0": rng.standard_normal((32, 16, 1, 1)).astype(np.float32),
        "w1": rng.standard_normal((16, 16, 3, 3)).astype(np.float32),
    }
    nodes = (
        conv("a", "x", "w0", (1, 32, 9, 8), 0),
        sliced("left", "a", (0, 0, 0, 0), (1, 16, 9, 8)),
        sliced("right", "a", (0, 16, 0, 0), (1, 16, 9, 8)),
        sliced("odd", "a", (0, 3, 0, 0), (1, 16, 9, 8)),  # between blocks
        sliced("inner", "a", (0, 0, 0, 1), (1, 32, 9, 7)),
        conv("b", "right", "w1", (1, 16, 9, 8), 1),
        Node("add", ("b", "left"), Value("sum", "f32", (1, 16, 9, 8))),
        sliced("row", "x", (0, 1, 0, 0), (1, 1, 9, 8)),  # of a model input
    )
    outputs = tuple(Output(name, name) for name in ("sum", "odd", "inner", "right", "row"))
    return Graph("split", (Value("x", "f32", (1, 16, 9, 8)),), nodes, outputs, constants)


def test_slices_are_views_where_they_lie_in_one_piece() -> None:
    compiled = compile_graph(split_graph(), Target.parse("native -num-cores=2"))
    x = {"x": np.random.default_rng(4).standard_normal((1, 16, 9, 8)).astype(np.float32)}
    expected = evaluate_graph(split_graph(), x)
    context = compiled.executor.context()
    context.arena[...] = 255
    compiled.executor.release(context)
    for got, wanted in zip(compiled.run(x), expected.values(), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3)
    assert sum("slice" in call.label for call in compiled.program.calls) == 3  # odd, inner, row


def test_slices_of_rows_are_views_of_a_row_major_tensor() -> None:
    """The three parts of a projection, as attention is written out."""
    nodes = (
        Node("transpose", ("x",), Value("t", "f32", (3, 4, 5)), (("perm", (1, 0, 2)),)),
        *(sliced(f"s{n}", "t", (n, 0, 0), (1, 4, 5)) for n in range(3)),
        Node("mul", ("s0", "s1"), Value("m", "f32", (1, 4, 5))),
        Node("add", ("m", "s2"), Value("y", "f32", (1, 4, 5))),
    )
    graph = Graph("rows", (Value("x", "f32", (4, 3, 5)),), nodes, (Output("y", "y"), Output("s1", "s1")))
    compiled = compile_graph(graph, Target.parse("native -num-cores=1"))
    assert len(compiled.program.calls) == 2
    x = np.random.default_rng(4).standard_normal((4, 3, 5)).astype(np.float32)
    y, s1 = compiled.run({"x": x})
    np.testing.assert_allclose(y[0], x[:, 0] * x[:, 1] + x[:, 2], rtol=1e-5)
    np.testing.assert_array_equal(s1[0], x[:, 1])


def test_the_same_part_twice() -> None:
    nodes = (
        Node("relu", ("x",), Value("r", "f32", (2, 3))),
        Node("reduce_sum", ("x",), Value("n", "f32", (1, 3)), (("axes", (0,)), ("keepdims", True))),
        Node("concat", ("r", "r", "n"), Value("c", "f32", (5, 3)), (("axis", 0),)),
        Node("softmax", ("c",), Value("y", "f32", (5, 3)), (("axis", 0),)),
    )
    graph = Graph("g", (Value("x", "f32", (2, 3)),), nodes, (Output("y", "y"),))
    x = {"x": np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)}
    (y,) = compile_graph(graph, Target.parse("native")).run(x)
    np.testing.assert_allclose(y, evaluate_graph(graph, x)["y"], rtol=1e-5)


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


def test_a_view_of_a_scalar() -> None:
    nodes = (
        Node("neg", ("x",), Value("n", "f32", ())),
        Node("reshape", ("n",), Value("y", "f32", (1,)), (("shape", (1,)),)),
    )
    graph = Graph("g", (Value("x", "f32", ()),), nodes, (Output("y", "y"),))
    (found,) = compile_graph(graph, Target.parse("native -num-cores=1")).run({"x": np.float32(2)})
    np.testing.assert_array_equal(found, [-2])
