"""Types of what `ai.onnx.ml` makes: those of ONNX Runtime's results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from sharding.test_classical import CLASSIFIERS, DOMAIN, ROWS, VECTORS, X

from tensoropt.compiler.pipeline import driver
from tensoropt.dialects.onnx import function

pytestmark = pytest.mark.usefixtures("mlir_context")

CASES = {
    **ROWS,
    **CLASSIFIERS,
    "FeatureVectorizer": (1, {"inputdimensions": [4]}),
    "OneHotEncoder": (1, {"cats_int64s": [0, 1], "zeros": 1}),
}
LABELS = {"TreeEnsembleClassifier", "LinearClassifier", "SVMClassifier"}


def made(path: Path, name: str, version: int, held: Any, x: Any) -> onnx.ModelProto:
    """Write the operator behind Relu, before Relu where it is a number, its shapes untold."""
    outputs = ["label", "y"] if name in LABELS else ["y"]
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node(name, ["r"], outputs, name="it", domain=DOMAIN, **held),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    ends = [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, version)]
    graph = helper.make_graph(nodes, "g", given, ends)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.save(model, path)
    return model


def shapes(path: Path) -> list[list[int]]:
    """Return the shapes of the results of node `it`, and of what follows it."""
    module = driver.load(path, {})
    ops = [op.operation for op in function(module).regions[0].blocks[0]]
    [index] = [i for i, op in enumerate(ops) if op.name.startswith(f"onnx.{DOMAIN}.")]
    return [list(value.type.shape) for op in ops[index : index + 2] for value in op.results]


def expected(model: onnx.ModelProto, x: Any) -> list[list[int]]:
    names = [*model.graph.node[1].output, "z"]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [list(array.shape) for array in session.run(None, {"x": x})]


@pytest.mark.parametrize("name", CASES)
def test_shapes_are_those_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    version, held = CASES[name]
    # Trees take matrices only.
    for x in [X] if name.startswith("Tree") else [X, X[0]]:
        model = made(tmp_path / "m.onnx", name, version, held, x)
        assert shapes(tmp_path / "m.onnx") == expected(model, x)


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("calibrated", [False, True])
def test_scores_of_support_vectors(classes: int, calibrated: bool, tmp_path: Path) -> None:
    """A score for each pair of classes, unless they are made probabilities."""
    pairs = classes * (classes - 1) // 2
    held: dict[str, Any] = {
        **VECTORS,
        "support_vectors": [0.5] * (4 * classes),
        "coefficients": [1.0] * ((classes - 1) * classes),
        "vectors_per_class": [1] * classes,
        "rho": [0.1] * pairs,
        "classlabels_strings": ["a", "b", "c", "d"][:classes],
    }
    if calibrated:
        held |= {"prob_a": [-1.0] * pairs, "prob_b": [0.0] * pairs}
    model = made(tmp_path / "m.onnx", "SVMClassifier", 1, held, X)
    assert shapes(tmp_path / "m.onnx") == expected(model, X)


@pytest.mark.parametrize(("given", "result"), [("STRING", "i64"), ("INT64", "!onnx.String")])
def test_the_first_label_encoder_goes_either_way(given: str, result: str, tmp_path: Path) -> None:
    kind = TensorProto.DataType.Value(given)
    attributes = {"classes_strings": ["a", "b"], "domain": DOMAIN}
    graph = helper.make_graph(
        [helper.make_node("LabelEncoder", ["x"], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", kind, [3, 2])],
        [onnx.ValueInfoProto(name="y")],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "m.onnx")
    module = driver.load(tmp_path / "m.onnx", {})
    [made] = [v for op in function(module).regions[0].blocks[0] for v in op.operation.results]
    assert str(made.type) == f"tensor<3x2x{result}>"
