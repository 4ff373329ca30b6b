"""ONNX's multi-device annotations: written, read back in, made by others, and refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper

from tensoropt.compiler.cli.opt import main
from tensoropt.compiler.importer.annotations import check_annotations, read_annotations
from tensoropt.compiler.protos.sharding_specs import layout_of, shard_devices, spec_of
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

MODELS = Path(__file__).parents[1] / "models"

Edit = Callable[[onnx.ModelProto], None]


@pytest.mark.parametrize("shape", [(2,), (4,), (2, 2), (4, 2), (2, 2, 2), (1, 2)])
def test_a_layout_is_that_of_its_spec(shape: tuple[int, ...]) -> None:
    """And each device has the boxes that its rank has."""
    mesh = Mesh(shape)
    texts = [("R",) if extent == 1 else ("R", "S(0)", "S(1 of 2)") for extent in shape]
    for placements in itertools.product(*texts):
        layout = Layout.parse(placements)
        spec = spec_of("t", (16, 16), layout, mesh)
        assert layout_of(spec, 2, mesh) == layout
        boxes = {rank: layout.local_boxes((16, 16), mesh, rank) for rank in range(mesh.size)}
        for group in shard_devices(spec):
            assert len({str(boxes[rank]) for rank in group}) == 1


def test_devices_that_are_not_those_of_a_mesh_are_no_layout() -> None:
    spec = spec_of("t", (16,), Layout.parse(["S(0)", "R"]), Mesh((2, 2)))
    spec.index_to_device_group_map[0].value[:] = [0, 3]
    spec.index_to_device_group_map[1].value[:] = [1, 2]
    assert layout_of(spec, 1, Mesh((2, 2))) is None


@pytest.fixture(scope="module")
def annotated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Megatron's GPT-2 on two devices."""
    path = tmp_path_factory.mktemp("annotated") / "gpt2.onnx"
    flags = ["--mesh", "2", "--search", "expert", "--forbid", "node:*=partial"]
    assert main([str(MODELS / "gpt2_tiny.onnx"), *flags, "--annotations", str(path)]) == 0
    return path


def _layouts(plan: Path) -> object:
    """Return what annotations say; how a weight of several readers is stored is not among it."""
    document = json.loads((plan / "plan.json").read_text())
    return document["mesh"], document["strategies"]


def test_a_plan_comes_back_from_its_annotations(annotated: Path, tmp_path: Path) -> None:
    """Through onnx and through onnx-ir, as the same plan."""
    model = str(MODELS / "gpt2_tiny.onnx")
    flags = ["--mesh", "2", "--search", "expert", "--forbid", "node:*=partial"]
    assert main([model, *flags, "-o", str(tmp_path / "first")]) == 0
    saved = tmp_path / "saved.onnx"
    onnx_ir.save(onnx_ir.load(annotated), saved)
    for number, path in enumerate((annotated, saved)):
        folder = tmp_path / str(number)
        assert main([model, "--pins", str(path), "-o", str(folder)]) == 0
        assert _layouts(folder) == _layouts(tmp_path / "first")


def test_annotations_are_valid_and_leave_the_model_as_it_is(annotated: Path) -> None:
    assert check_annotations(annotated) == ([], 80)
    before, after = onnx.load(MODELS / "gpt2_tiny.onnx"), onnx.load(annotated)
    onnx.checker.check_model(after)
    assert after.ir_version >= 11
    del after.configuration[:]
    after.ir_version = before.ir_version
    for node in after.graph.node:
        del node.device_configurations[:]
    assert after == before


def test_any_plan_without_partial_sums_that_are_read_comes_back(tmp_path: Path) -> None:
    """A random one on two axes, which no person would write."""
    model = str(MODELS / "gpt2_tiny.onnx")
    path, first, again = tmp_path / "a.onnx", tmp_path / "first", tmp_path / "again"
    flags = ["--mesh", "2x2", "--search", "random", "--seed", "0"]
    flags += ["--forbid", "node:*=partial", "--annotations", str(path)]
    assert main([model, *flags, "-o", str(first)]) == 0
    assert main([model, "--search", "pase", "--pins", str(path), "-o", str(again)]) == 0
    assert _layouts(again) == _layouts(first)


def _mlp() -> onnx_ir.Model:
    """``y = Relu(x w1) w2`` of 8x16, batch 8."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="second"),
    ]
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, [16, 16], [0.25] * 256) for name in ("w1", "w2")
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [8, 16]) for n in ("x", "y")]
    hidden = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [8, 16]) for n in ("h", "r")]
    graph = helper.make_graph(nodes, "mlp", ends[:1], ends[1:], weights, value_info=hidden)
    opsets = [helper.make_opsetid("", 20)]
    return onnx_ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=11))


def _plan(model: onnx_ir.Model, folder: Path) -> dict[str, dict[str, list[list[str]]]]:
    """Compile what the annotations of ``model`` say; return the strategies by node."""
    path = folder / "model.onnx"
    onnx_ir.save(model, path)
    assert check_annotations(path)[0] == []
    assert main([str(path), "--pins", str(path), "-o", str(folder / "plan")]) == 0
    rows = json.loads((folder / "plan" / "plan.json").read_text())["strategies"]
    return {row["node"]: row for row in rows}


def test_a_model_that_others_annotated_is_compiled_to_what_it_says(tmp_path: Path) -> None:
    """Megatron's scheme on two devices, by onnx-ir's own functions."""
    model = _mlp()
    devices = model.add_device_configuration("two", num_devices=2)
    first, _, second = model.graph
    shard = {"configuration": devices, "num_shards": 2, "device_indices": (0, 1)}
    first.shard(first.inputs[1], axis=1, **shard)
    second.shard(second.inputs[1], axis=-2, **shard)
    rows = _plan(model, tmp_path)
    assert rows["first"]["operands"] == [["R"], ["S(1)"]]
    assert rows["second"]["operands"] == [["S(1)"], ["S(0)"]]
    assert rows["second"]["results"] == [["P(sum)"]]


def test_two_axes_that_others_annotated(tmp_path: Path) -> None:
    """A weight split along both dimensions, as onnx-ir's guide does it for a 2x2 mesh."""
    model = _mlp()
    devices = model.add_device_configuration("mesh2x2", num_devices=4)
    first = model.graph[0]
    for axis in (0, 1):
        first.shard(
            first.inputs[1],
            configuration=devices,
            axis=axis,
            num_shards=2,
            device_indices=(0, 1, 2, 3),
        )
    assert _plan(model, tmp_path)["first"]["operands"][1] == ["S(0)", "S(1)"]


def _of(edit: Edit, folder: Path) -> Path:
    """Save a valid model, on which ``edit`` was at work."""
    model = _mlp()
    devices = model.add_device_configuration("two", num_devices=2)
    first = model.graph[0]
    weight = first.inputs[1]
    first.shard(weight, configuration=devices, axis=1, num_shards=2, device_indices=(0, 1))
    proto = onnx_ir.to_proto(model)
    edit(proto)
    onnx.save(proto, folder / "edited.onnx")
    return folder / "edited.onnx"


def _spec(model: onnx.ModelProto) -> onnx.ShardingSpecProto:
    return model.graph.node[0].device_configurations[0].sharding_spec[0]


def _old(model: onnx.ModelProto) -> None:
    model.ir_version = 10


def _no_configuration(model: onnx.ModelProto) -> None:
    del model.configuration[:]


def _few_names(model: onnx.ModelProto) -> None:
    model.configuration[0].device.append("gpu0")


def _other_tensor(model: onnx.ModelProto) -> None:
    _spec(model).tensor_name = "r"


def _far_axis(model: onnx.ModelProto) -> None:
    _spec(model).sharded_dim[0].axis = 2


def _axis_twice(model: onnx.ModelProto) -> None:
    _spec(model).sharded_dim.add(axis=-1).simple_sharding.add(num_shards=1)


def _no_shards(model: onnx.ModelProto) -> None:
    _spec(model).sharded_dim[0].simple_sharding[0].num_shards = 0


def _other_size(model: onnx.ModelProto) -> None:
    _spec(model).sharded_dim[0].simple_sharding[0].dim_value = 8


def _far_device(model: onnx.ModelProto) -> None:
    _spec(model).device[1] = 2


def _device_twice(model: onnx.ModelProto) -> None:
    _spec(model).device[1] = 0


def _few_devices(model: onnx.ModelProto) -> None:
    del _spec(model).device[1]


def _tensor_twice(model: onnx.ModelProto) -> None:
    model.graph.node[0].device_configurations[0].sharding_spec.append(_spec(model))


def _negative_stage(model: onnx.ModelProto) -> None:
    model.graph.node[0].device_configurations[0].pipeline_stage = -1


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (_old, "expected IR version 11 or later with annotations, got: 10"),
        (
            _no_configuration,
            "node 'first': expected a configuration of the model, none, got: 'two'",
        ),
        (_few_names, "configuration 'two': expected 2 device names, got: 1"),
        (_other_tensor, "node 'first': expected an operand or result of the node, got: 'r'"),
        (_far_axis, "tensor 'w1': expected an axis from -2 to 1, got: 2"),
        (_axis_twice, "tensor 'w1': axis '1' appears 2 times, expected once"),
        (_no_shards, "tensor 'w1': axis 1: expected at least 1 shard, got: 0"),
        (_other_size, "tensor 'w1': axis 1: expected size 16, got: 8"),
        (_far_device, "tensor 'w1': expected a device from 0 to 1, got: 2"),
        (_device_twice, "tensor 'w1': device '0' appears 2 times, expected once"),
        (_few_devices, "tensor 'w1': expected a device or a group for each of 2 shards, got: 1"),
        (_tensor_twice, "node 'first': tensor 'w1' appears 2 times, expected once"),
        (_negative_stage, "node 'first': expected a pipeline stage from 0, got: -1"),
    ],
)
def test_annotations_that_are_invalid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], edit: Edit, message: str
) -> None:
    path = _of(edit, tmp_path)
    assert any(message in line for line in check_annotations(path)[0])
    assert main([str(path), "--check-annotations"]) == 1
    assert f"error: {path}: " in capsys.readouterr().err
    assert main([str(path), "--pins", str(path)]) == 1


def _uneven(model: onnx.ModelProto) -> None:
    model.configuration[0].num_devices = 3
    _spec(model).device.append(2)
    _spec(model).sharded_dim[0].simple_sharding[0].num_shards = 3


def _stages(model: onnx.ModelProto) -> None:
    for stage, node in enumerate(model.graph.node[:2]):
        if not node.device_configurations:
            node.device_configurations.add(configuration_id="two")
        node.device_configurations[0].pipeline_stage = stage


def _some_devices(model: onnx.ModelProto) -> None:
    model.configuration[0].num_devices = 4


def _strided(model: onnx.ModelProto) -> None:
    simple = _spec(model).sharded_dim[0].simple_sharding
    del simple[:]
    simple.add(dim_value=4, num_shards=1)
    simple.add(dim_value=4, num_shards=2)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (_uneven, "tensor 'w1': expected dimension 1 to divide by 3, got: 16"),
        (_stages, "expected no pipeline, as every rank runs every node, got: stages 0, 1"),
        (_some_devices, "tensor 'w1': expected devices in the order of a mesh of all 4"),
        (_strided, "no strategy of 'first' is like that"),
    ],
)
def test_valid_annotations_that_no_plan_can_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], edit: Edit, message: str
) -> None:
    path = _of(edit, tmp_path)
    assert check_annotations(path)[0] == []
    assert main([str(path), "--pins", str(path)]) == 1
    assert message in capsys.readouterr().err


def test_a_model_without_annotations_has_no_pins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(MODELS / "gpt2_tiny.onnx")
    assert main([model, "--pins", model]) == 1
    assert "expected annotations of one configuration, got: none" in capsys.readouterr().err


def test_partial_sums_that_are_read_cannot_be_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, target = tmp_path / "model.onnx", tmp_path / "annotated.onnx"
    onnx_ir.save(_linear(), path)
    nodes = ("node:second=[P(sum)] [R] -> [P(sum)]", "node:first=row")
    pins = [flag for text in nodes for flag in ("--pin", text)]
    assert main([str(path), "--mesh", "2", *pins, "--annotations", str(target)]) == 1
    assert "reads partial sums of 'h', which annotations cannot say" in capsys.readouterr().err
    assert not target.exists()


def _linear() -> onnx_ir.Model:
    """``y = x w1 w2``: the second product may read partial sums."""
    proto = onnx_ir.to_proto(_mlp())
    del proto.graph.node[1]
    proto.graph.node[1].input[0] = "h"
    return onnx_ir.from_proto(proto)


def test_where_annotations_cannot_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    onnx_ir.save(_mlp(), path, external_data="weights.bin")
    elsewhere = tmp_path / "other"
    elsewhere.mkdir()
    assert main([str(path), "--mesh", "2", "--annotations", str(elsewhere / "a.onnx")]) == 1
    assert "the weights are in files next to the model" in capsys.readouterr().err
    assert main([str(path), "--mesh", "2", "--annotations", str(path)]) == 1
    assert "is an input (" in capsys.readouterr().err


def _renamed(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        node.name += " of another model"


def test_annotations_of_another_model_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx_ir.save(_mlp(), tmp_path / "model.onnx")
    assert main([str(tmp_path / "model.onnx"), "--pins", str(_of(_renamed, tmp_path))]) == 1
    told = capsys.readouterr().err
    assert told == "error: --pins: none of the 1 annotated nodes is in the model\n"


def test_annotations_are_not_heeded_unasked(
    annotated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(annotated), "--mesh", "2", "--pick", "leanest"]) == 0
    assert (
        "note: gpt2.onnx has annotations for the configuration '2', which are ignored: "
        "--pins gpt2.onnx takes them as pins"
    ) in capsys.readouterr().err


def test_the_mesh_of_annotations_is_theirs(
    annotated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read_annotations(annotated).mesh == Mesh((2,))
    assert main([str(annotated), "--pins", str(annotated), "--mesh", "2x2"]) == 1
    assert "expected mesh 2 of its annotations, got: 2x2" in capsys.readouterr().err
