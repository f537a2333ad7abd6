"""Classical machine learning against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.datasets import get_example

import autotune
from autotune.errors import InputError, ModelError
from autotune.graph.frontend.learned import trees as trees_of_a_model
from tests.graph.learned_models import (
    DOUBLE,
    FLOAT,
    INT64,
    ML,
    MODES,
    STRING,
    TARGET,
    agree,
    as_reference,
    both,
    data,
    model,
    random_trees,
)


@pytest.mark.parametrize("seed", range(12))
def test_trees_of_regression(seed: int) -> None:
    """Against the reference: ONNX Runtime takes NaN as different from every number, whatever a node says."""
    rng = np.random.default_rng(seed)
    features, targets = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    how = ("SUM", "AVERAGE", "MIN", "MAX")[seed % 4]
    trees = random_trees(
        rng, int(rng.integers(1, 30)), int(rng.integers(1, 6)), features, range(targets), "target",
        MODES if seed % 3 == 0 else MODES[:1],
    )  # fmt: skip
    x = data(rng, int(rng.integers(1, 20)), features)
    attributes: dict[str, Any] = {"n_targets": targets, "aggregate_function": how, "post_transform": "NONE", **trees}
    if seed % 2:
        attributes["base_values"] = [0.5] * targets
    as_reference(model("TreeEnsembleRegressor", {"x": (FLOAT, x.shape)}, {"y": FLOAT}, **attributes), {"x": x})


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize(("named", "classes"), [((0,), 2), ((0, 1), 2), ((0, 1, 2), 3)])
def test_trees_of_classification(named: tuple[int, ...], classes: int, transform: str, positive: bool) -> None:
    rng = np.random.default_rng(classes)
    trees = random_trees(rng, 7, 4, 5, named, "class", positive=positive)
    x = data(rng, 17, 5)
    proto = model(
        "TreeEnsembleClassifier", {"x": (FLOAT, x.shape)}, {"label": INT64, "scores": FLOAT}, **trees,
        classlabels_int64s=list(range(10, 10 + classes)), post_transform=transform,
    )  # fmt: skip
    # Of two classes that are both weighed, ONNX Runtime numbers the label instead of naming it.
    (as_reference if named == (0, 1) else agree)(proto, {"x": x})


def test_large_trees_are_walked_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By many rows, so that nodes stay near; beside trees whose splits are all looked at."""
    monkeypatch.setattr(trees_of_a_model, "NEAR", 100)
    monkeypatch.setattr(trees_of_a_model, "SPLITS_BY_ROWS", 3)
    rng = np.random.default_rng(6)
    x = data(rng, 40, 6)
    for how in ("SUM", "MAX", "AVERAGE"):
        trees = random_trees(rng, 20, 6, 6, range(2), "target")
        proto = model(
            "TreeEnsembleRegressor", {"x": (FLOAT, x.shape)}, {"y": FLOAT}, n_targets=2, aggregate_function=how, **trees
        )
        as_reference(proto, {"x": x})


def test_more_features_and_nodes_than_a_word_names() -> None:
    """2^21 columns and more than 2^11 nodes: they are walked in f64, and the result is of f32."""
    rng = np.random.default_rng(7)
    x = data(rng, 2, 2**20)
    trees = random_trees(rng, 40, 8, 2**20, (0,), "target")
    proto = model("TreeEnsembleRegressor", {"x": (FLOAT, x.shape)}, {"y": FLOAT}, n_targets=1, **trees)
    as_reference(proto, {"x": x})


def test_trees_in_f64_and_of_many_rows() -> None:
    rng = np.random.default_rng(5)
    x = data(rng, 300, 6).astype(np.float64)
    trees = random_trees(rng, 40, 6, 6, (0,), "target")
    agree(model("TreeEnsembleRegressor", {"x": (DOUBLE, x.shape)}, {"y": FLOAT}, n_targets=1, **trees), {"x": x})


@pytest.mark.parametrize("kind", [FLOAT, DOUBLE])
def test_trees_of_version_5(kind: int) -> None:
    """Splits of every mode, sets among them, and leaves apart; the result is of the data's type."""
    dtype = np.float64 if kind == DOUBLE else np.float32
    modes = np.array([0, 6, 4, 3], np.uint8)  # LEQ, MEMBER, EQ, GT
    attributes: dict[str, Any] = {
        "tree_roots": [0], "nodes_modes": numpy_helper.from_array(modes, "modes"), "nodes_featureids": [0, 1, 0, 1],
        "nodes_splits": numpy_helper.from_array(np.array([0.5, 0.0, 2.0, -1.0], dtype), "splits"),
        "nodes_truenodeids": [1, 0, 2, 4], "nodes_trueleafs": [0, 1, 1, 1], "nodes_falsenodeids": [2, 1, 3, 3],
        "nodes_falseleafs": [0, 1, 0, 1], "leaf_targetids": [0, 1, 0, 1, 0],
        "leaf_weights": numpy_helper.from_array(np.array([1, 2, 3, 4, 5], dtype), "weights"), "n_targets": 2,
        "membership_values": numpy_helper.from_array(np.array([1.0, 3.0, np.nan], dtype), "sets"),
        "aggregate_function": 1, "post_transform": 0,
    }  # fmt: skip
    x = np.array([[0.5, 3.0], [0.25, 2.0], [2.0, 0.0], [1.0, -1.0], [1.0, 0.0]], dtype)
    proto = model("TreeEnsemble", {"x": (kind, x.shape)}, {"y": kind}, version=5, **attributes)
    (found,) = autotune.InferenceSession(proto.SerializeToString(), target=TARGET, database=False).run(None, {"x": x})
    assert found.dtype == dtype
    assert found.tolist() == [[1, 0], [0, 2], [3, 0], [0, 4], [5, 0]]


NAMES = ["cat", "dog", "eel"]


@pytest.mark.parametrize("op", ["TreeEnsembleClassifier", "LinearClassifier"])
def test_classes_with_names_and_a_score_for_each(op: str) -> None:
    rng = np.random.default_rng(1)
    x = np.nan_to_num(data(rng, 9, 4))
    if op == "LinearClassifier":
        more: dict[str, Any] = {"coefficients": rng.standard_normal(12).tolist(), "intercepts": [0.1, 0.2, 0.3]}
    else:
        more = random_trees(rng, 5, 3, 4, range(3), "class")
    nodes = [
        helper.make_node(op, ["x"], ["label", "scores"], domain=ML, classlabels_strings=NAMES, **more),
        helper.make_node("ZipMap", ["scores"], ["each"], domain=ML, classlabels_strings=NAMES),
    ]
    proto = model("", {"x": (FLOAT, x.shape)}, {"label": STRING, "scores": FLOAT}, nodes=nodes)
    proto.graph.output.append(onnx.ValueInfoProto(name="each"))
    proto.graph.output[-1].type.sequence_type.elem_type.map_type.key_type = STRING
    proto.graph.output[-1].type.sequence_type.elem_type.map_type.value_type.tensor_type.elem_type = FLOAT
    (label, scores, each), theirs = both(proto, {"x": x})
    assert label.tolist() == theirs[0].tolist()
    np.testing.assert_allclose(scores, theirs[1], rtol=1e-5, atol=1e-6)
    assert [list(row) for row in each] == [list(row) for row in theirs[2]] == [NAMES] * 9
    np.testing.assert_allclose([list(r.values()) for r in each], [list(r.values()) for r in theirs[2]], rtol=1e-5)


def test_onnxruntime_s_own_example_runs() -> None:
    """Its file has twice the coefficients that its inputs' features and three intercepts need."""
    path = get_example("logreg_iris.onnx")
    found, theirs = both(onnx.load(path), {"float_input": np.array([[1, 2], [5.5, 6], [-7, 0.5]], np.float32)})
    assert found[0].tolist() == theirs[0].tolist()
    for ours, other in zip(found[1], theirs[1], strict=True):
        assert ours == pytest.approx(other, rel=1e-5, abs=1e-6)


X = np.nan_to_num(data(np.random.default_rng(7), 6, 4))


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Scaler", {"offset": [1.0, 2.0, 3.0, 4.0], "scale": [0.5, 1.0, 2.0, 4.0]}),
        ("Scaler", {"offset": [1.0], "scale": [0.5]}),
        ("Normalizer", {"norm": "MAX"}),
        ("Normalizer", {"norm": "L1"}),
        ("Normalizer", {"norm": "L2"}),
        ("Binarizer", {"threshold": 0.25}),
        ("Imputer", {"imputed_value_floats": [9.0], "replaced_value_float": 0.5}),
        ("Imputer", {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": float("nan")}),
        ("LinearRegressor", {"coefficients": [0.1, 0.2, 0.3, 0.4], "intercepts": [0.5]}),
        ("LinearRegressor", {"coefficients": [0.1] * 8, "intercepts": [0.5, 0.6], "targets": 2}),
        ("SVMRegressor", {"coefficients": [0.1, 0.2, 0.3, 0.4], "rho": [0.5], "kernel_params": [0.0, 0.0, 0.0]}),
        *(
            ("SVMRegressor", {"coefficients": [0.5, -0.25], "rho": [0.1], "n_supports": 2, "kernel_type": kind,
                              "support_vectors": [0.1 * n for n in range(8)], "kernel_params": [0.3, 0.2, 2.0]})
            for kind in ("RBF", "POLY", "SIGMOID", "LINEAR")
        ),
        ("OneHotEncoder", {"cats_int64s": [0, 1, 2], "zeros": 1}),
        ("LabelEncoder", {"keys_floats": [0.5, 1.0, -1.0], "values_floats": [3.0, 4.0, 5.0], "default_float": 7.5}),
    ],
)  # fmt: skip
def test_features_and_linear_models(op: str, attributes: dict[str, Any]) -> None:
    x = X.copy()
    if op in ("Imputer", "LabelEncoder"):
        x[1, 2] = np.nan
    if op == "OneHotEncoder":
        agree(model(op, {"x": (INT64, (2, 3))}, {"y": FLOAT}, **attributes), {"x": np.array([[0, 2, 5], [1, 1, 0]])})
        return
    agree(model(op, {"x": (FLOAT, x.shape)}, {"y": FLOAT}, **attributes), {"x": x})


@pytest.mark.parametrize(("count", "labels"), [(1, [3, 4]), (3, [5, 6, 7])])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_classifiers(transform: str, count: int, labels: list[int]) -> None:
    rng = np.random.default_rng(count)
    proto = model(
        "LinearClassifier", {"x": (FLOAT, X.shape)}, {"label": INT64, "scores": FLOAT}, classlabels_ints=labels,
        coefficients=rng.standard_normal(4 * count).tolist(), intercepts=rng.standard_normal(count).tolist(),
        post_transform=transform, multi_class=0,
    )  # fmt: skip
    agree(proto, {"x": X})


@pytest.mark.parametrize("op", ["LinearClassifier", "TreeEnsembleClassifier", "SVMClassifier"])
@pytest.mark.parametrize(("transform", "complaint"), [("PROBIT", "PROBIT of one score"), ("SQUARE", "is 'SQUARE'")])
def test_transforms_that_one_score_of_two_classes_has_not(op: str, transform: str, complaint: str) -> None:
    attributes: dict[str, Any] = {"post_transform": transform}
    if op == "TreeEnsembleClassifier":
        attributes |= random_trees(np.random.default_rng(0), 3, 2, 4, (0,), "class")
        attributes["classlabels_int64s"] = [0, 1]
    else:
        attributes |= {"coefficients": [0.1] * 4, "classlabels_ints": [0, 1], "rho": [0.5]}
        attributes |= {"intercepts": [0.5]} if op == "LinearClassifier" else {
            "vectors_per_class": [2, 2], "support_vectors": [0.1] * 16}  # fmt: skip
    if op == "LinearClassifier":
        del attributes["rho"]
    proto = model(op, {"x": (FLOAT, X.shape)}, {"label": INT64, "scores": FLOAT}, **attributes)
    with pytest.raises(ModelError, match=complaint):
        autotune.InferenceSession(proto.SerializeToString(), target=TARGET, database=False)


def test_probit_is_the_quantile_of_the_normal_distribution() -> None:
    """Within the approximation; ONNX Runtime's loses digits around a half, and has one of its own for pi."""
    p = np.concatenate([np.linspace(0.01, 0.99, 99), 0.5 + np.array([-1e-3, -1e-6, 0, 1e-6, 1e-3]), [0, 1]])
    x = p[:, None].astype(np.float32)
    proto = model("LinearRegressor", {"x": (FLOAT, x.shape)}, {"y": FLOAT}, coefficients=[1.0], post_transform="PROBIT")
    (ours,), (theirs,) = both(proto, {"x": x})
    exact = [NormalDist().inv_cdf(float(v)) for v in x[:-2, 0]]
    np.testing.assert_allclose(ours[:-2, 0], exact, rtol=4e-3, atol=3e-4)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-3)
    assert ours[-2:, 0].tolist() == [-np.inf, np.inf]


def test_features_are_put_together_and_taken_apart() -> None:
    ids = np.array([[1], [2], [3], [4], [5], [6]], np.int64)
    nodes = [
        helper.make_node("FeatureVectorizer", ["x", "i"], ["all"], domain=ML, inputdimensions=[4, 1]),
        helper.make_node("ArrayFeatureExtractor", ["all", "places"], ["y"], domain=ML),
    ]
    inputs: dict[str, tuple[int, Sequence[Any]]] = {
        "x": (FLOAT, X.shape),
        "i": (INT64, ids.shape),
        "places": (INT64, (1, 2)),
    }
    feeds = {"x": X, "i": ids, "places": np.array([[4, 1]])}
    (found,) = autotune.InferenceSession(
        model("", inputs, {"y": FLOAT}, nodes=nodes).SerializeToString(), target=TARGET, database=False
    ).run(None, feeds)
    np.testing.assert_array_equal(found, np.stack([ids[:, 0], X[:, 1]], axis=1).astype(np.float32))


MAPS: list[tuple[list[Any], int, int, dict[str, Any]]] = [
    (["a", "b", "z"], STRING, INT64, {"keys_strings": ["a", "b"], "values_int64s": [7, 8]}),
    ([1, 5], INT64, STRING, {"keys_int64s": [1], "values_strings": ["one"], "default_string": "?"}),
    (["a", "q"], STRING, STRING, {"keys_strings": ["a"], "values_strings": ["A"]}),
    ([1, 5], INT64, INT64, {"keys_int64s": [1, 2], "values_int64s": [10, 20], "default_int64": 4}),
    (["a", "q"], STRING, FLOAT, {"keys_strings": ["a"], "values_floats": [0.5], "default_float": 1.5}),
]


@pytest.mark.parametrize(("items", "kind", "result", "attributes"), MAPS)
def test_maps_of_labels(items: list[Any], kind: int, result: int, attributes: dict[str, Any]) -> None:
    x = np.array(items, object if kind == STRING else np.int64)
    (ours,), (theirs,) = both(model("LabelEncoder", {"x": (kind, x.shape)}, {"y": result}, **attributes), {"x": x})
    assert ours.shape == theirs.shape and ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 5, 2000])
@pytest.mark.parametrize("kind", [np.int64, np.float32])
def test_maps_of_any_number_of_numbers(kind: type[np.generic], count: int) -> None:
    """Keys in no order, some twice, NaN and zeros of either sign among those that are no integers."""
    rng = np.random.default_rng(count)
    keys = rng.integers(-count, count, count).astype(kind)
    if kind is np.float32 and count > 2:
        keys[:3] = (np.nan, -0.0, np.inf)
    name = "floats" if kind is np.float32 else "int64s"
    lists = {f"keys_{name}": keys.tolist(), "values_int64s": rng.integers(0, 99, count).tolist()}
    x = np.concatenate([keys, rng.integers(-3 - 2 * count, 3 + 2 * count, 40).astype(kind)])[:, None]
    number = helper.np_dtype_to_tensor_dtype(x.dtype)
    agree(model("LabelEncoder", {"x": (number, x.shape)}, {"y": INT64}, default_int64=-7, **lists), {"x": x})


def test_categories_are_mapped_on_the_host() -> None:
    table: dict[str, Any] = {
        "cats_int64s": [4, 5],
        "cats_strings": ["x", "y"],
        "default_int64": -7,
        "default_string": "none",
    }
    words = np.array(["y", "q"], object)
    (ours,), (theirs,) = both(model("CategoryMapper", {"x": (STRING, (2,))}, {"y": INT64}, **table), {"x": words})
    assert ours.tolist() == theirs.tolist() == [5, -7]
    numbers = np.array([4, 9], np.int64)
    (ours,), (theirs,) = both(model("CategoryMapper", {"x": (INT64, (2,))}, {"y": STRING}, **table), {"x": numbers})
    assert ours.tolist() == theirs.tolist() == ["x", "none"]
    hot = model("OneHotEncoder", {"x": (STRING, (2,))}, {"y": FLOAT}, cats_strings=["y", "z"], zeros=1)
    agree(hot, {"x": words})


@pytest.mark.parametrize("kind", [np.int64, np.float32])
def test_a_category_that_is_none_fails_a_run_without_zeros(kind: type[np.generic]) -> None:
    """ONNX Runtime and the reference fail, too; a row of zeros would be an answer without a sign that it is none."""
    known = np.array([[1, 3], [3, 9]], kind)
    number = helper.np_dtype_to_tensor_dtype(known.dtype)
    proto = model("OneHotEncoder", {"x": (number, known.shape)}, {"y": FLOAT}, cats_int64s=[1, 3, 9], zeros=0)
    agree(proto, {"x": known})
    session = autotune.InferenceSession(proto.SerializeToString(), target=TARGET, database=False)
    for _ in range(2):
        with pytest.raises(InputError, match="OneHotEncoder.*none of the categories 1, 3, 9, and zeros is 0"):
            session.run(None, {"x": np.array([[1, 3], [2, 9]], kind)})
    np.testing.assert_array_equal(session.run(None, {"x": known})[0].argmax(-1), [[0, 1], [1, 2]])


def test_a_constant_category_that_is_none_is_refused_at_once() -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], value_ints=list(range(20, 29))),
        helper.make_node("OneHotEncoder", ["c"], ["y"], domain=ML, cats_int64s=list(range(9)), zeros=0),
    ]
    proto = model("", {"x": (FLOAT, (1,))}, {"y": FLOAT}, nodes=nodes)
    with pytest.raises(ModelError, match="0, 1, 2, 3, 4, 5, 6, 7, ..., and zeros is 0"):
        autotune.InferenceSession(proto.SerializeToString(), target=TARGET, database=False)


TREE: dict[str, Any] = random_trees(np.random.default_rng(0), 2, 2, 3, (0,), "target")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"nodes_truenodeids": [99] * len(TREE["nodes_modes"])}, "leads to one that is not there"),
        ({"nodes_featureids": [50] * len(TREE["nodes_modes"])}, "asks for feature 50, the data has 3"),
        ({"nodes_values": [0.5]}, "nodes_\\* differ in length"),
        ({"nodes_modes": ["BRANCH_MAYBE"] * len(TREE["nodes_modes"])}, "nodes_modes has 'BRANCH_MAYBE'"),
        ({"nodes_truenodeids": [0] * len(TREE["nodes_modes"])}, "lead in a circle"),
        ({"target_ids": [5] * len(TREE["target_ids"])}, "weighs target 5, there are 1"),
        ({"nodes_nodeids": [0] * len(TREE["nodes_modes"])}, "two nodes of a tree have one number"),
        ({"aggregate_function": "MEDIAN"}, "aggregate_function is 'MEDIAN'"),
        ({"post_transform": "SQUARE"}, "post_transform is 'SQUARE'"),
        ({"base_values": [1.0, 2.0]}, "base_values has 2 numbers for 1 targets"),
        ({"nodes_colour": [1]}, "nodes_colour"),
    ],
)
def test_damaged_trees_are_refused_in_one_line(changes: dict[str, Any], complaint: str) -> None:
    proto = model("TreeEnsembleRegressor", {"x": (FLOAT, (2, 3))}, {"y": FLOAT}, **{"n_targets": 1, **TREE, **changes})
    with pytest.raises(ModelError, match=complaint) as raised:
        autotune.InferenceSession(proto.SerializeToString(), target=TARGET, database=False)
    assert len(str(raised.value).splitlines()) == 1
