"""The comparison with Sailor's planners, on a tree of our own with the layout of its repository."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planners import compare
from planners.compare import Case, Row, section, summary, table
from planners.ours import Degrees, degrees_of, fastest_step, steps_of
from planners.profiles import Kind, Layer, Profiles, Roads, read_profiles

from tensoropt.runtime.support.errors import UserError

GPU, OTHER, ZONE = "TINY-10", "OTHER-10", "here"
LAYERS, BATCH, TRAINING = 4, 16, "training_config_opt_350.json"
SIMULATOR = """
GPU_MEMORY_GB = {"TINY-10": 10, "OTHER-10": 10}

class Simulator:
    def __init__(self, root, training, sizes, half, profiles, zone):
        assert (training["model"], half, zone) == ("OPT-350", False, "here")

    def check_config_fits(self, plan):
        return 2 * plan["mbs"] <= GPU_MEMORY_GB["TINY-10"]

    def simulate_iteration_time(self, plan):
        return 1.5 * plan["pipeline_list"][0]["num_stages"], 0.0, {}
"""
OPERATOR_SIMULATOR = """
GPU_MEMORY_GB = {"TINY-10": 10}

class SimulatorOP:
    def __init__(self, training, sizes, half, profiles):
        assert (training["model"], half) == ("OPT-350", False)
        assert (sizes, profiles) == (["sizes"], ["times"])

    def check_config_fits(self, plan):
        return 3 <= GPU_MEMORY_GB["TINY-10"]

    def simulate_iteration_time(self, plan):
        return 4.5, 0.0, {}
"""
PLANNER = """
class {name}:
    def __init__(self, *arguments):
        assert arguments

    def get_sorted_plans(self, cluster_config, training_config):
        {answer}

def plan(mbs, machines=1, layers=4, degree=1):
    group = ([("TINY-10", 2, "here")] * machines, degree)
    pipeline = dict(num_stages=2, layers_per_stage=[[0, 1], [*range(2, layers)]], dp=[1, 1],
                    tmp_per_stage=[[group], [group]])
    return dict(mbs=mbs, pipeline_list=[pipeline])
"""
MODULES = {
    "Aceso": "baselines/Aceso/aceso_planner.py",
    "AMP": "baselines/AMP/amp_planner.py",
    "DTFM": "baselines/DTFM/dtfm_planner.py",
    "FlashFlex": "baselines/FlashFlex/flashflex_planner.py",
    "Metis": "baselines/Metis/metis_planner.py",
}


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")


def _put_planner(checkout: Path, name: str, answer: str) -> None:
    folder = checkout / "sailor/Planner"
    _write(folder / MODULES[name], PLANNER.format(name=f"{name}Planner", answer=answer))
    (folder / "baselines" / name / "profiles/OPT-350").mkdir(parents=True, exist_ok=True)
    _write(folder / "baselines/FlashFlex/src/machine_amounts.json", {})


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with profiles of micro-batches of 1, 2 and 8 without tensor parallelism."""
    folder = tmp_path / "checkout/sailor/Planner"
    configurations = folder / "simulations/configs"
    own = {"model": "OPT-350", "num_all_layers": LAYERS, "global_batch_size": BATCH}
    _write(configurations / TRAINING, own)
    node = {"gpus_per_node": 2, "mem_per_gpu": 10 << 30}
    _write(configurations / "basic_cluster_config.json", {GPU: node, OTHER: node, "zone": ZONE})
    rows = {str(number): [0.1, 0.2, 0.01] for number in range(LAYERS)}
    batches = {batch: {"1": rows} for batch in ("1", "2", "8")}
    times = {"OPT-350": {GPU: batches, OTHER: batches}}
    _write(folder / "simulations/profiles_tmp.json", times)
    size = {"params_floats": 1000, "act_mem_floats": 1 << 28, "act_output_floats": 10}
    sizes = {"OPT-350": {"1": {str(number): size for number in range(LAYERS)}}}
    _write(folder / "llm_info.json", sizes)
    ends = {gpu: {"1": [[0.0, 0.0, 10.0], 1e10]} for gpu in (GPU, OTHER)}
    links = {ZONE: {gpu: {"1": {ZONE: ends}} for gpu in (GPU, OTHER)}}
    _write(folder.parent / "providers/multizone_bandwidths_het.json", links)
    _write(folder / "simulations/runtime_simulator.py", SIMULATOR)
    return tmp_path / "checkout"


def _run(
    checkout: Path,
    planners: Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
    limit_s: int = 60,
    cluster: str = f"{GPU}:2",
) -> int:
    only = [word for name in planners for word in ("--only", name)]
    command = ["compare.py", str(checkout), "--case", f"OPT-350={cluster}", *only]
    command += ["--limit", str(limit_s)]
    monkeypatch.setattr(sys, "argv", command)
    return compare.main()


def test_the_first_plan_that_fits_and_can_be_judged_counts(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = "plan(8), plan(3), plan(1, machines=3, degree=3), plan(1, layers=3), plan(2), plan(1)"
    _put_planner(checkout, "AMP", f"return [{plans}]")
    assert _run(checkout, ["AMP"], monkeypatch) == 0
    printed = capsys.readouterr().out
    note = "plan 5 of 6; 3 not judged: no profile of micro-batch 3 and tensor degree 1"
    assert f"| 2, 1, 1, 2 | 3.00 s | 4.3 GB | 2.000 | {note} |" in printed  # 4 GiB
    assert "| tensoropt |" in printed
    assert "1 of 1 cases" in printed


def test_planners_without_a_plan_keep_a_row(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _put_planner(checkout, "AMP", "return [plan(8)]")
    _put_planner(checkout, "DTFM", "raise KeyError('gpu')")
    _put_planner(checkout, "FlashFlex", "import os; os._exit(3)")
    assert _run(checkout, ["AMP", "DTFM", "FlashFlex", "Metis"], monkeypatch) == 0
    printed = capsys.readouterr().out
    for note in (
        "none of 1 plans fits", "KeyError: 'gpu'", "exit status 3",
        f"no profiles of OPT-350 on {GPU}",
    ):  # fmt: skip
        assert f" | {note} |" in printed
    assert "0 of 0 cases" in printed


def test_plans_of_operators_have_a_simulator_of_operators(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planning = checkout / "sailor/Planner"
    _write(planning / "llm_info_aceso.json", ["sizes"])
    _write(planning / "simulations/profiles_tmp_aceso.json", ["times"])
    _write(planning / "simulations/runtime_simulator_op.py", OPERATOR_SIMULATOR)
    (planning / "baselines/Aceso/profiler" / GPU).mkdir(parents=True)
    degrees = (
        "model_parallel_size_of_each_op=[[1, 1], [2]], data_parallel_size_of_each_op=[[1], [1]]"
    )
    plan = f"dict(num_stages=2, num_gpus=[1, {{}}], micro_batch_size=4, {degrees})"
    _put_planner(checkout, "Aceso", f"return [{plan.format(2)}, {plan.format(1)}]")
    assert _run(checkout, ["Aceso"], monkeypatch) == 0
    note = "plan 2 of 2; 1 not judged: more GPUs than there are: 3"
    assert f"| 2, 1 to 2, 1, 4 | 4.50 s | 3.2 GB | 3.000 | {note} |" in capsys.readouterr().out


def test_mixed_clusters_have_planners_that_mix(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _put_planner(checkout, "AMP", "return [plan(1)]")
    _write(checkout / "sailor/Planner/baselines/Varuna/simulator/main.cc", "int main() {}")
    assert _run(checkout, ["AMP", "Varuna"], monkeypatch, cluster=f"{GPU}:2,{OTHER}:2") == 0
    printed = capsys.readouterr().out
    assert f"OPT-350 on 2 {GPU} + 2 {OTHER}:" in printed
    assert "| Varuna |  | | | | | plans one kind of GPU |" in printed
    assert "| 2, 1, 2, 2 | 3.00 s |" in printed  # ours
    assert "| 2, 1, 1, 1 | 3.00 s |" in printed


def test_a_planner_above_the_limit_is_ended(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _put_planner(checkout, "AMP", "import time; time.sleep(600)")
    assert _run(checkout, ["AMP"], monkeypatch, limit_s=1) == 0
    assert " | no answer in 1 s |" in capsys.readouterr().out


def test_a_planner_that_cannot_be_loaded_or_built_is_an_error(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _put_planner(checkout, "Metis", "return []")
    module = checkout / "sailor/Planner" / MODULES["Metis"]
    _write(module, "import a_package_that_is_not_there\n")
    source = checkout / "sailor/Planner/baselines/Varuna/simulator/main.cc"
    _write(source, "int main() { return x; }")
    assert _run(checkout, ["Metis", "Varuna"], monkeypatch) == 1
    refused = capsys.readouterr().err.splitlines()
    assert len(refused) == 2
    assert refused[0].startswith("error: Varuna: ")
    assert "was not declared" in refused[0]
    assert refused[1].startswith("error: Metis: expected einops, ")
    assert "No module named 'a_package_that_is_not_there'" in refused[1]
    assert all("--without" in line for line in refused)


def test_a_folder_without_the_simulator_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"expected a checkout of github.com/eth-easl/sailor, got:"):
        _run(tmp_path, [], monkeypatch)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"profiles_tmp.json: expected JSON, got: "),
        ("{}", r"expected profiles of OPT-350 on TINY-10 .*, got: KeyError 'OPT-350'"),
    ],
)
def test_unreadable_profiles_are_refused(checkout: Path, content: str, message: str) -> None:
    planning = checkout / "sailor/Planner"
    _write(planning / "simulations/profiles_tmp.json", content)
    with pytest.raises(UserError, match=message):
        read_profiles(planning, TRAINING, [GPU])


def test_missing_profiles_are_refused(checkout: Path) -> None:
    planning = checkout / "sailor/Planner"
    (planning / "llm_info.json").unlink()
    with pytest.raises(UserError, match=r"llm_info.json: expected a file of a whole checkout"):
        read_profiles(planning, TRAINING, [GPU])


@pytest.mark.parametrize("text", ["OPT-350", "OPT-350=A100-40", "BERT=A100-40:8"])
def test_cases_are_a_known_model_and_counts(text: str) -> None:
    with pytest.raises(UserError, match=r"--case: expected OPT-350 or GPT-Neo-2\.7, and GPUs as"):
        Case.read(text)


def test_clusters_have_whole_nodes(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=f"--case: expected nodes of 2 {GPU}, got: 3"):
        _run(checkout, ["AMP"], monkeypatch, cluster=f"{GPU}:3")


def test_bandwidth_is_a_polynomial_of_the_logarithm_of_megabytes() -> None:
    roads = Roads({1: (0.5, 2.0, 3.0)})
    gigabytes_per_s = np.polyval([0.5, 2.0, 3.0], np.log2(8.0))
    assert roads.send_s(8e6, 1) == pytest.approx(8e-3 / gigabytes_per_s)
    # A ring of 4 sends 6 parts of each bucket: of 16 MB, and of the 8 MB that are left.
    parts_s = 6 * (roads.send_s(4e6, 1) + roads.send_s(2e6, 1))
    assert roads.sum_s(24e6, 4, 16_000_000) == pytest.approx(parts_s)
    assert roads.sum_s(24e6, 1, 16_000_000) == 0


Kinds = Mapping[tuple[int, int], Sequence[Layer]]


def _profiles(*kinds: Kinds, capacity_bytes: int = 1 << 40) -> Profiles:
    """Return profiles of kinds of GPU that are called by letters, with links of endless speed."""
    names = "ab"[: len(kinds)]
    known = {name: Kind(own, 2, capacity_bytes) for name, own in zip(names, kinds, strict=True)}
    roads = Roads({1: (1e9,), 2: (1e9,)})
    return Profiles(known, dict.fromkeys(itertools.product(names, repeat=2), roads), 64, ZONE)


def test_equal_stages_have_the_time_and_the_memory_of_1f1b() -> None:
    profiles = _profiles({(1, 2): [Layer(0.1, 0.2, 0.01, 1000, 100, 8)] * 8})
    degrees = Degrees((("a", 4),), tensor=1, data=1, micro_batch=2, micro_batches=32)
    step = next(own for own in steps_of(profiles, degrees) if own.cuts == (2, 4, 6))
    assert step.time_s == pytest.approx((32 + 4 - 1) * 2 * 0.3 + 0.01)
    assert step.stage_bytes[0] == 2 * 1000 * 24 + 4 * 2 * 100 + 2_000_000_000
    (pipeline,) = step.plan()["pipeline_list"]
    assert pipeline["layers_per_stage"] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_slow_gpus_have_fewer_layers() -> None:
    """A kind that takes three times as long has a third of the layers of the other."""
    fast, slow = (Layer(0.1 * times, 0.2 * times, 0.0, 10, 10, 8) for times in (1, 3))
    profiles = _profiles({(1, 1): [fast] * 8}, {(1, 1): [slow] * 8})
    step = fastest_step(profiles, {"a": 1, "b": 1})
    assert step is not None
    (pipeline,) = step.plan()["pipeline_list"]
    kinds = [stage[0][0][0][0] for stage in pipeline["tmp_per_stage"]]
    layers = dict(zip(kinds, pipeline["layers_per_stage"], strict=True))
    assert {kind: len(own) for kind, own in layers.items()} == {"a": 6, "b": 2}
    assert step.time_s == pytest.approx(6 * 0.3 * (64 + 1))


@pytest.mark.parametrize("kinds", [1, 2])
def test_the_fastest_step_is_that_of_all_degrees(kinds: int) -> None:
    rng = np.random.default_rng(kinds)

    def layers() -> list[Layer]:
        times_s = rng.uniform(0.1, 1.0, (6, 3))
        return [Layer(*own, int(rng.integers(1, 1 << 24)), 1 << 26, 8) for own in times_s.tolist()]

    for _ in range(3):
        pairs = itertools.product((1, 2), repeat=2)
        known = [{pair: layers() for pair in pairs} for pairs in itertools.tee(pairs, kinds)]
        profiles, gpus = _profiles(*known, capacity_bytes=3_500_000_000), dict(a=8, b=4)
        gpus = dict([*gpus.items()][:kinds])
        steps = [step for own in degrees_of(profiles, gpus) for step in steps_of(profiles, own)]
        found = fastest_step(profiles, gpus)
        assert found is not None
        assert found.time_s == min(own.time_s for own in steps if own.fits)
        assert all(own.least_s <= own.time_s * (1 + 1e-9) for own in steps)
        size = found.degrees.tensor * found.degrees.data
        assert {gpu: size * stages for gpu, stages in found.degrees.groups} == gpus


def test_tables_have_our_plan_first_and_count_lost_cases() -> None:
    case = Case.read(f"OPT-350={GPU}:4")
    rows = [Row("Sailor", 0.5, "1, 1, 4, 2", 2.0, 10), Row("tensoropt", 0.1, "2, 1, 2, 2", 2.5, 10)]
    lines = [*table(case, rows)]
    assert lines[3].startswith("| tensoropt |")
    assert lines[4].startswith("| Sailor | 0.50 s | 1, 1, 4, 2 | 2.00 s | 0.0 GB | 0.800 |")
    last: list[Any] = [*summary([(case, rows), (case, [rows[1]])])]
    assert "| 2.50 s | 2.00 s, Sailor | 0.800 |" in last[2]
    assert last[-1].endswith("in 0 of 1 cases.")
    page = section([(case, rows)], ["Sailor", "AMP"])
    assert page.startswith("## Our plans next to")
    assert "\nLeft out: Varuna, Piper, Galvatron, Metis, DTFM, FlashFlex, Aceso.\n" in page
    assert f"\n{lines[4]}\n" in page
