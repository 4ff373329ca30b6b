"""The gradient of an embedding splits where the embedding does: tokens, rows and widths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from training.simulated import points, relative_error
from training.steps import build, model_of, spec_of

from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.search.problem.clusters import clusters_of
from tensoropt.compiler.search.problem.following import follow
from tensoropt.compiler.search.problem.reader import read_graph
from tensoropt.compiler.sharding.rule.strategies import axis_roles, placements
from tensoropt.dialects.mlir import ir

BATCH, TIME, ROWS, WIDTH = 4, 8, 16, 12


def step(folder: Path) -> ir.Module:
    """Return the step of a model that looks rows up, tied to the product of its end."""
    rng = np.random.default_rng(0)
    nodes = [
        ("Gather", ["table", "ids"], "rows", {}),
        ("MatMul", ["rows", "w"], "h", {}),
        ("Transpose", ["table"], "turned", {"perm": [1, 0]}),
        ("MatMul", ["h", "turned"], "y", {}),
    ]
    weights = {
        "table": rng.standard_normal((ROWS, WIDTH)),
        "w": rng.standard_normal((WIDTH, WIDTH)),
    }
    held = {name: array.astype(np.float32) / 4 for name, array in weights.items()}
    inputs = {"ids": np.zeros((BATCH, TIME), np.int64)}
    path = folder / "model.onnx"
    path.write_bytes(model_of(nodes, inputs, ["y"], held).SerializeToString())
    return build(path, spec_of("softmax-cross-entropy:y,labels"))


def test_it_follows_the_embedding_along_every_loop(tmp_path: Path) -> None:
    graph = read_graph(step(tmp_path))
    cluster = next(c for c in clusters_of(graph) if graph.nodes[c.leader].name == "rows")
    rule, members = graph.nodes[cluster.leader].rule, cluster.members[1:]
    assert rule is not None
    (adding,) = (m for m in members if graph.nodes[m].name.endswith("ScatterND"))
    own = graph.nodes[adding].rule
    assert own is not None
    found = {}
    for role in axis_roles(rule):
        followed = dict(zip(members, follow(graph, cluster.leader, members, role), strict=True))
        given = " ".join(map(str, placements(rule, role)[0]))
        found[given] = str(placements(own, followed[adding])[1][0])
    assert found["R S(0)"] == found["R S(1)"] == "P(sum)"  # batch, time
    assert found["S(1) R"] == "S(1)"  # width
    assert found["S(0) R"] == "S(0)"  # rows


@pytest.mark.parametrize("mesh", [Mesh((2,)), Mesh((2, 2))], ids=str)
def test_random_plans_compute_the_same_step(tmp_path: Path, mesh: Mesh) -> None:
    for seed in range(2):
        (point,) = points(step(tmp_path), mesh, name="random", seed=seed)
        assert relative_error(lambda: step(tmp_path), point) < 1e-4
