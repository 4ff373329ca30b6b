"""Training steps of the benchmark models, compiled at tiny sizes, and their tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from compilation import train_frontiers
from compilation.train_frontiers import (
    SIZES,
    Compiled,
    compile_step,
    frontier_table,
    phases_table,
    state_cuts,
)
from search import table_two
from search_graphs import training_graph
from tiny import TINY

from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.search.frontier.search import SearchOptions
from tensoropt.runtime.layout.mesh import Mesh

DEVICES = 2


def _compiled(name: str) -> Compiled:
    sizes: dict[str, Any] = {**TINY[name], "dtype": "float32"}
    options = SearchOptions(epsilon=0.2, points=5)
    return compile_step(name, sizes, Mesh((DEVICES,)), load_device("h200"), options)


@pytest.mark.parametrize("name", [name for name in SIZES if name != "inception_v3"])
def test_steps_compile_to_a_frontier(name: str) -> None:
    held = _compiled(name)
    for point in held.picks.values():
        cuts = state_cuts(point)
        assert cuts.keys() == {"parameters", "moments"}
        assert all(1 <= ways <= DEVICES + 1e-9 for ways in cuts.values())
    assert state_cuts(held.picks["leanest"])["moments"] > 1.5
    for lines in (phases_table([held]), frontier_table([held]), train_frontiers.cuts_table([held])):
        assert len({line.count("|") for line in lines.splitlines()}) == 1
    assert "||" not in train_frontiers.cuts_table([held]).replace(" ", "")


def test_the_table_beside_pase_is_of_training_steps() -> None:
    tiny = [replace(m, sizes=TINY[m.name]) for m in train_frontiers.PASE if m.name == "lstm"]
    lines = table_two.table(tiny, training_graph, "training").splitlines()
    assert lines[0].endswith("| ours, training |")
    assert len(lines) == 3 + len(tiny[0].groups)
