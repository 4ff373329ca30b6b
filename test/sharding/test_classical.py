"""Classical machine learning: rows apart, elements apart, and what is one piece."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sharding.harness import Case, check, normal, offered

DOMAIN = "ai.onnx.ml"
X = normal(8, 4)
WORDS = np.array([["a", "b"], ["b", "c"], ["a", "a"], ["c", "b"]], dtype=object)

# Two trees of three nodes each: on feature 1 and on feature 3.
TREES: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2] * 2,
    "nodes_featureids": [1, 0, 0, 3, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * 2,
    "nodes_values": [0.1, 0.0, 0.0, -0.2, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0] * 2,
    "nodes_falsenodeids": [2, 0, 0] * 2,
}
LEAVES = {"treeids": [0, 0, 1, 1], "nodeids": [1, 2, 1, 2], "ids": [0, 1, 1, 0]}
WEIGHTS = [0.5, 1.5, -0.25, 2.0]


def leaves(kind: str) -> dict[str, Any]:
    return {f"{kind}_{key}": held for key, held in LEAVES.items()} | {f"{kind}_weights": WEIGHTS}


VECTORS: dict[str, Any] = {
    "support_vectors": [0.5, -1.0, 0.25, 1.0, -0.5, 1.0, 0.0, 0.75, 1.0, 1.0, -1.0, 0.5],
    "kernel_type": "RBF",
    "kernel_params": [0.5, 0.0, 3.0],
}
CLASSES = {"coefficients": [0.5, -1.0, 1.0, 0.25] * 3, "intercepts": [0.1, 0.2, -0.3]}

ROWS: dict[str, tuple[int, dict[str, Any]]] = {
    "TreeEnsembleRegressor": (3, {"n_targets": 2, **TREES, **leaves("target")}),
    "LinearRegressor": (1, {**CLASSES, "targets": 3}),
    "SVMRegressor": (
        1,
        {**VECTORS, "coefficients": [1.0, -0.5, 0.3], "n_supports": 3, "rho": [0.1]},
    ),
    "Scaler": (1, {"offset": [0.1, 0.2, 0.3, 0.4], "scale": [2.0, 0.5, 1.5, 3.0]}),
    "Normalizer": (1, {"norm": "L2"}),
    "Imputer": (1, {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": 0.0}),
}

CLASSIFIERS: dict[str, tuple[int, dict[str, Any]]] = {
    "TreeEnsembleClassifier": (3, {"classlabels_int64s": [7, 9], **TREES, **leaves("class")}),
    "LinearClassifier": (
        1,
        {**CLASSES, "classlabels_ints": [1, 2, 3], "post_transform": "SOFTMAX"},
    ),
    "SVMClassifier": (
        1,
        {
            **VECTORS,
            "classlabels_ints": [1, 2, 3],
            "vectors_per_class": [1, 1, 1],
            "coefficients": [1.0, -0.5, 0.3, 0.7, -1.0, 0.2],
            "rho": [0.1, 0.2, -0.1],
        },
    ),
}


def case(op_type: str, version: int, operands: list[Any], held: Any, **options: Any) -> Case:
    return Case(op_type, operands, held, version=version, domain=DOMAIN, **options)


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_apart(name: str) -> None:
    version, held = ROWS[name]
    one = case(name, version, [X], held)
    assert offered(one) == {"R -> R", "S(0) -> S(0)"}
    check(one, (2, 2))
    assert check(one, (4,)).flops > X.shape[0]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_rows_of_classifiers_are_apart(name: str) -> None:
    version, held = CLASSIFIERS[name]
    one = case(name, version, [X], held, results=(True, True))
    assert offered(one) == {"R -> R R", "S(0) -> S(0) S(0)"}


def test_labels_that_are_words() -> None:
    held = {**CLASSES, "classlabels_strings": ["x", "y", "z"]}
    one = case("LinearClassifier", 1, [X], held, results=(True, True))
    assert offered(one) == {"R -> R R", "S(0) -> S(0) S(0)"}


def test_trees_of_the_newest_opset() -> None:
    held = {
        "n_targets": 2,
        "tree_roots": [0],
        "nodes_featureids": [0],
        "nodes_modes": np.array([0], np.uint8),
        "nodes_splits": np.array([0.1], np.float32),
        "nodes_truenodeids": [0],
        "nodes_trueleafs": [1],
        "nodes_falsenodeids": [1],
        "nodes_falseleafs": [1],
        "leaf_targetids": [0, 1],
        "leaf_weights": np.array([0.5, 1.5], np.float32),
    }
    assert offered(case("TreeEnsemble", 5, [X], held)) == {"R -> R", "S(0) -> S(0)"}


@pytest.mark.parametrize("name", ["Scaler", "LinearRegressor", "Imputer"])
def test_a_vector_is_one_row(name: str) -> None:
    version, held = ROWS[name]
    assert offered(case(name, version, [X[0]], held)) == {"R -> R"}


def test_features_side_by_side() -> None:
    one = case("FeatureVectorizer", 1, [X, normal(8, 2)], {"inputdimensions": [4, 2]})
    assert offered(one) == {"R R -> R", "S(0) S(0) -> S(0)"}


def test_features_of_images_have_a_scale_per_channel() -> None:
    held = {"offset": [0.1, 0.2], "scale": [2.0, 0.5]}
    assert offered(case("Scaler", 1, [normal(4, 2, 6)], held)) == {"R -> R", "S(0) -> S(0)"}


@pytest.mark.parametrize(
    ("name", "version", "x", "held"),
    [
        ("Binarizer", 1, normal(4, 2), {"threshold": 0.1}),
        ("LabelEncoder", 3, WORDS, {"keys_strings": ["a", "b"], "values_int64s": [3, 5]}),
        ("CategoryMapper", 1, WORDS, {"cats_strings": ["a", "b"], "cats_int64s": [3, 5]}),
        ("LabelEncoder", 3, np.array([[1, 2]] * 4), {"keys_int64s": [1], "values_strings": ["a"]}),
        ("OneHotEncoder", 1, WORDS, {"cats_strings": ["a", "b"]}),
        ("OneHotEncoder", 1, np.array([[1, 2]] * 4), {"cats_int64s": [1, 3, 2]}),
    ],
)
def test_elements_are_apart(name: str, version: int, x: Any, held: Any) -> None:
    assert offered(case(name, version, [x], held)) == {"R -> R", "S(0) -> S(0)", "S(1) -> S(1)"}


def test_columns_are_taken_from_each_row() -> None:
    one = case("ArrayFeatureExtractor", 1, [normal(4, 2, 6), np.array([[5, 0, 5]])], {})
    assert offered(one) == {"R R -> R", "S(0) R -> S(0)", "S(1) R -> S(1)"}
    assert offered(case("ArrayFeatureExtractor", 1, [X[0], np.array([1])], {})) == {"R R -> R"}
