"""Sequences, optionals and strings: known while converting, or held on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from autotune.api.load import load
from autotune.compiler.compile import CompiledModel
from autotune.compiler.staged import StagedModel
from autotune.errors import InputError, ModelError
from tests.graph.graph_models import Array, make_model, random

FLOAT, INT, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
Node = onnx.NodeProto


def proto(
    nodes: Sequence[Node], inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[str], **tensors: Array
) -> bytes:
    graph = helper.make_graph(
        list(nodes),
        "test",
        list(inputs),
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(model.SerializeToString())


def ready(
    nodes: Sequence[Node], inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[str], **tensors: Array
) -> StagedModel:
    found = load(proto(nodes, inputs, outputs, **tensors), "native -num-cores=1", False)
    assert isinstance(found, StagedModel)
    return found


def text(name: str, dims: Sequence[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, STRING, dims)


def tensors(name: str, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_sequence_value_info(name, dtype, None)


def words(*items: str) -> Array:
    return np.asarray(items, object)


@pytest.mark.parametrize("attributes", [{}, {"sorted": 0}, {"axis": 0}, {"axis": -1, "sorted": 0}])
def test_unique_strings_as_onnxruntime_has_them(attributes: dict[str, Any]) -> None:
    x = words("b", "a", "b", "é", "a", "b", "b", "a", "b").reshape(3, 3)
    outputs = ["y", "first", "inverse", "counts"]
    node, takes = helper.make_node("Unique", ["x"], outputs, **attributes), text("x", [3, 3])
    model = ready([node], [takes], outputs)
    other = onnxruntime.InferenceSession(proto([node], [takes], outputs), providers=["CPUExecutionProvider"])
    for _ in range(3):  # the way of a run is bound when it is taken again
        for ours, theirs in zip(model.run({"x": x}), other.run(None, {"x": x}), strict=True):
            assert np.asarray(ours).tolist() == theirs.tolist()


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(("least", "most", "skip"), [(1, 1, 0), (1, 2, 0), (1, 2, 1), (2, 2, 3)])
def test_ngrams_of_strings_as_onnxruntime_counts_them(mode: str, least: int, most: int, skip: int) -> None:
    x = words("a", "bb", "a", "c", "bb", "a", "", "c", "c", "a", "zz", "bb").reshape(2, 6)
    node = helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode=mode, min_gram_length=least, max_gram_length=most, max_skip_count=skip,
        ngram_counts=[0, 3], ngram_indexes=[0, 1, 2, 3, 4], pool_strings=["a", "bb", "c", "a", "bb", "c", "a"],
        weights=[1.0, 2.0, 3.0, 4.0, 0.5],
    )  # fmt: skip
    for rows in (x, x[0]):
        takes = text("x", rows.shape)
        other = onnxruntime.InferenceSession(proto([node], [takes], ["y"]), providers=["CPUExecutionProvider"])
        (ours,), (theirs,) = ready([node], [takes], ["y"]).run({"x": rows}), other.run(None, {"x": rows})
        assert isinstance(ours, np.ndarray) and ours.dtype == np.float32
        np.testing.assert_array_equal(ours, theirs)


def test_known_sequences_cost_nothing() -> None:
    nodes = [
        helper.make_node("Constant", [], ["two"], value_int=2),
        helper.make_node("SplitToSequence", ["x", "two"], ["parts"], axis=0),
        helper.make_node("SequenceErase", ["parts", "zero"], ["tail"]),
        helper.make_node("SequenceInsert", ["tail", "more", "zero"], ["items"]),
        helper.make_node("Optional", ["items"], ["maybe"]),
        helper.make_node("OptionalGetElement", ["maybe"], ["sure"]),
        helper.make_node("ConcatFromSequence", ["sure"], ["joined"], axis=0),
        helper.make_node("SequenceAt", ["sure", "zero"], ["first"]),
        helper.make_node("SequenceLength", ["sure"], ["length"]),
        helper.make_node("Cast", ["length"], ["count"], to=FLOAT),
        helper.make_node("Relu", ["joined"], ["y"]),
    ]
    numbers = {"zero": np.asarray(0)}
    model = make_model(
        nodes,
        {"x": [5, 3], "more": [1, 3]},
        ["y", "first", "count"],
        numbers,
        opset=18,
        output_dtype=TensorProto.UNDEFINED,
    )
    found = load(model.SerializeToString(), "native -num-cores=1", False)
    assert isinstance(found, CompiledModel)
    x, more = random(5, 3), random(1, 3, seed=1)
    y, first, count = found.run({"x": x, "more": more})
    np.testing.assert_array_equal(y, np.maximum(np.concatenate([more, x[2:]]), 0))
    np.testing.assert_array_equal(first, more)
    assert count == 3


def test_sequences_come_and_go_as_lists() -> None:
    nodes = [
        helper.make_node("SequenceAt", ["s", "n"], ["item"]),
        helper.make_node("Relu", ["item"], ["r"]),
        helper.make_node("SequenceInsert", ["s", "r"], ["t"]),
        helper.make_node("SequenceConstruct", ["r", "r"], ["pair"]),
    ]
    found = ready(nodes, [tensors("s"), helper.make_tensor_value_info("n", INT, [])], ["t", "pair"])
    items = [random(2, 3), random(4, seed=1)]
    for n in (0, 1, -1):
        t, pair = found.run({"s": items, "n": np.asarray(n)})
        assert isinstance(t, list)
        assert isinstance(pair, list)
        for array, expected in zip(t, [*items, np.maximum(items[n], 0)], strict=True):
            np.testing.assert_array_equal(array, expected)
        assert len(pair) == 2
        t[0][...] = 0  # what a run gives belongs to the caller
        assert items[0].any()


def test_sequences_that_make_no_sense() -> None:
    at = helper.make_node("SequenceAt", ["s", "n"], ["y"], name="at")
    found = ready([at], [tensors("s"), helper.make_tensor_value_info("n", INT, [])], ["y"])
    good, good_n = [random(2)], np.asarray(0)
    for feeds, complaint in (
        ({"s": good, "n": np.asarray(1)}, r"node 'at' \(SequenceAt\): position 1 is outside of -1..0"),
        ({"s": [], "n": np.asarray(0)}, "position 0 is outside of 0..-1"),
        ({"s": random(2), "n": np.asarray(0)}, "input 's' must be a list of arrays, not ndarray"),
        (
            {"s": [random(2), np.asarray([1.5])], "n": good_n},
            r"input 's\[1\]' must be f32\[any shape\], got float64",
        ),
        ({"n": np.asarray(0)}, r"the model takes s: seq\(f32\[any shape\]\), n: i64"),
    ):
        with pytest.raises(InputError, match=complaint):
            found.run(feeds)
    concat = helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0, name="all")
    joined = ready([concat], [tensors("s")], ["y"])
    with pytest.raises(InputError, match=r"'all' .*shapes \[2\], \[1, 2\] do not concatenate along axis 0"):
        joined.run({"s": [random(2), random(1, 2)]})
    with pytest.raises(InputError, match="the sequence is empty"):
        joined.run({"s": []})
    split = helper.make_node("SplitToSequence", ["x", "n"], ["y"], name="split")
    halves = ready([split], [helper.make_tensor_value_info(n, d, [4]) for n, d in (("x", FLOAT), ("n", INT))], ["y"])
    with pytest.raises(InputError, match=r"'split' .*lengths \[1, 1, 1, 3\] do not make up an axis of extent 4"):
        halves.run({"x": random(4), "n": np.asarray([1, 1, 1, 3])})
    for node, inputs in ((helper.make_node("SequenceAt", ["x", "n"], ["y"]), {"x": [2]}),
                         (helper.make_node("Relu", ["s"], ["y"]), {"x": [2]})):  # fmt: skip
        model = make_model(
            [helper.make_node("SequenceConstruct", ["x"], ["s"]), node], inputs, ["y"], {"n": np.asarray(0)}
        )
        with pytest.raises(ModelError, match="sequence"):
            load(model.SerializeToString(), "native", False)


def test_optionals() -> None:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [3]))
    maybe = helper.make_value_info("o", kind)
    nodes = [
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
        helper.make_node("If", ["has"], ["y"], then_branch=branch("OptionalGetElement", "o"),
                         else_branch=branch("Identity", "x")),
    ]  # fmt: skip
    found = ready(nodes, [maybe, helper.make_tensor_value_info("x", FLOAT, [3])], ["y", "has"])
    x, o = random(3), random(3, seed=1)
    for given in (o, None):
        y, has = found.run({"x": x, "o": given})
        np.testing.assert_array_equal(y, x if given is None else o)
        assert has == (given is not None)
    np.testing.assert_array_equal(found.run({"x": x})[0], x)
    get = ready([helper.make_node("OptionalGetElement", ["o"], ["y"], name="get")], [maybe], ["y"])
    with pytest.raises(InputError, match=r"'get' .*the optional is empty"):
        get.run({"o": None})
    with pytest.raises(InputError, match=r"input 'o' must be f32\[3\], got f32\[4\]"):
        get.run({"o": random(4)})


def branch(op: str, name: str) -> onnx.GraphProto:
    out = f"{op}.y"
    return helper.make_graph([helper.make_node(op, [name], [out])], op, [], [helper.make_empty_tensor_value_info(out)])


def test_strings_move_like_numbers() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[1, 0]),
        helper.make_node("Gather", ["t", "n"], ["g"], axis=0),
        helper.make_node("Concat", ["g", "own"], ["c"], axis=0),
        helper.make_node("Slice", ["c", "one", "far"], ["s"]),
        helper.make_node("Shape", ["c"], ["size"]),
        helper.make_node("Equal", ["s", "a"], ["same"]),
        helper.make_node("Cast", ["same"], ["y"], to=FLOAT),
    ]
    found = ready(
        nodes, [text("x", [6]), helper.make_tensor_value_info("n", INT, [1])], ["s", "size", "y"],
        shape=np.asarray([2, 3]), own=words("b", "a").reshape(1, 2), one=np.asarray([1]), far=np.asarray([9]),
        a=words("a"),
    )  # fmt: skip
    given = ["a", "b", "c", "d", "é", "f"]
    for x in (words(*given), np.asarray(given), given):
        s, size, y = found.run({"x": x, "n": np.asarray([2])})
        assert s.tolist() == [["b", "a"]]
        assert size.tolist() == [2, 2]
        assert y.tolist() == [[0.0, 1.0]]
        assert y.dtype == np.float32


def test_operators_of_strings() -> None:
    nodes = [
        helper.make_node("StringConcat", ["x", "tail"], ["joined"]),
        helper.make_node("StringSplit", ["joined"], ["parts", "counts"], delimiter=" "),
        helper.make_node("RegexFullMatch", ["x"], ["match"], pattern="[a-c]+"),
        helper.make_node("StringNormalizer", ["x"], ["kept"], stopwords=["B"], case_change_action="UPPER"),
        helper.make_node("Cast", ["z"], ["numbers"], to=STRING),
    ]
    outputs = ["parts", "counts", "match", "kept", "numbers"]
    found = ready(nodes, [text("x", ["N"]), helper.make_tensor_value_info("z", FLOAT, [3])], outputs, tail=words(" z"))
    parts, counts, match, kept, numbers = found.run(
        {"x": words("ab", "b", "d e"), "z": np.asarray([1.5, 0.1, -3], np.float32)}
    )
    assert parts.tolist() == [["ab", "z", ""], ["b", "z", ""], ["d", "e", "z"]]
    assert counts.tolist() == [2, 2, 3]
    assert match.tolist() == [True, True, False]
    assert kept.tolist() == ["AB", "D E"]
    assert numbers.tolist() == ["1.5", "0.1", "-3"]


def test_strings_that_make_no_sense() -> None:
    pattern = helper.make_node("RegexFullMatch", ["x"], ["y"], pattern="(", name="re")
    with pytest.raises(ModelError, match=r"'re' .*no regular expression"):
        ready([pattern], [text("x", [1])], ["y"]).run({"x": words("a")})
    cast = ready([helper.make_node("Cast", ["x"], ["y"], to=INT, name="cast")], [text("x", [1])], ["y"])
    assert cast.run({"x": words("12")})[0].tolist() == [12]
    with pytest.raises(InputError, match=r"'cast' .*a string is no i64"):
        cast.run({"x": words("twelve")})
    for given, complaint in ((np.asarray([1.0]), "must be strings, got float64"), ([3], "holds int"),
                             (words("a", "b"), r"must be string\[1\], got string\[2\]")):  # fmt: skip
        with pytest.raises(InputError, match=complaint):
            cast.run({"x": given})
    relu = helper.make_node("Relu", ["x"], ["y"], name="relu")
    with pytest.raises(ModelError, match=r"'relu' \(Relu\) takes what no program takes"):
        ready([relu], [text("x", [1])], ["y"]).run({"x": words("a")})
