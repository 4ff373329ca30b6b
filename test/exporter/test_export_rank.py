"""The graph of one rank: slices of parameters, groups and tokens of collectives, constants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from importer.models import F32, model, node, run, saved, untyped, value
from onnx import numpy_helper

from tensoropt.compiler.exporter.plan_weights import PlanWeights
from tensoropt.compiler.exporter.rank import export_model, export_rank
from tensoropt.compiler.exporter.weights import ParameterSource
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.mesh import Mesh

pytestmark = pytest.mark.usefixtures("mlir_context")

MESH = (2, 3)
W = np.arange(64 * 60, dtype=np.float32).reshape(64, 60)

HEADER = 'module attributes {topt.model = "m.onnx", topt.opset = {ai.onnx = %d : i64}'


def parse(signature: str, body: str, result: str, *, opset: int = 20) -> ir.Module:
    """Return a module on a 2x3 mesh; ``result`` is the type of what it returns."""
    return ir.Module.parse(
        f"""{HEADER % opset}, topt.ir_version = 10 : i64}} {{
          shard.grid @mesh(shape = 2x3)
          func.func @main({signature}) -> ({result} {{topt.name = "y"}}) {{
            {body}
          }}
        }}"""
    )


def layout(*placements: str) -> str:
    texts = ", ".join(f'"{text}"' for text in placements)
    return f"topt.layout = #topt.layout<@mesh, [{texts}]>"


@pytest.fixture
def source(tmp_path: Path) -> ParameterSource:
    """A model file with the parameter `w`, shaped 64x60, and `b`, shaped 6."""
    stored = [
        numpy_helper.from_array(W, "w"),
        numpy_helper.from_array(np.arange(6, dtype=np.float32), "b"),
    ]
    nodes = [node("Identity", ["w"], ["y"]), node("Identity", ["b"], ["z"])]
    proto = model(nodes, [value("x", F32, [1])], [untyped("y"), untyped("z")], stored)
    return ParameterSource(saved(proto, tmp_path))


def exported(
    module: ir.Module, rank: int, folder: Path, source: ParameterSource
) -> onnx.ModelProto:
    with PlanWeights(folder, Mesh(MESH), source) as weights:
        path = export_rank(module, rank, weights)
    assert path == folder / f"rank{rank}.onnx"
    return onnx.load(path)


def held(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


X = 'tensor<6x4xf32> {topt.name = "x", ' + layout("R", "R") + "}"

COLLECTIVES = """
%0 = shard.all_reduce %x on @mesh grid_axes = [0, 1] reduction = max
     : tensor<6x4xf32> -> tensor<6x4xf32> loc("a")
%1 = shard.reduce_scatter %0 on @mesh grid_axes = [1] scatter_dim = 0
     : tensor<6x4xf32> -> tensor<2x4xf32> loc("b")
%2 = shard.all_to_all %1 on @mesh grid_axes = [0] split_axis = 1 concat_axis = 0
     : tensor<2x4xf32> -> tensor<4x2xf32> loc("c")
%3 = shard.all_gather %2 on @mesh grid_axes = [0] gather_axis = 1
     : tensor<4x2xf32> -> tensor<4x4xf32>
return %3 : tensor<4x4xf32>
"""


@pytest.mark.parametrize(
    ("rank", "groups"),
    [
        (0, [[0, 1, 2, 3, 4, 5], [0, 1, 2], [0, 3], [0, 3]]),
        (4, [[0, 1, 2, 3, 4, 5], [3, 4, 5], [1, 4], [1, 4]]),
    ],
)
def test_collectives(
    rank: int, groups: Sequence[Sequence[int]], tmp_path: Path, source: ParameterSource
) -> None:
    module = parse(f"%x: {X}", COLLECTIVES, "tensor<4x4xf32>")
    proto = exported(module, rank, tmp_path, source)
    nodes = proto.graph.node
    assert [n.op_type for n in nodes] == ["AllReduce", "ReduceScatter", "AllToAll", "AllGather"]
    assert {n.domain for n in nodes} == {"tensoropt"}
    assert [n.name for n in nodes] == ["a.AllReduce", "b.ReduceScatter", "c.AllToAll", "AllGather"]
    assert [held(n).pop("group") for n in nodes] == groups

    rest = [{k: v for k, v in held(n).items() if k != "group"} for n in nodes]
    assert rest == [
        {"reduction": b"max"},
        {"dim": 0, "reduction": b"sum"},
        {"split_dim": 1, "concat_dim": 0},
        {"dim": 1},
    ]
    assert {e.domain: e.version for e in proto.opset_import} == {"": 20, "tensoropt": 1}


def test_a_permute_has_the_group_in_its_order(tmp_path: Path, source: ParameterSource) -> None:
    body = """%0 = "topt.collective_permute"(%x) {
        grid_axes = array<i16: 1, 0>, sources = array<i64: 1, 2, 3, 4, 5, 0>}
        : (tensor<6x4xf32>) -> tensor<6x4xf32> loc("a")
    return %0 : tensor<6x4xf32>"""
    proto = exported(parse(f"%x: {X}", body, "tensor<6x4xf32>"), 1, tmp_path, source)
    (node,) = proto.graph.node
    assert (node.op_type, node.name) == ("CollectivePermute", "a.CollectivePermute")
    assert held(node) == {"group": [0, 3, 1, 4, 2, 5], "sources": [1, 2, 3, 4, 5, 0]}


def test_a_token_chains_all_collectives(tmp_path: Path, source: ParameterSource) -> None:
    proto = exported(parse(f"%x: {X}", COLLECTIVES, "tensor<4x4xf32>"), 1, tmp_path, source)
    (first,) = proto.graph.initializer
    assert numpy_helper.to_array(first).tolist() == [0]
    tokens = [first.name] + [n.output[1] for n in proto.graph.node]
    assert [n.input[1] for n in proto.graph.node] == tokens[:-1]
    assert len(set(tokens)) == 5
    types = {v.name: v.type.tensor_type for v in proto.graph.value_info}
    assert [d.dim_value for d in types[proto.graph.node[1].output[0]].shape.dim] == [2, 4]


@pytest.mark.parametrize("opset", [9, 20])
def test_a_slice_takes_the_part_of_the_rank(
    opset: int, tmp_path: Path, source: ParameterSource
) -> None:
    body = """%0 = shard.all_slice %x on @mesh grid_axes = [0, 1] slice_axis = 0
              : tensor<6x4xf32> -> tensor<1x4xf32>
              return %0 : tensor<1x4xf32>"""
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    for rank in range(6):
        module = parse(f"%x: {X}", body, "tensor<1x4xf32>", opset=opset)
        proto = exported(module, rank, tmp_path, source)
        del proto.opset_import[1:]  # the runtime's operators are not loaded here
        path = tmp_path / f"rank{rank}.onnx"
        path.write_bytes(proto.SerializeToString())
        assert np.array_equal(run(path, {"x": x})[0], x[rank : rank + 1])


def test_an_axis_constant_is_that_of_the_rank(tmp_path: Path, source: ParameterSource) -> None:
    body = """%0 = "topt.axis_constant"() {axes = array<i64: 1>,
                values = dense<[[1, 2], [3, 4], [5, 6]]> : tensor<3x2xi64>} : () -> tensor<2xi64>
              return %0 : tensor<2xi64>"""
    for rank, expected in enumerate([[1, 2], [3, 4], [5, 6]] * 2):
        proto = exported(parse("", body, "tensor<2xi64>"), rank, tmp_path, source)
        (constant,) = proto.graph.initializer
        assert numpy_helper.to_array(constant).tolist() == expected
        assert constant.name == "y"


@pytest.mark.parametrize(
    ("placements", "shape"),
    [
        (("R", "R"), "64x60"),
        (("S(0)", "R"), "32x60"),
        (("R", "S(1)"), "64x20"),
        (("S(1)", "S(1)"), "64x10"),
        (("S(0)", "S(1)"), "32x20"),
    ],
)
def test_parameters_are_cut_by_their_layout(
    placements: tuple[str, str], shape: str, tmp_path: Path, source: ParameterSource
) -> None:
    kind = f"tensor<{shape}xf32>"
    signature = f'%w: {kind} {{topt.name = "w", topt.param, {layout(*placements)}}}'
    module = parse(signature, f'%0 = "onnx.Relu"(%w) : ({kind}) -> {kind} return %0 : {kind}', kind)
    parts = {}
    for rank in range(6):
        proto = exported(module, rank, tmp_path, source)
        parts[rank] = numpy_helper.to_array(proto.graph.initializer[0], str(tmp_path))
        assert not proto.graph.input
    rows, columns = (int(size) for size in shape.split("x"))
    for rank, part in parts.items():
        i, j = divmod(rank, 3)
        row = i if placements[0] == "S(0)" else 0
        column = {("S(1)", "S(1)"): rank, ("R", "S(1)"): j, ("S(0)", "S(1)"): j}.get(placements, 0)
        expected = W[row * rows : (row + 1) * rows, column * columns : (column + 1) * columns]
        assert np.array_equal(part, expected)


def test_a_parameter_is_stored_as_it_is_read(tmp_path: Path, source: ParameterSource) -> None:
    """The rank's 32x60 become 60x32 without a node, unless something else reads them too."""
    body = """
        %sizes = "onnx.Constant"() {{value = dense<[60, 32]> : tensor<2xi64>}} : () -> tensor<2xi64>
        %r = "onnx.Reshape"(%w, %sizes) : (tensor<32x60xf32>, tensor<2xi64>) -> tensor<60x32xf32>
        %y = "onnx.{op}"({read}) : ({type}) -> {type}
        return %y : {type}"""
    signature = f'%w: tensor<32x60xf32> {{topt.name = "w", topt.param, {layout("S(0)", "R")}}}'
    for read, kind, shape, nodes in (
        ("%r", "tensor<60x32xf32>", [60, 32], ["Neg"]),
        ("%w", "tensor<32x60xf32>", [32, 60], ["Reshape", "Neg"]),
    ):
        text = body.format(op="Neg", read=read, type=kind)
        proto = exported(parse(signature, text, kind), 3, tmp_path, source)
        stored = next(one for one in proto.graph.initializer if one.name == "w")
        assert list(stored.dims) == shape
        assert [one.op_type for one in proto.graph.node] == nodes
        found = numpy_helper.to_array(stored, str(tmp_path))
        np.testing.assert_array_equal(found, W[32:].reshape(shape))


def test_offsets_are_aligned_and_small_parameters_inline(
    tmp_path: Path, source: ParameterSource
) -> None:
    signature = (
        f'%w: tensor<64x60xf32> {{topt.name = "w", topt.param, {layout("R", "R")}}}, '
        f'%b: tensor<2xf32> {{topt.name = "b", topt.param, {layout("R", "S(0)")}}}'
    )
    body = '%0 = "onnx.Neg"(%b) : (tensor<2xf32>) -> tensor<2xf32> return %0 : tensor<2xf32>'
    exported(parse(signature, body, "tensor<2xf32>"), 5, tmp_path, source)
    assert {path.name for path in (tmp_path / "weights").iterdir()} == {"all.bin"}
    w, b = onnx.load(tmp_path / "rank5.onnx", load_external_data=False).graph.initializer
    assert place_of(w) == {"location": "weights/all.bin", "offset": "0", "length": "15360"}
    assert numpy_helper.to_array(b).tolist() == [4.0, 5.0]


def test_the_second_tensor_starts_on_a_page(tmp_path: Path) -> None:
    stored = [numpy_helper.from_array(np.full(500, i, np.float32), f"w{i}") for i in range(2)]
    proto = model(
        [node("Add", ["w0", "w1"], ["y"])], [value("x", F32, [1])], [untyped("y")], stored
    )
    source = ParameterSource(saved(proto, tmp_path))
    arguments = ", ".join(
        f'%w{i}: tensor<500xf32> {{topt.name = "w{i}", topt.param, {layout("R", "R")}}}'
        for i in range(2)
    )
    body = """%0 = "onnx.Add"(%w0, %w1) : (tensor<500xf32>, tensor<500xf32>) -> tensor<500xf32>
              return %0 : tensor<500xf32>"""
    files = [tmp_path / "rank0.onnx", tmp_path / "weights/all.bin"]
    written = []
    for _ in range(2):
        exported(parse(arguments, body, "tensor<500xf32>"), 0, tmp_path, source)
        written.append([path.read_bytes() for path in files])
    assert written[0] == written[1]
    tensors = onnx.load(files[0], load_external_data=False).graph.initializer
    assert [place_of(t)["offset"] for t in tensors] == ["0", "4096"]


def place_of(tensor: onnx.TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


@pytest.mark.parametrize(
    ("placements", "shape", "names"),
    [
        (("R", "R"), "64x60", ["all"] * 6),
        (("S(0)", "R"), "32x60", ["x=0"] * 3 + ["x=1"] * 3),
        (("R", "S(1)"), "64x20", ["y=0", "y=1", "y=2"] * 2),
        (("S(0)", "S(1)"), "32x20", [f"x={x}.y={y}" for x in range(2) for y in range(3)]),
    ],
)
def test_ranks_with_the_same_part_have_one_file(
    placements: tuple[str, str],
    shape: str,
    names: list[str],
    tmp_path: Path,
    source: ParameterSource,
) -> None:
    """Two graphs of six ranks read what is written once; all files together are the weight."""
    kind = f"tensor<{shape}xf32>"
    signature = f'%w: {kind} {{topt.name = "w", topt.param, {layout(*placements)}}}'
    module = parse(signature, f'%0 = "onnx.Relu"(%w) : ({kind}) -> {kind} return %0 : {kind}', kind)
    with PlanWeights(tmp_path, Mesh(MESH), source) as weights:
        paths = [
            export_rank(module, rank, weights, part)
            for rank in range(len(names))
            for part in ("", ".update")
        ]
    stored = [onnx.load(path, load_external_data=False).graph.initializer[0] for path in paths]
    found = [place_of(one)["location"] for one in stored]
    assert found == [f"weights/{name}.bin" for name in names for _ in range(2)]
    sizes = [(tmp_path / name).stat().st_size for name in set(found)]
    assert sum(sizes) == W.nbytes


def refused(module: ir.Module, folder: Path, source: ParameterSource) -> str:
    with (
        pytest.raises(UserError) as caught,
        PlanWeights(folder, Mesh(MESH), source) as weights,
    ):
        export_rank(module, 0, weights)
    assert not (folder / "rank0.onnx").exists()
    assert not list(folder.glob("weights/*"))
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "attributes", "message"),
    [
        ("64x60", "topt.param", "parameter 'w' has no topt.layout, run partition first"),
        (
            "64x60",
            "topt.param, " + layout("P(sum)", "R"),
            "parameter 'w' is stored whole or split, got: [P(sum), R]",
        ),
        (
            "64x60",
            "topt.param, " + layout("S(0)", "R"),
            "parameter 'w' does not match the weights of the model, expected shape [32, 60], "
            "got: tensor<64x60xf32>",
        ),
    ],
)
def test_parameters_that_do_not_fit(
    kind: str, attributes: str, message: str, tmp_path: Path, source: ParameterSource
) -> None:
    module = parse(
        f'%w: tensor<{kind}xf32> {{topt.name = "w", {attributes}}}',
        f"return %w : tensor<{kind}xf32>",
        f"tensor<{kind}xf32>",
    )
    assert refused(module, tmp_path, source) == message


def test_nothing_is_left_of_a_failed_export(tmp_path: Path, source: ParameterSource) -> None:
    module = parse(
        f'%w: tensor<64x60xf32> {{topt.name = "w", topt.param, {layout("R", "R")}}}',
        """%0 = "other.op"(%w) : (tensor<64x60xf32>) -> tensor<64x60xf32>
           return %0 : tensor<64x60xf32>""",
        "tensor<64x60xf32>",
    )
    message = refused(module, tmp_path, source)
    assert message == "m.onnx: 'other.op' op has no ONNX form at this stage"


def test_an_unpartitioned_export_takes_no_collectives(
    tmp_path: Path, source: ParameterSource
) -> None:
    module = parse(f"%x: {X}", COLLECTIVES, "tensor<4x4xf32>")
    with pytest.raises(UserError, match=r"'shard.all_reduce' op has no ONNX form at this stage"):
        export_model(module, tmp_path / "out.onnx", source)


def test_collectives_in_regions_are_refused(tmp_path: Path, source: ParameterSource) -> None:
    body = """
    %c = "onnx.Constant"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
    %0 = "onnx.If"(%c) ({
      %1 = shard.all_reduce %x on @mesh grid_axes = [0] : tensor<6x4xf32> -> tensor<6x4xf32>
      "onnx.Yield"(%1) : (tensor<6x4xf32>) -> ()
    }, {
      "onnx.Yield"(%x) : (tensor<6x4xf32>) -> ()
    }) {topt.regions = ["else_branch", "then_branch"]} : (tensor<i1>) -> tensor<6x4xf32>
    return %0 : tensor<6x4xf32>"""
    message = refused(parse(f"%x: {X}", body, "tensor<6x4xf32>"), tmp_path, source)
    assert message == "'shard.all_reduce' op is inside a region, expected it in @main"


def test_names_that_clash(tmp_path: Path, source: ParameterSource) -> None:
    two = f"%x: {X}, %z: {X}"
    body = "return %x : tensor<6x4xf32>"
    message = refused(parse(two, body, "tensor<6x4xf32>"), tmp_path, source)
    assert message == "m.onnx: two arguments are named 'x'"
    body = '%0 = "onnx.Neg"(%x) : (tensor<6x4xf32>) -> tensor<6x4xf32> return %0 : tensor<6x4xf32>'
    signature = f"%x: {X}".replace('"x"', '"y"')
    message = refused(parse(signature, body, "tensor<6x4xf32>"), tmp_path, source)
    assert message == "m.onnx: result 'y' has the name of another value"
