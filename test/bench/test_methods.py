"""Methods compared with frontier tracking."""

from __future__ import annotations

from dataclasses import replace

import pytest
from search import methods
from search.local_search import INSTANCES, gaps
from search_graphs import model_graph
from tiny import TINY

from tensoropt.compiler.cli.instance import load_instance
from tensoropt.compiler.cost.device import load_device
from tensoropt.runtime.layout.mesh import Mesh

METHODS = ["ft", "pase", "data-parallel", "expert", "autoddl", "mcmc", "random"]


@pytest.fixture(scope="module")
def case() -> methods.Case:
    given = methods._parser().parse_args(["--methods", *METHODS])
    graph = model_graph("gpt3_13b", **TINY["gpt3_13b"])
    return methods.run_case("gpt", graph, [Mesh((2, 2)), Mesh((4,))], load_device("h200"), given)


def test_nothing_is_violated(case: methods.Case) -> None:
    checks = list(methods.violations(case))
    others = [held.result for name, held in case.attempts.items() if name != "ft"]
    assert len(checks) == 2 * sum(len(found.points) for found in others if found)
    assert not any(wrong for _, _, wrong in checks)
    assert case.mesh == "all"
    assert case.ratio("pase") == pytest.approx(1)


def test_a_worse_frontier_is_found_out(case: methods.Case) -> None:
    drawn = case.attempts["random"]
    assert drawn.result is not None
    claimed = replace(drawn, result=replace(drawn.result, epsilon=0.0))
    worse = methods.Case("gpt", 4, "2x2", {**case.attempts, "ft": claimed})
    wrong = [(method, text) for method, _, text in methods.violations(worse) if text]
    assert {method for method, _ in wrong} >= {"pase", "autoddl"}
    assert any("slower" in text for _, text in wrong)
    assert any("above, bound 0.00%" in text for _, text in wrong)


def test_without_a_bound_only_the_fastest_is_checked(case: methods.Case) -> None:
    unbounded = methods.Case("gpt", 4, "2x2", {**case.attempts, "ft": case.attempts["random"]})
    texts = [text for _, _, text in methods.violations(unbounded)]
    assert len(texts) * 2 == len(list(methods.violations(case))) and any(texts)
    assert not any("bound" in text for text in texts)


def test_excess_is_the_nearest_point(case: methods.Case) -> None:
    assert case.frontier is not None
    point = case.frontier.points[0]
    assert methods.excess(point, case.frontier) <= 0
    cost = replace(point.cost, compute_s=point.compute_s / 2, communication_s=0.0)
    assert methods.excess(replace(point, cost=cost), case.frontier) > 0


def test_refusals_and_large_programs_are_dashes(case: methods.Case) -> None:
    graph = model_graph("gpt3_13b", **TINY["gpt3_13b"])
    given = methods._parser().parse_args(["--methods", "ft", "ilp", "--columns", "10"])
    one = methods.run_case("gpt", graph, [Mesh((2,))], load_device("h200"), given)
    assert one.attempts["ilp"].refused.endswith("columns, more than --columns")
    assert methods.methods_table([one], ["ft", "ilp"]).splitlines()[-1].endswith("| - |")


def test_gaps_of_local_searches() -> None:
    problem = load_instance(INSTANCES / "rnnlm_p8.npz")
    found, seconds = gaps(problem, "autoddl", 2)
    assert len(found) == 2
    assert 0 <= min(found) < 0.1
    assert seconds > 0
