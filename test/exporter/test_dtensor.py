"""The placements of a plan in PyTorch: each of its ranks has what the rank of the plan has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper, numpy_helper

from tensoropt.compiler.cli.opt import main
from tensoropt.compiler.exporter.standard.dtensor import placement_of
from tensoropt.compiler.layout.mesh import axis_names
from tensoropt.compiler.reshard.steps import layouts_of_rank
from tensoropt.runtime.layout.layout import Layout, split
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.layout.mesh_layout import MeshLayout
from tensoropt.runtime.support.errors import UserError

torch = pytest.importorskip("torch")

MODEL = Path(__file__).parents[1] / "models" / "gpt2_tiny.onnx"

Arrays = dict[str, npt.NDArray[np.generic]]


def _arrays(path: Path) -> Arrays:
    proto = onnx.load(path)
    return {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}


def _parts(said: dict[str, Any], rank: int, whole: Arrays) -> Arrays:
    """Return what PyTorch gives a rank; no other one is there, so each cuts its own parts."""
    from torch import distributed
    from torch.distributed import tensor as dtensor
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    shape, names = said["mesh"]["shape"], said["mesh"]["dim_names"]
    distributed.init_process_group(
        "fake", store=FakeStore(), rank=rank, world_size=int(np.prod(shape))
    )
    try:
        mesh = init_device_mesh("cpu", tuple(shape), mesh_dim_names=tuple(names))
        parts = {}
        for name, array in whole.items():
            placements = [getattr(dtensor, kind)(**made) for kind, made in said["parameters"][name]]
            given = torch.from_numpy(array.copy())
            laid = dtensor.distribute_tensor(given, mesh, placements, src_data_rank=None)
            parts[name] = laid.to_local().numpy()
        return parts
    finally:
        distributed.destroy_process_group()


def test_dtensor_has_every_order_of_axes_and_equal_blocks() -> None:
    mesh = Mesh((2, 3, 2))
    layouts = {str(x): x for x in layouts_of_rank(2, mesh, (), {1: [split(1, (1, 1))]})}
    whole = {name: np.arange(24 * 24).reshape(24, 24) for name in layouts}
    said = {
        "mesh": {"shape": list(mesh.shape), "dim_names": list(axis_names(mesh.axes))},
        "parameters": {
            name: [placement_of(layout, axis, mesh) for axis in mesh.axes]
            for name, layout in layouts.items()
        },
    }
    for rank in (3, 8):
        for name, part in _parts(said, rank, whole).items():
            wanted = MeshLayout(mesh, layouts[name]).part_of(whole[name], rank)
            np.testing.assert_array_equal(part, wanted, err_msg=name)


def test_dtensor_has_no_units() -> None:
    with pytest.raises(UserError, match=r"expected parts of any size, got: S\(0 in 5\)"):
        placement_of(Layout.parse(["S(0 in 5)"]), 0, Mesh((2,)))


def test_axes_of_dtensor_divide_a_dimension(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It cuts each part again and rounds up, which is another split of 63 words."""
    weight = numpy_helper.from_array(np.zeros((8, 63), np.float32), "w")
    ends = [helper.make_tensor_value_info(n, 1, [4, m]) for n, m in (("x", 8), ("y", 63))]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [weight])
    opset = [helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    flags = ["--mesh", "2x2", "--pin", "w=S(1)", "--dtensor", str(tmp_path / "placements.json")]
    assert main([str(tmp_path / "m.onnx"), *flags]) == 1
    wanted = "--dtensor: 'w': expected a size that the axes divide, got: [S(1), S(1)] of 63"
    assert capsys.readouterr().err.endswith(f"error: {wanted}\n")


def test_ranks_of_pytorch_have_the_parts_of_a_plan(tmp_path: Path) -> None:
    path, plan = tmp_path / "placements.json", tmp_path / "plan"
    flags = [
        "--mesh",
        "2x2",
        "--search",
        "pase",
        "--pin",
        "m.transformer.h.*.mlp.c_fc.weight=S(1)@x,S(0)@y",
    ]
    flags += ["--pin", "m.transformer.h.*.mlp.c_proj.weight=S(0)"]
    assert main([str(MODEL), *flags, "--dtensor", str(path), "-o", str(plan)]) == 0
    said = json.loads(path.read_text())
    assert said["mesh"] == {"shape": [2, 2], "dim_names": ["x", "y"]}
    assert said["parameters"]["m.transformer.h.0.mlp.c_fc.weight"] == [
        ["Shard", {"dim": 1}],
        ["Shard", {"dim": 0}],
    ]

    ranks = [_arrays(plan / f"rank{rank}.onnx") for rank in range(4)]
    whole = {
        name: array
        for name, array in _arrays(MODEL).items()
        if name in said["parameters"] and all(name in own for own in ranks)
    }
    assert len(whole) > 10
    for rank, own in enumerate(ranks):
        for name, part in _parts(said, rank, whole).items():
            np.testing.assert_array_equal(part, own[name], err_msg=name)
