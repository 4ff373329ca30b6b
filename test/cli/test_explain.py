"""``--explain``: the text and the JSON that the command prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

GPT2 = Path(__file__).parents[1] / "models" / "gpt2_tiny.onnx"


def test_the_text_names_splits_and_sums_of_layers_alike(opt) -> None:
    outcome = opt(GPT2, "--devices", "2", "--search", "expert", "--explain")
    assert outcome.status == 0
    lines = outcome.out.splitlines()
    assert lines[0].startswith("gpt2_tiny.onnx on 2 x cpu, point 0 of 1 (fastest, leanest, knee): ")
    title = "m.transformer.h.0 and m.transformer.h.1, 2 identical: "
    layer = lines.index(next(line for line in lines if title in line))
    block = lines[layer + 1 : lines.index(next(x for x in lines if x.startswith("  end: ")))]
    text = "\n".join(block)
    assert "column split of attn.c_attn.weight over x (output features)" in text
    assert "row split of attn.c_proj.weight over x (input features), leaves partial sums" in text
    assert "column split of mlp.c_fc.weight over x (output features)" in text
    assert "2 MatMul: " in text or text.count("MatMul node_matmul") == 2
    assert sum("-> all_reduce of 32.0 KiB over x: " in line for line in block) == 2
    assert lines[-1] == "no point of the frontier is leaner"


def test_the_json_has_the_figures_of_the_plan_that_is_written(
    opt, mlp: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "plan"
    outcome = opt(
        mlp,
        "--devices",
        "2",
        "--device",
        "v100",
        "--pick",
        "leanest",
        "--explain",
        "--format",
        "json",
        "-o",
        plan,
    )
    assert outcome.status == 0
    found = json.loads(outcome.out)
    predicted = json.loads((plan / "plan.json").read_text())["predicted"]
    assert found["time_s"] == predicted["time_s"]
    assert sum(e["time_s"] for e in found["timeline"]) == pytest.approx(predicted["time_s"])
    assert found["memory"]["static_bytes"] == predicted["static_bytes"]
    costs = json.loads((plan / "costs.json").read_text())
    assert sum(sum(times) for _, *times in costs["nodes"].values()) == pytest.approx(
        predicted["time_s"]
    )
    assert found["leaner"] is None
    assert found["faster"]["time_s"] < found["time_s"]


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (
            ["--objective", "profile"],
            "--explain is about one plan, expected no --objective profile",
        ),
        (["--compare"], "--compare prints a table of searches, expected no --explain"),
        (["--format", "csv"], "--explain: expected --format table or json, got: csv"),
        (
            ["--pareto", "--format", "json"],
            "--format json is of one report, expected either --explain or --pareto",
        ),
    ],
)
def test_what_cannot_be_explained(refused, mlp: Path, flags: list[str], error: str) -> None:
    assert refused(mlp, "--explain", *flags) == error
