"""The whole study on few jobs: its output, and that it is deterministic."""

import runpy
import sys
from pathlib import Path

import cluster
import numpy as np
import pytest
from cluster.costs import LITERATURE_S, Costs, settings
from cluster.jobs import State
from cluster.profiles import read_profiles
from cluster.report import figures_table, growth_table, plot, ratio_table, spread_table
from cluster.simulator import Outcome
from cluster.study import BASE, OURS, POLICIES, Study, figures
from cluster.trace import synthesised
from cluster_cases import job

COSTS = settings(0.5, 10.0)


@pytest.fixture(scope="module")
def study():
    return Study(synthesised(120, 4), read_profiles("gtx1080ti"), 2, 8, 1)


@pytest.fixture(scope="module")
def runs(study):
    return list(study.runs(list(POLICIES), [1.0], COSTS))


def test_the_same_seed_gives_the_same_figures(study, runs):
    again = study.run(OURS, 1.0, COSTS[0])
    (first,) = (run for run in runs if run.policy == OURS and run.costs == COSTS[0].name)
    assert (again.times_s == first.times_s).all()
    other = Study(study.trace, study.profiles, 2, 8, 2)
    assert (other.run(OURS, 1.0, COSTS[0]).times_s != first.times_s).any()


def test_figures_are_those_of_the_outcome():
    states = [State(job(n, 10.0, 1), 0.0) for n in range(3)]
    for state, end in zip(states, (11.0, 12.0, 30.0), strict=True):
        state.finished, state.switches, state.stalled = end, 2, 1.0
    found = figures("p", 1.0, "c", Outcome(states, 4, 30.0))
    assert (found.average_s, found.median_s, found.makespan_s) == (23 / 3, 2.0, 20.0)
    assert found.p95_s == pytest.approx(np.percentile([1, 2, 20], 95))
    assert (found.utilisation, found.switches, found.stalled) == (30 / 80, 2.0, 0.1)


def test_elasticity_helps_and_costs_what_a_switch_costs(runs):
    held = {(run.policy, run.costs): run for run in runs}
    average = {name: held[name, "stall"].average_s for name in POLICIES}
    assert average["Elastic-Tiresias"] < average[BASE] < average["FIFO"]
    assert held[OURS, "stall"].average_s < held[OURS, "literature"].average_s
    assert held[BASE, "stall"].average_s == held[BASE, "stop-resume"].average_s
    assert held[BASE, "stall"].stalled < held[BASE, "literature"].stalled


def test_a_limit_of_growth_is_kept(study):
    own = Study(study.trace, study.profiles, 2, 8, 1, grow=1)
    assert all(job.most == job.request for job in own.jobs(1.0))
    assert own.run(OURS, 0.1, COSTS[0]).average_s > study.run(OURS, 0.1, COSTS[0]).average_s


def test_tables_have_a_line_for_all_that_was_run(runs):
    table = figures_table(runs, "stall").splitlines()
    assert len(table) == 2 + len(POLICIES)
    assert table[3].startswith("| Tiresias | 1 |") and " | 1.00 | " in table[3]
    ratios = ratio_table(runs, COSTS).splitlines()
    assert len(ratios) == 2 + 2 * 3 and ratios[4].startswith("| Elastic-Tiresias | 30 s | 30 s |")
    first = [run for run in runs if run.costs == "stall" and run.policy in (BASE, OURS)]
    assert spread_table([first, first]).splitlines()[2].startswith("| marginal | 0.")
    growth = growth_table({None: first, 2: first}).splitlines()
    assert [line.split(" | ")[1] for line in growth[2:]] == ["all devices", "2 x what it asks for"]


def test_the_picture_is_the_same_again(runs, tmp_path):
    plot(runs, COSTS, tmp_path / "a.svg")
    plot(runs, COSTS, tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert b"Elastic-Tiresias, 30 s" in (tmp_path / "a.svg").read_bytes()


def test_costs_are_those_that_were_given():
    assert settings(1.0, 2.0) == [
        Costs("stall", 1.0, 2.0),
        Costs("stop-resume", 2.0, 2.0),
        Costs("literature", LITERATURE_S, LITERATURE_S),
    ]


def _said(monkeypatch, capsys, *flags):
    """Return the output of the command for a few jobs on two machines."""
    few = ["--jobs", "60", "--loads", "1", "--machines", "2"]
    monkeypatch.setattr(sys, "argv", ["cluster", *few, *flags])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(Path(cluster.__file__).parent), run_name="__main__")
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_the_brief_command_prints_one_table(monkeypatch, capsys):
    said = _said(monkeypatch, capsys, "--brief")
    assert said.startswith('`make bench-cluster ARGS="--jobs 60 --loads 1 --machines 2 --brief"`')
    assert [line.split(" |")[0] for line in said.splitlines()[4:]] == [
        "| Tiresias",
        "| Elastic-Tiresias",
        "| marginal",
    ]


def test_the_command_prints_a_section(monkeypatch, capsys):
    said = _said(monkeypatch, capsys, "--samples", "1")
    assert said.startswith("## A cluster that shares its devices\n")
    assert "| marginal, times known | 1 |" in said and "on 16 h200" in said
