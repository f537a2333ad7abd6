"""Inputs that are maps (ai.onnx.ml): dictionaries as rows, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import autotune
from autotune.errors import AutotuneError, InputError, ModelError, UnsupportedError
from tests.graph.learned_models import DOUBLE, FLOAT, INT64, ML, STRING, TARGET, both

WORDS = ["height", "width", "colour=red"]


def of_map(
    nodes: Sequence[onnx.NodeProto], keys: int, values: int, outputs: dict[str, int], shape: Sequence[int] | None = ()
) -> onnx.ModelProto:
    """A model of one input, a map."""
    kind = helper.make_map_type_proto(keys, helper.make_tensor_type_proto(values, shape))
    results = [helper.make_tensor_value_info(name, dtype, None) for name, dtype in outputs.items()]
    graph = helper.make_graph(list(nodes), "maps", [helper.make_value_info("x", kind)], results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def vectorizer(keys: int, values: int, **attributes: Any) -> onnx.ModelProto:
    return of_map([helper.make_node("DictVectorizer", ["x"], ["y"], "row", domain=ML, **attributes)], keys, values,
                  {"y": values})  # fmt: skip


def cast_map(values: int, result: int, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node("CastMap", ["x"], ["y"], "row", domain=ML, **attributes)
    return of_map([node], INT64, values, {"y": result})


def ours(model: onnx.ModelProto, given: object) -> Any:
    return autotune.InferenceSession(model, target=TARGET, database=False).run(None, {"x": given})[0]


def refused(model: onnx.ModelProto, given: object, kind: type[AutotuneError] = InputError) -> str:
    with pytest.raises(kind) as raised:
        ours(model, given)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("keys", "attributes", "given"),
    [
        (STRING, {"string_vocabulary": WORDS}, {"width": 2.5, "height": 1, "colour=blue": 1.0}),
        (STRING, {"string_vocabulary": WORDS}, {"colour=red": np.float32(0.1)}),
        (INT64, {"int64_vocabulary": [7, -1, 3]}, {3: 2.0, 8: 1.0, -1: 5.0}),
    ],
)
def test_a_dictionary_as_a_row(keys: int, attributes: dict[str, Any], given: dict[Any, Any]) -> None:
    (found,), (wanted,) = both(vectorizer(keys, FLOAT, **attributes), {"x": given})
    assert found.dtype == wanted.dtype == np.float32
    np.testing.assert_array_equal(found, wanted)


def test_rows_that_onnxruntime_cannot_be_given() -> None:
    """Its binding makes maps of f32 only, and none of no keys."""
    names = {"string_vocabulary": WORDS}
    assert ours(vectorizer(STRING, FLOAT, **names), {}).tolist() == [[0.0, 0.0, 0.0]]
    found = ours(vectorizer(STRING, INT64, **names), {"width": 2**60 + 1})
    assert found.dtype == np.int64 and found.tolist() == [[0, 2**60 + 1, 0]]
    assert ours(vectorizer(INT64, DOUBLE, int64_vocabulary=[4, 5]), {5: 0.1}).tolist() == [[0.0, 0.1]]
    assert ours(vectorizer(INT64, STRING, int64_vocabulary=[4, 5]), {5: "five"}).tolist() == [["", "five"]]
    assert ours(cast_map(STRING, FLOAT), {3: "2.5", 1: "-1e3"}).tolist() == [[-1000.0, 2.5]]
    assert ours(cast_map(STRING, INT64, cast_to="TO_INT64", map_form="SPARSE", max_map=3), {1: "-7"}).tolist() == [
        [0, -7, 0]
    ]


@pytest.mark.parametrize("form", [{}, {"map_form": "SPARSE", "max_map": 5}, {"map_form": "SPARSE", "max_map": 2}])
@pytest.mark.parametrize(("to", "result"), [("TO_FLOAT", FLOAT), ("TO_INT64", INT64), ("TO_STRING", STRING)])
def test_a_map_as_a_row(form: dict[str, Any], to: str, result: int) -> None:
    model = cast_map(FLOAT, result, cast_to=to, **form)
    (found,), (wanted,) = both(model, {"x": {3: -2.7, 0: 1.5}})
    assert found.dtype == wanted.dtype
    assert found.tolist() == wanted.tolist()


def test_a_classifier_of_dictionaries() -> None:
    """As scikit-learn's pipeline of a DictVectorizer and a linear model is exported."""
    nodes = [
        helper.make_node("DictVectorizer", ["x"], ["rows"], domain=ML, string_vocabulary=WORDS),
        helper.make_node("Scaler", ["rows"], ["scaled"], domain=ML, offset=[1.0, 2.0, 0.0], scale=[0.5, 0.25, 1.0]),
        helper.make_node("LinearClassifier", ["scaled"], ["label", "scores"], domain=ML, multi_class=1,
                         classlabels_strings=["cat", "dog"], coefficients=[0.5, -1.0, 2.0, -0.5, 1.0, -2.0],
                         intercepts=[0.1, -0.1], post_transform="SOFTMAX"),
    ]  # fmt: skip
    model = of_map(nodes, STRING, FLOAT, {"label": STRING, "scores": FLOAT})
    session = autotune.InferenceSession(model, target=TARGET, database=False)
    (declared,) = session.get_inputs()
    assert (declared.name, declared.type, declared.shape) == ("x", "map(string,tensor(float))", [])
    for given in ({"height": 3.0}, {"height": 1.0, "width": 4.0, "colour=red": 1.0}, {"width": 0.5, "depth": 9.0}):
        _, (label, scores) = both(model, {"x": given})
        found = session.run(None, {"x": given})
        assert found[0].tolist() == label.tolist()
        np.testing.assert_allclose(found[1], scores, rtol=1e-5, atol=1e-6)


def test_what_is_no_such_map() -> None:
    of_strings = vectorizer(STRING, FLOAT, string_vocabulary=WORDS)
    said = refused(of_strings, [1.0])
    assert said == "input 'x' must be a dictionary, map(string, f32), not list"
    assert "a key of map(string, f32) is '1', int" in refused(of_strings, {1: 1.0})
    assert "a value of map(string, f32) is 'tall', str" in refused(of_strings, {"height": "tall"})
    assert "a value of map(string, f32) is 'True', bool" in refused(of_strings, {"height": True})
    whole = vectorizer(INT64, INT64, int64_vocabulary=[1])
    assert "a key of map(i64, i64) does not fit i64" in refused(whole, {2**80: 1})
    assert "a value of map(i64, i64) is '1.5', float" in refused(whole, {1: 1.5})
    said = refused(vectorizer(STRING, FLOAT, int64_vocabulary=[1]), {"height": 1.0}, ModelError)
    assert "node 'row' (ai.onnx.ml.DictVectorizer): the keys of its map are strings, of which it has no voc" in said
    sparse = cast_map(FLOAT, FLOAT, map_form="SPARSE", max_map=4)
    assert "(ai.onnx.ml.CastMap): the key -2 is no place in a row of 4" in refused(sparse, {-2: 1.0})
    assert "the value 'x' is no number" in refused(cast_map(STRING, FLOAT), {0: "x"})
    assert "the value 'nan' is no integer" in refused(cast_map(FLOAT, INT64, cast_to="TO_INT64"), {0: float("nan")})
    assert "cast_to='TO_BOOL'" in refused(cast_map(FLOAT, FLOAT, cast_to="TO_BOOL"), {0: 1.0}, ModelError)
    tensors = of_map([helper.make_node("DictVectorizer", ["x"], ["y"], domain=ML)], STRING, FLOAT, {"y": FLOAT}, (2,))
    assert "input 'x' is a map of string keys, or of values that are no scalars" in refused(
        tensors, {}, UnsupportedError
    )
