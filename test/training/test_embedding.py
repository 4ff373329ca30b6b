"""The gradient of an embedding splits where the embedding does: tokens, rows and widths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from training.simulated import points, relative_error
from training.steps import Step, build, model_of, spec_of

from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.search.problem.clusters import clusters_of
from tensoropt.compiler.search.problem.following import follow
from tensoropt.compiler.sharding.rule.strategies import axis_roles, placements
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.spec import check_rows, parse_rows
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.mesh import Mesh

BATCH, TIME, ROWS, WIDTH = 4, 8, 16, 12


def step(folder: Path, **options: Any) -> ir.Module:
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
    return build(path, spec_of("softmax-cross-entropy:y,labels", **options))


def test_it_follows_the_embedding_along_every_loop(tmp_path: Path) -> None:
    graph = read_graph(step(tmp_path))
    cluster = next(c for c in clusters_of(graph) if graph.nodes[c.leader].name == "rows")
    rule, members = graph.op(cluster.leader).rule, cluster.members[1:]
    (adding,) = (m for m in members if graph.nodes[m].name.endswith("ScatterND"))
    own = graph.op(adding).rule
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
        (point,) = points(step(tmp_path), mesh, seed=seed)
        assert relative_error(lambda: step(tmp_path), point) < 1e-4


def test_frozen_rows_are_those_of_padding_idx(tmp_path: Path) -> None:
    """Three steps of AdamW on a table whose row 3 is padding, in micro-batches, as in PyTorch."""
    rng = np.random.default_rng(1)
    table = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    table[3] = 0
    nodes = [
        ("Gather", ["table", "ids"], "rows", {}),
        ("Mul", ["rows", "rows"], "squares", {}),
        ("ReduceMean", ["squares"], "l", {"keepdims": 0}),
    ]
    ids = rng.integers(0, ROWS, (3, 2, BATCH, TIME))
    ids[..., 0] = 3
    model = model_of(nodes, {"ids": ids[0, 0]}, ["l"], {"table": table})
    held = {"freeze_rows": (("table", (3,)),), "micro_batches": 2}
    made = Step(model, spec_of("output:l", "adamw", weight_decay=0.1, **held), tmp_path)
    embedding = torch.nn.Embedding.from_pretrained(torch.tensor(table), False, padding_idx=3)
    optimizer = torch.optim.AdamW(embedding.parameters(), lr=0.1, weight_decay=0.1)
    for number, batches in enumerate(ids, start=1):
        made.step(*({"ids": batch} for batch in batches), learning_rate=0.1, step=number)
        optimizer.zero_grad()
        for batch in batches:
            ((embedding(torch.tensor(batch)) ** 2).mean() / 2).backward()
        optimizer.step()
    found = made.state["table"]
    np.testing.assert_allclose(found, embedding.weight.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert not found[3].any()


def test_frozen_rows_under_random_plans(tmp_path: Path) -> None:
    held = {"freeze_rows": (("table", (0, -1)),)}
    for seed in range(2):
        (point,) = points(step(tmp_path, **held), Mesh((2,)), seed=seed)
        assert relative_error(lambda: step(tmp_path, **held), point) < 1e-4


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("table=16", "--freeze-rows table=16: expected a row from 0 to 15"),
        ("tabel=0", "--freeze-rows: 'tabel' is not a weight with rows, did you mean 'table'?"),
        ("table", "--freeze-rows: expected NAME=ROW,... such as w=0, got: 'table'"),
    ],
)
def test_rows_that_are_not_there(text: str, line: str) -> None:
    with pytest.raises(UserError) as error:
        check_rows(parse_rows(text), {"table": ROWS, "scale": None})
    assert str(error.value) == line
