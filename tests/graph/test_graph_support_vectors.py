"""Support vector machines against ONNX Runtime and, where they agree, onnx.reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import autotune
from autotune.errors import ModelError, UnsupportedError
from autotune.graph.frontend.learned import support_vectors
from tests.graph.learned_models import FLOAT, INT64, ML, STRING, TARGET, agree, as_reference, both, model

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
FEATURES = 4
X = np.random.default_rng(3).standard_normal((9, FEATURES)).astype(np.float32)
Attributes = dict[str, Any]


def machine(kernel: str, of_classes: list[int], *, likely: bool = False, seed: int = 0, **more: Any) -> Attributes:
    """Attributes of a classifier with as many random support vectors of each class as said."""
    rng, count, classes = np.random.default_rng(seed), sum(of_classes), len(of_classes)
    pairs = classes * (classes - 1) // 2
    found: Attributes = {
        "kernel_type": kernel, "kernel_params": [0.3, 0.1, 3.0], "vectors_per_class": of_classes,
        "coefficients": rng.standard_normal((classes - 1) * count).tolist(), "rho": rng.standard_normal(pairs).tolist(),
        "support_vectors": rng.standard_normal(count * FEATURES).tolist(),
        "classlabels_ints": list(range(10, 10 + classes)),
    }  # fmt: skip
    if likely:
        found |= {"prob_a": (-rng.random(pairs) * 3).tolist(), "prob_b": rng.standard_normal(pairs).tolist()}
    return found | more


def classifier(attributes: Attributes, x: np.ndarray = X, kind: int = FLOAT) -> onnx.ModelProto:
    label = STRING if "classlabels_strings" in attributes else INT64
    return model("SVMClassifier", {"x": (kind, x.shape)}, {"label": label, "scores": FLOAT}, **attributes)


@pytest.mark.parametrize("likely", [False, True])
@pytest.mark.parametrize("of_classes", [[3, 2], [2, 4, 1], [3, 0, 2, 5], [1] * 7])
@pytest.mark.parametrize("kernel", KERNELS)
def test_classes_and_scores_or_probabilities(kernel: str, of_classes: list[int], likely: bool) -> None:
    proto = classifier(machine(kernel, of_classes, likely=likely))
    agree(proto, {"x": X})
    if not likely or len(of_classes) == 2:  # of more, the reference couples in a way of its own
        as_reference(proto, {"x": X})


def test_probabilities_sum_to_one() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, FEATURES)).astype(np.float32)
    attributes = machine("RBF", [5] * 5, likely=True)
    proto = classifier(attributes, x)
    (label, scores), _ = both(proto, {"x": x})
    assert set(label) <= set(attributes["classlabels_ints"]) and scores.shape == (300, 5)
    np.testing.assert_allclose(scores.sum(1), 1, rtol=1e-5)
    agree(proto, {"x": x})


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_transforms(transform: str) -> None:
    """ONNX Runtime leaves the one score of two classes alone under SOFTMAX; the reference is what decides."""
    agree(classifier(machine("RBF", [2, 3, 1], post_transform=transform)), {"x": X})
    agree(classifier(machine("RBF", [2, 3, 1], likely=True, post_transform=transform)), {"x": X})
    as_reference(classifier(machine("RBF", [2, 3], post_transform=transform)), {"x": X})


@pytest.mark.parametrize("likely", [False, True])
def test_classes_with_names_as_scikit_learn_s_exporter_writes_them(likely: bool) -> None:
    names = ["cat", "dog", "eel"]
    attributes = machine("RBF", [2, 3, 4], likely=likely, classlabels_strings=names)
    del attributes["classlabels_ints"]
    nodes = [
        helper.make_node("SVMClassifier", ["x"], ["label", "scores"], domain=ML, **attributes),
        helper.make_node("ZipMap", ["scores"], ["each"], domain=ML, classlabels_strings=names),
    ]
    proto = model("", {"x": (FLOAT, X.shape)}, {"label": STRING}, nodes=nodes)
    proto.graph.output.append(onnx.ValueInfoProto(name="each"))
    proto.graph.output[-1].type.sequence_type.elem_type.map_type.key_type = STRING
    proto.graph.output[-1].type.sequence_type.elem_type.map_type.value_type.tensor_type.elem_type = FLOAT
    (label, each), theirs = both(proto, {"x": X})
    assert label.tolist() == theirs[0].tolist()
    np.testing.assert_allclose([list(r.values()) for r in each], [list(r.values()) for r in theirs[1]], rtol=1e-4)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX"])
@pytest.mark.parametrize("classes", [1, 3, 5])
def test_linear_models_have_a_score_for_each_class(classes: int, transform: str) -> None:
    rng = np.random.default_rng(classes)
    attributes = {
        "coefficients": rng.standard_normal(classes * FEATURES).tolist(), "rho": [0.25], "kernel_params": [0.0] * 3,
        "classlabels_ints": list(range(3, 3 + classes)), "post_transform": transform,
    }  # fmt: skip
    if classes > 1 or transform == "NONE":
        agree(classifier(attributes), {"x": X})


@pytest.mark.parametrize("sign", [-1, 1])
def test_linear_models_of_two_classes(sign: int) -> None:
    """With no weight below zero half is enough for the second. With others ONNX Runtime takes it above zero, even where
    the first has more; the reference takes the one that has more."""
    weights = abs(np.random.default_rng(2).standard_normal(2 * FEATURES))
    weights[::3] *= sign
    attributes = {
        "coefficients": weights.tolist(),
        "rho": [0.1],
        "classlabels_ints": [4, 7],
        "kernel_params": [0.0] * 3,
    }
    as_reference(classifier(attributes), {"x": X})
    if sign > 0:
        agree(classifier(attributes), {"x": X})


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64])
def test_data_of_other_types_are_taken_as_f32(dtype: type[np.generic]) -> None:
    x = (X * 3).astype(dtype)
    agree(classifier(machine("RBF", [2, 2, 2]), x, helper.np_dtype_to_tensor_dtype(x.dtype)), {"x": x})


def test_a_vector_is_one_row() -> None:
    agree(classifier(machine("POLY", [2, 2, 2]), X[0]), {"x": X[0]})


@pytest.mark.parametrize("op", ["SVMClassifier", "SVMRegressor"])
def test_large_features_that_spread_little(op: str) -> None:
    """Years: |x|² is 4 million times the distance."""
    rng = np.random.default_rng(5)
    vectors = (2000 + rng.integers(-9, 9, (6, FEATURES))).astype(np.float32)
    x = (2000 + rng.integers(-9, 9, X.shape)).astype(np.float32)
    attributes = machine("RBF", [3, 3], support_vectors=vectors.ravel().tolist(), kernel_params=[0.01, 0.0, 0.0])
    if op == "SVMRegressor":
        del attributes["vectors_per_class"], attributes["classlabels_ints"]
        agree(model(op, {"x": (FLOAT, x.shape)}, {"y": FLOAT}, n_supports=6, **attributes), {"x": x})
    else:
        agree(classifier(attributes, x), {"x": x})


def test_many_classes_run_from_a_file(tmp_path: Path) -> None:
    """Twelve classes, 66 pairs, in one program."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal((40, FEATURES)).astype(np.float32)
    proto = classifier(machine("RBF", [2] * 12, likely=True), x)
    autotune.compile(proto.SerializeToString(), TARGET, False).save(tmp_path / "machine.at")
    found = autotune.InferenceSession(tmp_path / "machine.at").run(None, {"x": x})
    for ours, theirs in zip(found, both(proto, {"x": x})[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


GOOD = machine("RBF", [2, 3, 1], likely=True)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"kernel_type": "COSINE"}, "kernel_type is 'COSINE'"),
        ({"coefficients": [1.0]}, "1 coefficients and vectors_per_class \\(2, 3, 1\\) for 3 classes"),
        ({"vectors_per_class": [3, 3]}, "vectors_per_class \\(3, 3\\) for 3 classes"),
        ({"vectors_per_class": [7, -2, 1]}, "vectors_per_class \\(7, -2, 1\\) for 3 classes"),
        (
            {"vectors_per_class": [], "coefficients": [1.0]},
            "1 coefficients and 3 numbers of rho for 3 classes of 4 features",
        ),
        ({"support_vectors": [1.0]}, "1 numbers for 6 support vectors of 4 features"),
        ({"rho": [1.0]}, "a number for each of 3 pairs"),
        ({"prob_b": [1.0]}, "a number for each of 3 pairs"),
        ({"prob_a": [1.0], "prob_b": [1.0]}, "a number for each of 3 pairs"),
        ({"classlabels_ints": []}, "there are no class labels"),
        ({"post_transform": "SQUARE"}, "post_transform is 'SQUARE'"),
        ({"colour": 1}, "colour"),
    ],
)
def test_damaged_machines_are_refused_in_one_line(changes: Attributes, complaint: str) -> None:
    attributes = {name: value for name, value in (GOOD | changes).items() if value != []}
    with pytest.raises(ModelError, match=complaint) as raised:
        autotune.InferenceSession(classifier(attributes).SerializeToString(), target=TARGET, database=False)
    assert len(str(raised.value).splitlines()) == 1


def test_more_weights_than_memory_should_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support_vectors, "MOST_WEIGHTS", 17)
    with pytest.raises(UnsupportedError, match="6 support vectors in 3 pairs of classes"):
        autotune.InferenceSession(classifier(GOOD).SerializeToString(), target=TARGET, database=False)
