"""Every mistake in a model file is one line that says where, what, and what would be right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from importer.models import BOOL, F32, I64, MODELS, model, node, saved, untyped, value
from onnx import TensorProto, helper, numpy_helper

from tensoropt.compiler.importer.importer import import_model
from tensoropt.compiler.protos import versions
from tensoropt.compiler.protos.versions import MAX_IR_VERSION, MAX_OPSET, max_opset
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.topt.keys import MISSING

pytestmark = pytest.mark.usefixtures("mlir_context")

X = value("x", F32, [2, 3])
Y = untyped("y")


def refused(path: Path, **options: Any) -> str:
    """Return the message, without the folder."""
    with pytest.raises(UserError) as caught:
        import_model(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{path.parent}/", "")


def graph_error(folder: Path, nodes: Sequence[onnx.NodeProto], **parts: Any) -> str:
    proto = model(nodes, parts.pop("inputs", [X]), parts.pop("outputs", [Y]), **parts)
    return refused(saved(proto, folder))


# Files


def test_missing_file(tmp_path: Path) -> None:
    assert refused(tmp_path / "m.onnx") == "m.onnx: no such file"


def test_folder(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").mkdir()
    assert refused(tmp_path / "m.onnx") == "m.onnx: is a directory, expected an ONNX model"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "expected a ModelProto, got: empty"),
        (b"\x08\x0a\x3a\xff\x01", "expected a ModelProto, got: truncated"),
        (b"not a model at all, only text\n", "expected a ModelProto, got: other bytes"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
            "expected a ModelProto, got: a Git LFS pointer (git lfs pull fetches the model)",
        ),
        (b"\x08\x0a", "expected a ModelProto with a graph"),
        (b"\x00\x00\x00\x00", "expected a ModelProto, got: truncated"),
        (b"\x3a\x03\x0a\x01\x0a", "expected a ModelProto, got: other bytes"),
    ],
)
def test_no_model(content: bytes, what: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    assert refused(tmp_path / "m.onnx") == f"m.onnx: not an ONNX model, {what}"


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.99])
def test_truncated_model(part: float, tmp_path: Path) -> None:
    whole = (MODELS / "vit_tiny.onnx").read_bytes()
    (tmp_path / "m.onnx").write_bytes(whole[: int(part * len(whole))])
    assert refused(tmp_path / "m.onnx").startswith("m.onnx: not an ONNX model, expected a ModelP")


@pytest.mark.parametrize("field", [b"some_node", b"in_value", b"Relu"])
def test_text_that_is_not_utf8(field: bytes, tmp_path: Path) -> None:
    proto = model([node("Relu", ["in_value"], ["y"], name="some_node")], [], [Y])
    damaged = b"\xff" * len(field)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString().replace(field, damaged))
    names = {b"some_node": "name", b"in_value": "input", b"Relu": "op_type"}
    assert refused(tmp_path / "m.onnx") == (
        f"m.onnx: field '{names[field]}' is damaged, expected UTF-8 text, got: {damaged!r}"
    )


def test_remarks_may_be_of_any_encoding(tmp_path: Path) -> None:
    proto = model([node("Relu", ["x"], ["y"], doc_string="remark")], [X], [Y])
    whole = proto.SerializeToString().replace(b"remark", b"\xff" * 6)
    (tmp_path / "m.onnx").write_bytes(whole)
    assert "onnx.Relu" in str(import_model(tmp_path / "m.onnx"))


def test_an_element_type_that_does_not_exist(tmp_path: Path) -> None:
    message = graph_error(tmp_path, [node("Relu", ["x"], ["y"])], outputs=[value("y", 60, [2, 3])])
    assert (
        message == "model.onnx: output 'y' has an unknown element type, expected 1 to 28, got: 60"
    )
    branch = helper.make_graph([node("Relu", ["x"], ["t"])], "b", [], [value("t", 60, [2, 3])])
    branches = {"then_branch": branch, "else_branch": branch}
    message = graph_error(
        tmp_path, [node("If", ["c"], ["y"], **branches)], inputs=[X, value("c", BOOL, [])]
    )
    assert (
        message == "model.onnx: output 't' has an unknown element type, expected 1 to 28, got: 60"
    )


def test_a_negative_size(tmp_path: Path) -> None:
    tensor = TensorProto(name="w", data_type=F32, dims=[-2, 3])
    message = graph_error(tmp_path, [node("Add", ["x", "w"], ["y"])], initializers=[tensor])
    assert message == "model.onnx: initializer 'w' has a negative size, got: -2x3"


def test_an_output_listed_twice(tmp_path: Path) -> None:
    message = graph_error(tmp_path, [node("Relu", ["x"], ["y"])], outputs=[Y, Y])
    assert message == "model.onnx: output 'y' is defined twice, expected unique names"


# Versions


def relu(**versions: Any) -> onnx.ModelProto:
    return model([node("Relu", ["x"], ["y"])], [X], [value("y", F32, [2, 3])], **versions)


def test_ir_version(tmp_path: Path) -> None:
    newest = onnx.IR_VERSION
    assert refused(saved(relu(ir_version=newest + 1), tmp_path)) == (
        f"model.onnx: IR version is too new, expected at most {newest}, got: {newest + 1}"
    )


def test_opset_version(tmp_path: Path) -> None:
    newest = max_opset("")
    assert newest is not None
    assert refused(saved(relu(opset=newest + 1), tmp_path)) == (
        "model.onnx: opset of domain 'ai.onnx' is too new for onnxruntime, "
        f"expected at most {newest}, got: {newest + 1}"
    )
    assert "'com.microsoft' is too new" in refused(
        saved(relu(domains={"com.microsoft": 2}), tmp_path)
    )


def test_no_opset(tmp_path: Path) -> None:
    proto = relu()
    del proto.opset_import[:]
    assert refused(saved(proto, tmp_path)) == (
        "model.onnx: no opset_import, expected a version of each domain that is used"
    )


def loads(proto: onnx.ModelProto) -> bool:
    try:
        ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:
        return False
    return True


def test_the_format_is_that_of_the_oldest_runtime() -> None:
    assert loads(relu(ir_version=MAX_IR_VERSION))
    is_oldest = ort.__version__.startswith("1.31.")
    assert loads(relu(ir_version=MAX_IR_VERSION + 1)) is not is_oldest


@pytest.mark.parametrize("domain", MAX_OPSET)
def test_the_newest_opsets_are_those_of_the_installed_runtime(domain: str) -> None:
    newest = max_opset(domain)
    assert newest is not None
    for version in (newest, newest + 1):
        imports = {"opset": version} if not domain else {"domains": {domain: version}}
        assert loads(relu(**imports)) == (version == newest)


def test_an_older_runtime_loads_older_opsets(monkeypatch: pytest.MonkeyPatch) -> None:
    for release, newest in (("1.31.1", 26), ("1.32.0", 28)):
        monkeypatch.setattr(versions, "installed_builds", lambda own=release: {"onnxruntime": own})
        assert max_opset("") == newest
        assert max_opset("ai.onnx.ml") == 5
        assert max_opset("mine") is None


# Names


def test_undefined_input(tmp_path: Path) -> None:
    assert graph_error(tmp_path, [node("Relu", ["xx"], ["y"], name="r")]) == (
        "model.onnx: node 'r' (Relu): input 'xx' is not defined, did you mean 'x'?"
    )


def test_undefined_output(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["yes"])]
    assert graph_error(tmp_path, nodes, outputs=[untyped("yess")]) == (
        "model.onnx: output 'yess' is not computed by any node, did you mean 'yes'?"
    )


def test_cycle(tmp_path: Path) -> None:
    nodes = [
        node("Add", ["x", "b"], ["a"], name="first"),
        node("Relu", ["a"], ["b"], name="second"),
        node("Relu", ["b"], ["y"], name="third"),
    ]
    message = graph_error(tmp_path, nodes)
    assert "is part of a cycle: " in message
    assert "'first' -> 'second'" in message or "'second' -> 'first'" in message


def test_value_defined_twice(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["y"], name="a"), node("Neg", ["x"], ["y"], name="b")]
    assert graph_error(tmp_path, nodes) == (
        "model.onnx: node 'b' (Neg): output 'y' is defined twice"
    )


def test_value_named_like_an_input(tmp_path: Path) -> None:
    assert graph_error(tmp_path, [node("Relu", ["x"], ["x"], name="a")]) == (
        "model.onnx: node 'a' (Relu): output 'x' is defined twice"
    )


def test_input_and_initializer_given_twice(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["y"])]
    assert graph_error(tmp_path, nodes, inputs=[X, X]) == (
        "model.onnx: input 'x' is defined twice, expected unique names"
    )
    weight = numpy_helper.from_array(np.ones(3, np.float32), "w")
    assert graph_error(tmp_path, nodes, initializers=[weight, weight]) == (
        "model.onnx: initializer 'w' is defined twice, expected unique names"
    )


# Operators


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (node("Rellu", ["x"], ["y"], name="n"), "unknown operator in domain 'ai.onnx', did you"),
        (
            node("Gelu", ["x"], ["y"], name="n", domain="com.microsft"),
            "unknown domain 'com.microsft', did you mean 'com.microsoft'?",
        ),
        (
            node("Gelu", ["x"], ["y"], name="n", domain="com.microsoft"),
            "domain 'com.microsoft' is not in opset_import",
        ),
    ],
)
def test_unknown_operator(made: onnx.NodeProto, what: str, tmp_path: Path) -> None:
    message = graph_error(tmp_path, [made])
    assert message.startswith(f"model.onnx: node 'n' ({made.op_type}): {what}")


def test_unknown_operator_of_the_runtime(tmp_path: Path) -> None:
    made = node("Geluu", ["x"], ["y"], name="n", domain="com.microsoft")
    assert graph_error(tmp_path, [made], domains={"com.microsoft": 1}) == (
        "model.onnx: node 'n' (Geluu): unknown operator in domain 'com.microsoft', "
        "did you mean 'Gelu'?"
    )


def test_unknown_domain_with_a_version(tmp_path: Path) -> None:
    made = node("Op", ["x"], ["y"], name="n", domain="mine")
    assert graph_error(tmp_path, [made], domains={"mine": 1}) == (
        "model.onnx: node 'n' (Op): unknown domain 'mine', expected sharding rules for it: "
        "--rules FILE.toml"
    )


def test_operator_of_a_later_version(tmp_path: Path) -> None:
    made = node("Gelu", ["x"], ["y"], name="n")
    assert graph_error(tmp_path, [made], opset=19) == (
        "model.onnx: node 'n' (Gelu): operator is not in version 19 of domain 'ai.onnx'"
    )


def test_types_that_do_not_fit(tmp_path: Path) -> None:
    made = node("MatMul", ["x", "x"], ["y"], name="mm")
    assert graph_error(tmp_path, [made]) == (
        "model.onnx: node 'mm' (MatMul): types do not fit: "
        "incompatible dimensions for matrix multiplication"
    )
    made = node("And", ["x", "x"], ["y"], name="both")
    assert graph_error(tmp_path, [made]).startswith("model.onnx: node 'both' (And): types do not")


def test_operator_whose_types_nothing_knows(tmp_path: Path) -> None:
    # ONNX Runtime has the schema, but no kernel on the CPU to load it with.
    made = node("LongformerAttention", ["x"] * 7, ["y"], name="n", domain="com.microsoft")
    made.attribute.extend(
        [helper.make_attribute("num_heads", 1), helper.make_attribute("window", 1)]
    )
    assert graph_error(tmp_path, [made], domains={"com.microsoft": 1}) == (
        "model.onnx: node 'n' (LongformerAttention): the type of 'y' cannot be inferred"
    )


# Types


def test_input_without_type_or_shape(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["y"])]
    assert graph_error(tmp_path, nodes, inputs=[untyped("x")]) == (
        "model.onnx: input 'x' has no type, expected a tensor type with a shape"
    )
    assert graph_error(tmp_path, nodes, inputs=[value("x", F32, None)]) == (
        "model.onnx: input 'x' has no shape, expected sizes or symbolic dimensions"
    )


def test_input_that_is_no_tensor(tmp_path: Path) -> None:
    given = onnx.ValueInfoProto(name="x")
    given.type.map_type.key_type = TensorProto.INT64
    given.type.map_type.value_type.tensor_type.elem_type = F32
    assert graph_error(tmp_path, [node("Relu", ["x"], ["y"])], inputs=[given]) == (
        "model.onnx: input 'x' is not a tensor, expected a tensor, got: map_type"
    )


@pytest.mark.parametrize("number", [0, 99])
def test_unknown_element_type(number: int, tmp_path: Path) -> None:
    given = value("x", F32, [2])
    given.type.tensor_type.elem_type = number
    assert graph_error(tmp_path, [node("Relu", ["x"], ["y"])], inputs=[given]) == (
        f"model.onnx: input 'x' has an unknown element type, expected 1 to 28, got: {number}"
    )


def test_unknown_element_type_of_tensors(tmp_path: Path) -> None:
    tensor = numpy_helper.from_array(np.ones(3, np.float32), "w")
    tensor.data_type = 77
    nodes = [node("Relu", ["w"], ["y"])]
    assert graph_error(tmp_path, nodes, initializers=[tensor]) == (
        "model.onnx: initializer 'w' has an unknown element type, expected 1 to 28, got: 77"
    )
    nodes = [node("Constant", [], ["y"], name="c", value=tensor)]
    assert "node 'c' (Constant) has an unknown element type" in graph_error(tmp_path, nodes)


def sparse(indices: Any, dims: Sequence[int] = (2, 3)) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([2.0, 3.0], np.float32), "s")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(indices, "i"), dims)


@pytest.mark.parametrize(
    ("indices", "dims"),
    [([0], [2, 3]), ([0, 6], [2, 3]), ([-1, 0], [2, 3]), ([0, 1], [-2, 3]), ([0, 1], [1 << 40]),
     ([[0, 0], [2, 0]], [2, 3]), ([[[0]], [[1]]], [2, 3])],
)  # fmt: skip
def test_a_sparse_tensor_that_does_not_fit(indices: Any, dims: list[int], tmp_path: Path) -> None:
    proto = relu()
    proto.graph.sparse_initializer.append(sparse(np.array(indices), dims))
    assert refused(saved(proto, tmp_path)).startswith(
        "model.onnx: initializer 's' cannot be converted to dense: "
    )


def test_a_sparse_attribute_that_is_no_constant(tmp_path: Path) -> None:
    made = node("Relu", ["x"], ["y"], name="r", held=sparse(np.array([0, 1])))
    assert graph_error(tmp_path, [made]) == (
        "model.onnx: node 'r' (Relu): attribute 'held' is sparse, expected dense tensors"
    )


def test_attribute_of_several_graphs(tmp_path: Path) -> None:
    made = node("Relu", ["x"], ["y"], name="n")
    made.attribute.append(helper.make_attribute("gs", [helper.make_graph([], "g", [], [])]))
    assert graph_error(tmp_path, [made]) == (
        "model.onnx: node 'n' (Relu): attribute 'gs' contains several graphs, expected one value"
    )


def test_constant_without_value(tmp_path: Path) -> None:
    assert graph_error(tmp_path, [node("Constant", [], ["y"], name="c")]) == (
        "model.onnx: node 'c' (Constant): expected exactly one attribute, got: 0"
    )


def test_function_that_cannot_be_inlined(tmp_path: Path) -> None:
    body = [node("Loopy", ["a"], ["b"], domain="mine")]
    made = helper.make_function("mine", "Loopy", ["a"], ["b"], body, [helper.make_opsetid("", 20)])
    message = graph_error(
        tmp_path,
        [node("Loopy", ["x"], ["y"], domain="mine", name="n")],
        domains={"mine": 1},
        functions=[made],
    )
    assert message.startswith("model.onnx: ")


# Dimensions


def test_unknown_dimension(tmp_path: Path) -> None:
    assert refused(MODELS / "llama_tiny_dynamic.onnx", dims={"bach": 2}) == (
        "llama_tiny_dynamic.onnx: no symbolic dimension 'bach', expected one of: batch, seq"
    )
    assert refused(MODELS / "bert_tiny.onnx", dims={"batch": 2}).endswith(
        "no symbolic dimension 'batch', all of its sizes are known, expected no --dim"
    )


# External data


def external(**entries: str) -> Callable[[Path], Path]:
    """Make a model whose parameter `w` (3 float32) is external data with these entries."""

    def make(folder: Path) -> Path:
        tensor = onnx.TensorProto(name="w", data_type=F32, dims=[3])
        tensor.data_location = TensorProto.EXTERNAL
        for key, held in entries.items():
            tensor.external_data.add(key=key, value=held)
        return saved(model([node("Add", ["x", "w"], ["y"])], [X], [Y], [tensor]), folder)

    return make


def test_external_data_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(12))
    (tmp_path / "w.bin").chmod(0)
    import_model(external(location="w.bin")(tmp_path))


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        ({"location": "folder.bin"}, "external data '{}folder.bin' is no file, expected one"),
        (
            {"location": "short.bin"},
            "external data file '{}short.bin' is too short, expected at least 12 bytes, got: 8",
        ),
        (
            {"location": "short.bin", "offset": "x"},
            "external data has a bad offset, expected a number, got: 'x'",
        ),
        (
            {"location": "short.bin", "offset": "9" * 5000},
            f"external data has a bad offset, expected a number, got: '{'9' * 40}'",
        ),
        ({"location": "circle.bin"}, "external data file '{}circle.bin' cannot be reached"),
        (
            {"location": "short.bin", "length": "8"},
            "has the wrong length, expected 12 bytes, got: 8",
        ),
        (
            {"location": "missing.bin", "length": "8"},
            "has the wrong length, expected 12 bytes, got: 8",
        ),
        (
            {"location": "missing.bin", "offset": "x"},
            "external data has a bad offset, expected a number, got: 'x'",
        ),
    ],
)
def test_external_data(entries: dict[str, str], what: str, tmp_path: Path) -> None:
    (tmp_path / "short.bin").write_bytes(bytes(8))
    (tmp_path / "circle.bin").symlink_to("circle.bin")
    (tmp_path / "folder.bin").mkdir()
    message = refused(external(**entries)(tmp_path))
    assert message == f"model.onnx: parameter 'w': {what.format('')}"


def test_missing_external_data_is_recorded(tmp_path: Path) -> None:
    module = import_model(external(location="a/w.bin")(tmp_path))
    assert MISSING.of(module.operation.attributes) == ["a/w.bin"]


def test_a_literal_in_a_missing_file(tmp_path: Path) -> None:
    shape = onnx.TensorProto(name="s", data_type=I64, dims=[2])
    shape.data_location = TensorProto.EXTERNAL
    shape.external_data.add(key="location", value="s.bin")
    branch = helper.make_graph([node("Reshape", ["x", "s"], ["t"], name="inner")], "b", [], [Y])
    branch.output[0].name = "t"
    choice = node("If", ["c"], ["y"], then_branch=branch, else_branch=branch, name="if")
    for nodes, reader in (
        ([node("Reshape", ["x", "s"], ["y"], name="r")], "r"),
        ([choice], "inner"),
    ):
        inputs = [X, value("c", BOOL, [])]
        assert graph_error(tmp_path, nodes, inputs=inputs, initializers=[shape]) == (
            f"model.onnx: node '{reader}' (Reshape): needs the values of 's' in the external data "
            "file 's.bin', which does not exist, expected it on disk"
        )


def test_a_number_that_is_trained_may_be_missing(tmp_path: Path) -> None:
    tensor = onnx.TensorProto(name="b", data_type=F32, dims=[1])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="b.bin")
    proto = model([node("Add", ["x", "b"], ["y"], name="add")], [X], [Y], [tensor])
    path = saved(proto, tmp_path)
    assert MISSING.of(import_model(path, training=True).operation.attributes) == ["b.bin"]
    assert refused(path).startswith("model.onnx: node 'add' (Add): needs the values of 'b'")


@pytest.mark.parametrize("content", [None, bytes(12), bytes(4)])
def test_sparse_values_are_read_from_the_folder_of_the_model(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from the working directory, even if it has a file of that name."""
    (tmp_path / "in").mkdir()
    (tmp_path / "v.bin").write_bytes(bytes(12))
    monkeypatch.chdir(tmp_path)
    proto = model([node("Add", ["x", "v"], ["y"])], [X], [Y])
    held = onnx.TensorProto(name="v", data_type=F32, dims=[3])
    held.data_location = TensorProto.EXTERNAL
    held.external_data.add(key="location", value="v.bin")
    at = numpy_helper.from_array(np.array([0, 1, 5]), "at")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(held, at, [2, 3]))
    path = saved(proto, tmp_path / "in")
    if content is not None:
        (tmp_path / "in" / "v.bin").write_bytes(content)
    if content == bytes(12):
        assert "tensor<2x3xf32>" in str(import_model(path))
    else:
        problem = "does not exist" if content is None else "is too short"
        assert f"parameter 'v': external data file 'v.bin' {problem}" in refused(path)


@pytest.mark.parametrize(
    "location", ["", "/etc/passwd", "../w.bin", "a/../../w.bin", "..\\w.bin", "\0"]
)
def test_external_data_elsewhere(location: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(12))
    assert refused(external(location=location)(tmp_path / "in")) == (
        "model.onnx: parameter 'w': external data must be in the model's folder, "
        f"expected a plain relative path, got: '{location}'"
    )


@pytest.mark.parametrize("exists", [True, False])
def test_external_data_behind_a_link(exists: bool, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    if exists:
        (tmp_path / "w.bin").write_bytes(bytes(12))
    (tmp_path / "in" / "link.bin").symlink_to(tmp_path / "w.bin")
    assert refused(external(location="link.bin")(tmp_path / "in")) == (
        "model.onnx: parameter 'w': external data must be in the model's folder, "
        "but 'link.bin' is a link that leaves it"
    )


def test_a_download_cache_links_model_and_data_into_one_folder(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    external(location="w.bin")(blobs).rename(blobs / "1234")
    (blobs / "5678").write_bytes(bytes(12))
    (snapshot / "m.onnx").symlink_to("../blobs/1234")
    (snapshot / "w.bin").symlink_to("../blobs/5678")
    assert import_model(snapshot / "m.onnx").operation.verify()


def test_inline_data_of_the_wrong_length(tmp_path: Path) -> None:
    tensor = onnx.TensorProto(name="w", data_type=F32, dims=[3], raw_data=bytes(8))
    proto = model([node("Add", ["x", "w"], ["y"])], [X], [Y], [tensor])
    assert refused(saved(proto, tmp_path)) == (
        "model.onnx: parameter 'w': has the wrong length, expected 12 bytes, got: 8"
    )


def test_large_inline_data_of_the_wrong_length(tmp_path: Path) -> None:
    tensor = onnx.TensorProto(name="w", data_type=F32, dims=[3], raw_data=bytes(80_000))
    proto = model([node("Add", ["x", "w"], ["y"])], [X], [Y], [tensor])
    assert refused(saved(proto, tmp_path)) == (
        "model.onnx: parameter 'w': has the wrong length, expected 12 bytes, got: 80000"
    )


def test_literal_of_the_wrong_length(tmp_path: Path) -> None:
    tensor = onnx.TensorProto(name="w", data_type=BOOL, dims=[3], raw_data=bytes(2))
    proto = model([node("Not", ["w"], ["y"])], [], [Y], [tensor])
    assert refused(saved(proto, tmp_path)).startswith("model.onnx: tensor 'w' cannot be read: ")


def test_tensor_attributes_that_are_no_literals(tmp_path: Path) -> None:
    shape = numpy_helper.from_array(np.ones(1, np.int64), "s")
    complex_one = numpy_helper.from_array(np.ones(1, np.complex64), "v")
    made = node("ConstantOfShape", ["s"], ["y"], name="c", value=complex_one)
    assert graph_error(tmp_path, [made], initializers=[shape]).startswith(
        "model.onnx: node 'c' (ConstantOfShape): "
    )
    far = onnx.TensorProto(name="v", data_type=F32, dims=[1], data_location=TensorProto.EXTERNAL)
    made = node("ConstantOfShape", ["s"], ["y"], name="c", value=far)
    assert graph_error(tmp_path, [made], initializers=[shape]) == (
        "model.onnx: node 'c' (ConstantOfShape): tensor attribute has external or very large "
        "data, expected a literal"
    )


def test_maps_are_answered_with_the_flag_of_their_exporter(tmp_path: Path) -> None:
    maps = node("ZipMap", ["x"], ["y"], name="z", domain="ai.onnx.ml", classlabels_int64s=[0, 1])
    proto = model([maps], [value("x", F32, [3, 2])], [untyped("y")], domains={"ai.onnx.ml": 3})
    assert refused(saved(proto, tmp_path)).endswith(
        "node 'z' (ZipMap): returns a sequence of maps, expected tensors: export with zipmap=False "
        "(options={'zipmap': False} of skl2onnx)"
    )


def test_constants_without_a_valid_value(tmp_path: Path) -> None:
    for attributes in ({"value": 3}, {"value_int": [3]}, {"valeu": 3.0}):
        made = node("Constant", [], ["y"], name="c", **attributes)
        message = graph_error(tmp_path, [made])
        assert f"node 'c' (Constant): attribute '{next(iter(attributes))}' of type " in message
        assert message.endswith(
            "expected one of: value, value_float, value_floats, value_int, "
            "value_ints, value_string, value_strings"
        )
    without = node("Constant", [], [], name="c", value_int=3)
    assert graph_error(tmp_path, [without, node("Relu", ["x"], ["y"])]) == (
        "model.onnx: node 'c' (Constant): expected exactly one result, got: 0"
    )
