"""A CNN trained on ranks that have parts of its images, in height and width."""

from __future__ import annotations

from pathlib import Path

import onnx
from sweep_train import Case
from train_plans import Plan, trained, write_plan
from train_runs import difference

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.search.frontier.points import fastest

STEPS = 3


STAGES = ("stem", "stage0", "stage1", "stage2")


def split(case: Case, mesh: str, layout: str) -> Plan:
    """Return the fastest plan whose convolutions give images that lie so."""
    pins = tuple(f"{stage}/*conv={layout}" for stage in STAGES)
    request = Request(mesh=mesh, search="pase", pins=pins, model=str(case.path))
    module = trained(case.path, case.recipe, "none")
    found = driver.frontier(module, request)
    return Plan("split", case.recipe, request, found, fastest(found.points))


def test_losses_are_those_of_pytorch(tmp_path: Path) -> None:
    case = Case("cnn", tmp_path, STEPS)
    directory = write_plan(case.path, split(case, "2x2", "[S(2), S(3)]"), tmp_path)
    run = case.run(directory)
    assert difference(run.losses, case.torch()) < 1e-5
    nodes = onnx.load(directory / "rank0.onnx", load_external_data=False).graph.node
    assert sum(node.op_type == "CollectivePermute" for node in nodes) > 2 * len(STAGES)
