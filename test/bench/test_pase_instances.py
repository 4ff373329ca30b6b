"""Cost tables from a checkout, here a stand-in of two ops with PaSE's interface."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from search.pase_instances import build_graph, tables_of

from tensoropt.compiler.cli.instance import load_instance

OPS = """
import networkx as nx
import numpy as np
import pandas as pd

GRAPH = nx.DiGraph()

class Op:
    def __init__(self, dom, configs, ins, in_configs, out, out_configs, costs):
        self.dom, self.dom_configs = dom, np.array(configs)
        self.in_tsrs, self.in_tsr_configs = ins, in_configs
        self.out_tsrs, self.out_tsr_configs = (out,), (out_configs,)
        costs = pd.Series(costs, index=None, name="cost")
        GRAPH.add_node(GRAPH.number_of_nodes(), op=self, costs=costs)
"""
GRAPH = """
import numpy as np
import pandas as pd
from nn_ops import GRAPH, Op

def CreateGraph(name, batch, hidden, devices, flops, bandwidth):
    print(name)
    assert GRAPH.number_of_nodes() == 0  # a fresh one each time
    product = np.array([[1, 1, 1], [1, devices, 1], [1, 1, devices]])
    Op((6, 8, 4), product, [(6, 4)], [product[:, [0, 2]]], (6, 8), product[:, :2], np.arange(3.0))
    copy = np.array([[1, 1], [1, devices]])
    Op((6, 8), copy, [(6, 8)], [copy], (6, 8), copy, 0)
    GRAPH.add_edge(0, 1, costs=pd.Series(np.arange(6.0), index=pd.MultiIndex.from_product([1, 2])))
    assert 1 in GRAPH
    return GRAPH
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "nn_ops.py").write_text(OPS)
    (tmp_path / "graph.py").write_text(GRAPH)
    return tmp_path


def test_tables(checkout: Path) -> None:
    arrays = tables_of(build_graph(checkout, "rnnlm", 2))
    assert arrays["domain"].tolist() == [3, 2]
    assert arrays["edges"].tolist() == [[0, 1]]
    assert arrays["time_0"].tolist() == [0, 1, 2]
    assert arrays["time_1"].tolist() == [0, 0]
    assert arrays["edge_0"].tolist() == [[0, 1], [2, 3], [4, 5]]
    # 6 x 8 outputs of 4 bytes and 8 x 4 weights of 12, divided by their splits
    assert arrays["memory_0"].tolist() == [192 + 384, 96 + 192, 192 + 192]
    assert arrays["memory_1"].tolist() == [192, 96]


def test_the_file_is_an_instance(checkout: Path, tmp_path: Path) -> None:
    path = tmp_path / "tables.npz"
    np.savez(path, **tables_of(build_graph(checkout, "rnnlm", 2)))  # type: ignore[arg-type]
    problem = load_instance(path)
    assert problem.cost([2, 1]).time == 2 + 0 + 5


def test_nothing_of_the_checkout_stays(checkout: Path) -> None:
    before = {name: sys.modules.get(name) for name in ("networkx", "pandas", "nn_ops", "graph")}
    path = list(sys.path)
    build_graph(checkout, "rnnlm", 2)
    build_graph(checkout, "rnnlm", 4)
    assert {name: sys.modules.get(name) for name in before} == before
    assert sys.path == path
