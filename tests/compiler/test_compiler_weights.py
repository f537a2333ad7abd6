"""Packed weights that programs share."""

from __future__ import annotations

import gc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autotune.api.load import load
from autotune.compiler import weights
from autotune.compiler.specialisation import ProgramStep, Step
from autotune.compiler.staged import StagedModel
from autotune.compiler.weights import PackedWeights, Packing
from autotune.tensor.aligned import aligned_empty
from tests.compiler.test_compiler_staged import data, model_of


def open_layers() -> onnx.ModelProto:
    """Two products with weights, for any number of rows."""
    nodes = [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
             helper.make_node("MatMul", ["r", "b"], ["y"])]  # fmt: skip
    tensors = {"a": data(48, 64, seed=1), "b": data(64, 32, seed=2)}
    return model_of(nodes, {"x": (TensorProto.FLOAT, ["rows", 48])}, tensors=tensors)


def test_programs_of_a_model_share_what_they_pack_alike() -> None:
    model = load(open_layers().SerializeToString(), "native -num-cores=1", False)
    assert isinstance(model, StagedModel)
    held: list[dict[int, int]] = []

    def watch(step: Step) -> None:
        assert isinstance(step, ProgramStep)
        held.append(step.program.constants.memory)

    for rows in (24, 24, 24 * 7):
        model.run({"x": data(rows, 48)}, watch)
    first, same, other = held
    assert first == same
    assert first.keys() & other.keys()
    assert sum(first.values()) == (48 * 64 + 64 * 32) * 4


def test_weights_that_several_programs_read_are_counted_once() -> None:
    """Those of the first shape, and those of others in larger ones."""
    model = load(open_layers().SerializeToString(), "native -num-cores=1", False)
    assert isinstance(model, StagedModel)
    for rows in (24, 24, 25):
        model.run({"x": data(rows, 48)})
    uses = model.shapes()
    assert len(uses) > 1 and uses[0].own_bytes == uses[0].weight_bytes > 0
    assert sum(use.own_bytes for use in uses) < 1.5 * uses[0].weight_bytes


def test_equal_contents_are_one_weight_wherever_they_lie() -> None:
    shared = PackedWeights()
    array = data(8, 8)
    twin = array.copy()
    assert shared.identity(array) == shared.identity(twin)
    assert shared.identity(array) != shared.identity(array.T)
    assert shared.identity(array) != shared.identity(array.reshape(64))
    assert shared.identity(array) != shared.identity(array.view(np.int32))
    twin[0, 0] += 1
    other = twin.copy()  # contents are looked at once: arrays of a model do not change
    assert shared.identity(array) != shared.identity(other)


def test_what_no_program_holds_is_packed_again() -> None:
    shared = PackedWeights()
    packed: list[str] = []

    def pack(*names: str) -> Packing:
        packing = Packing(shared)
        for name in names:

            def fill(memory: np.ndarray, name: str = name) -> None:
                packed.append(name)
                memory[:] = ord(name)

            packing.add(name, 100, fill)
        return packing

    first = pack("a", "b").packed()
    second = pack("b", "c", "b").packed()
    assert packed == ["a", "b", "c"]
    assert [chunk.nbytes for chunk in second.chunks()] == [100, 28, 100, 28]
    assert b"".join(chunk.tobytes() for chunk in second.chunks()) == b"b" * 100 + bytes(28) + b"c" * 100 + bytes(28)
    assert second.address(130) == second.view(130, 1).ctypes.data
    assert first.address(128) == second.address(0)
    del first, second
    gc.collect()
    pack("b").packed()
    assert packed == ["a", "b", "c", "b"]


def test_gaps_between_weights_hold_nothing_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def used(nbytes: int) -> np.ndarray:
        memory = aligned_empty(nbytes)
        memory[:] = 0xA5
        return memory

    monkeypatch.setattr(weights, "aligned_empty", used)
    packing = Packing(None)
    for key, nbytes in (("a", 100), ("b", 3)):
        packing.add(key, nbytes, lambda memory: memory.fill(1))
    (chunk,) = packing.packed().chunks()
    assert chunk.tobytes() == b"\1" * 100 + bytes(28) + b"\1" * 3 + bytes(61)


@pytest.mark.parametrize("lies", ["well", "where somebody may write", "between two lines", "small"])
def test_constants_are_read_where_the_model_has_them(lies: str) -> None:
    size = 64 if lies == "small" else weights.WORTH_SHARING
    memory = aligned_empty(size + 64)
    array = memory[4 : size + 4] if lies == "between two lines" else memory[:size]
    array[:] = 7
    array.flags.writeable = lies == "where somebody may write"
    packing = Packing(PackedWeights())
    packing.add("w", array.nbytes, lambda memory: memory.fill(7), array.reshape(2, -1))
    packed = packing.packed()
    assert (packed.address(0) == array.ctypes.data) == (lies == "well")
    (chunk,) = packed.chunks()
    assert chunk.shape == array.shape and (chunk == 7).all()


def test_a_program_alone_holds_its_constants_together() -> None:
    array = aligned_empty(weights.WORTH_SHARING)
    array[:] = 7
    array.flags.writeable = False
    packing = Packing(None)
    packing.add("w", array.nbytes, lambda memory: memory.fill(7), array)
    assert packing.packed().address(0) != array.ctypes.data
