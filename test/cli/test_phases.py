"""The IR of every phase is a way to the same plan; timing and dumps while planning."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tensoropt.compiler.pipeline.phases import PHASES, TRAINING_PHASES
from tensoropt.compiler.support.phases import PHASE_NAMES
from tensoropt.runtime.cli.run import main as run_plan

V100 = ("--device", "v100")
FLAGS = ["--devices", "2", *V100, "--pick", "leanest"]
TRAIN = ["--train", "--loss", "mse:y,t", "--optimizer", "momentum", "--clip-norm", "1"]
OTHER = Path(__file__).parents[1] / "models" / "vit_tiny.onnx"
_SEARCHED = ("search", "reshard", "partition")
_STRATEGY = re.compile(r'("onnx.MatMul".*topt.strategy = )#topt.strategy<.*?\]>\]>')


def files(plan: Path) -> dict[str, bytes]:
    paths = [path for path in plan.rglob("*") if path.is_file()]
    return {path.relative_to(plan).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase != "train"])
def test_a_plan_of_the_text_of_a_phase_is_the_plan(opt, mlp: Path, tmp_path: Path, phase) -> None:
    early, late = ([], FLAGS) if phase in _SEARCHED else (FLAGS, [])
    text = tmp_path / "phase.mlir"
    assert opt(mlp, "--emit", phase, *late, "-o", text).status == 0
    assert opt(text, "--weights", mlp, *early, "-o", tmp_path / "again").status == 0
    assert opt(mlp, *FLAGS, "-o", tmp_path / "plan").status == 0
    assert files(tmp_path / "again") == files(tmp_path / "plan")


def test_the_text_of_a_search_keeps_the_launches(opt, mlp: Path, tmp_path: Path) -> None:
    flags = ["--mesh", "2", "--device", "h200", "--launch", "graph"]
    text = tmp_path / "searched.mlir"
    assert opt(mlp, "--emit", "search", *flags, "-o", text).status == 0
    assert 'topt.launch = "graph"' in text.read_text(encoding="utf-8")
    assert opt(text, "--weights", mlp, "-o", tmp_path / "again").status == 0
    assert opt(mlp, *flags, "-o", tmp_path / "plan").status == 0
    assert files(tmp_path / "again") == files(tmp_path / "plan")
    without = opt(mlp, "--emit", "search", *flags[:-2])
    assert "topt.launch" not in without.out


@pytest.mark.parametrize("phase", PHASES)
def test_so_is_that_of_a_training_step(opt, mlp: Path, tmp_path: Path, phase: str) -> None:
    text, before = tmp_path / "phase.mlir", phase in ("import", "prepare")
    searched = FLAGS if phase in _SEARCHED else []
    assert opt(mlp, *TRAIN, "--emit", phase, *searched, "-o", text).status == 0
    rest = [*(TRAIN if before else []), *([] if searched else FLAGS)]
    assert opt(text, "--weights", mlp, *rest, "-o", tmp_path / "again").status == 0
    assert opt(mlp, *TRAIN, *FLAGS, "-o", tmp_path / "plan").status == 0
    assert files(tmp_path / "again") == files(tmp_path / "plan")


def test_the_phases_are_those_that_are_named() -> None:
    assert tuple(PHASES) == PHASE_NAMES


def edited(opt, mlp: Path, path: Path, strategy: str, *flags: str) -> int:
    """Write the searched IR of ``mlp`` with another strategy for its first product; return which
    line that is on."""
    outcome = opt(mlp, "--emit", "search", "--mesh", "2", *V100, "--pick", "leanest", *flags)
    lines = outcome.out.splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if _STRATEGY.search(line))
    layouts = [f'[#topt.layout<@mesh, ["{text}"]>]' for text in strategy.split()]
    operands = f"{layouts[0][:-1]}, {layouts[1][1:]}"
    lines[number] = _STRATEGY.sub(rf"\g<1>#topt.strategy<{operands}, {layouts[2]}>", lines[number])
    path.write_text("".join(lines))
    return number + 1


def test_an_edited_strategy_is_planned_and_costed(opt, mlp: Path, tmp_path: Path) -> None:
    text, plan = tmp_path / "edited.mlir", tmp_path / "plan"
    edited(opt, mlp, text, "R R R")
    assert opt(text, "--weights", mlp, "-o", plan).status == 0
    document = json.loads((plan / "plan.json").read_text())
    assert document["search"] == {"name": "pinned", "seed": None, "epsilon": None}
    assert len(document["frontier"]) == 1
    assert opt(mlp, *V100, "--strategies", plan / "plan.json", "-o", tmp_path / "fed").status == 0
    assert files(tmp_path / "fed") == files(plan)
    assert opt(mlp, "--mesh", "2", *V100, "--pick", "leanest", "-o", tmp_path / "found").status == 0
    found = json.loads((tmp_path / "found" / "plan.json").read_text())
    assert document["predicted"]["time_s"] != found["predicted"]["time_s"]
    assert document["predicted"]["static_bytes"] > found["predicted"]["static_bytes"]


def test_a_plan_of_edited_text_computes_the_model(opt, mlp: Path, tmp_path: Path) -> None:
    text, plan = tmp_path / "edited.mlir", tmp_path / "plan"
    edited(opt, mlp, text, "S(1) S(0) P(sum)")
    assert opt(text, "--weights", mlp, "-o", plan).status == 0
    assert run_plan([str(plan), "--check", str(mlp)]) == 0


def test_a_strategy_that_no_rule_offers_names_its_line(opt, refused, mlp, tmp_path) -> None:
    text = tmp_path / "edited.mlir"
    line = edited(opt, mlp, text, "S(1) R R")
    message = refused(text, "--weights", mlp, "-o", tmp_path / "plan")
    assert message.startswith(f"{text}:{line}: node 'first': 'onnx.MatMul' op its sharding rule")
    assert not (tmp_path / "plan").exists()


def test_a_layout_that_does_not_divide_names_its_line(opt, refused, mlp, tmp_path) -> None:
    text = tmp_path / "edited.mlir"
    line = edited(opt, mlp, text, "S(7) R R")
    message = refused(text, "--weights", mlp, "-o", tmp_path / "plan")
    assert message.startswith(f"{text}:{line}: node 'first': 'onnx.MatMul' op layout of operand 0")


def test_weights_of_another_model(opt, refused, mlp: Path, tmp_path: Path) -> None:
    text = tmp_path / "searched.mlir"
    assert opt(mlp, "--emit", "search", *FLAGS, "-o", text).status == 0
    message = refused(text, "--weights", OTHER, "-o", tmp_path / "plan")
    assert message.startswith(f"--weights {OTHER}: expected the model that the text")
    assert not (tmp_path / "plan").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--weights", "m.onnx"], "--weights belongs to a plan of MLIR text, expected -o"),
        (["-o", "plan", "--devices", "2"], "expected an .onnx input or --weights MODEL.onnx"),
    ],
)
def test_what_text_needs_for_a_plan(opt, refused, mlp, tmp_path, flags, message: str) -> None:
    text = tmp_path / "m.mlir"
    assert opt(mlp, "-o", text).status == 0
    assert message in refused(text, *flags)


def test_a_model_has_its_own_weights(refused, mlp: Path) -> None:
    assert "--weights belongs to MLIR text" in refused(mlp, "--weights", mlp, "-o", "plan/")


def test_searched_text_takes_no_flags_of_the_search(opt, refused, mlp: Path, tmp_path) -> None:
    text = tmp_path / "searched.mlir"
    assert opt(mlp, "--emit", "search", *FLAGS, "-o", text).status == 0
    message = refused(text, "--weights", mlp, *FLAGS, "-o", tmp_path / "plan")
    assert message == f"{text}: has passed the search already, expected IR from before the search"


KERNELS = ("fuse-attention", "dce")
"""Passes that inference has before its rules if the device has a kernel."""


@pytest.mark.parametrize("more", [[], TRAIN])
def test_timing_is_that_of_all_passes_of_a_plan(opt, mlp: Path, tmp_path: Path, more) -> None:
    outcome = opt(mlp, *more, *FLAGS, "--mlir-timing", "-o", tmp_path / "plan")
    rows = re.findall(r"^ +[\d.]+ +[\d.]+% +(.*)$", outcome.err, re.MULTILINE)
    names = [row.split()[-1] for row in rows]
    phases = [phase for phase in PHASES if more or phase != "train"]
    given = TRAINING_PHASES if more else PHASES
    listed = [own for phase in phases for own in given[phase].split(",") if own]
    passes = [own.partition("{")[0] for own in listed]
    passes.insert(passes.index("search-strategies"), "search")
    if not more:
        at = passes.index("assume-sizes")
        passes[at:at] = KERNELS
    assert names == [*passes, "total"]


@pytest.mark.parametrize("flags", ["--objective profile", "--compare ft"])
def test_a_report_is_timed_too(opt, mlp: Path, flags: str) -> None:
    outcome = opt(mlp, "--devices", "2", *flags.split(), "--mlir-timing")
    names = [line.split()[-1] for line in outcome.err.splitlines() if "%" in line]
    report = "profile" if "profile" in flags else "compare"
    prepare, rules = (PHASES[phase].split(",") for phase in ("prepare", "rules"))
    assert names == [*prepare, *KERNELS, *rules, report, "total"]


def test_dumps_while_planning(opt, mlp: Path, tmp_path: Path) -> None:
    dumped = "--mlir-print-ir-after", "search-strategies"
    outcome = opt(mlp, *FLAGS, *dumped, "-o", tmp_path / "plan")
    assert outcome.err.count("// -----// IR after ") == 1
    assert "// -----// IR after search-strategies //----- //" in outcome.err
    assert "topt.strategy" in outcome.err


def test_the_pass_is_the_search_of_the_product(opt, mlp: Path) -> None:
    before = f"{PHASES['prepare']},{PHASES['rules']}"
    own = opt(mlp, "-p", f"{before},search-strategies{{devices=2 device=v100 pick=leanest}}").out
    assert own == opt(mlp, "--emit", "search", *FLAGS).out
