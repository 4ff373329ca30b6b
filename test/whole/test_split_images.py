"""A CNN trained on ranks that have parts of its images, in height, width or both."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from sweep_train import Case
from train_plans import Plan, trained, write_plan
from train_runs import difference

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.search.frontier.points import fastest
from tensoropt.compiler.search.frontier.request import Request

STEPS = 3


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case("cnn", tmp_path_factory.mktemp("cnn"), STEPS)


@pytest.fixture(scope="module")
def losses(case: Case) -> list[float]:
    return case.torch()


def split(case: Case, mesh: str, layout: str, stages: tuple[str, ...]) -> Plan:
    """Return the fastest plan whose convolutions of these stages give images that lie so."""
    pins = tuple(f"{stage}/*conv={layout}" for stage in stages)
    request = Request(mesh=mesh, search="pase", pins=pins, model=str(case.path))
    module = trained(case.path, case.recipe, "none")
    found = driver.frontier(module, request)
    return Plan("split", case.recipe, request, found, fastest(found.points))


@pytest.mark.parametrize(
    ("mesh", "layout", "stages"),
    [
        ("2x2", "[S(2), S(3)]", ("stem", "stage0", "stage1", "stage2")),
        ("2", "S(3)", ("stem", "stage0", "stage1")),
    ],
)
def test_losses_are_those_of_pytorch(
    case: Case,
    losses: list[float],
    mesh: str,
    layout: str,
    stages: tuple[str, ...],
    tmp_path: Path,
) -> None:
    directory = write_plan(case.path, split(case, mesh, layout, stages), tmp_path)
    run = case.run(directory)
    assert difference(run.losses, losses) < 1e-5
    nodes = onnx.load(directory / "rank0.onnx", load_external_data=False).graph.node
    assert sum(node.op_type == "CollectivePermute" for node in nodes) > 2 * len(stages)
