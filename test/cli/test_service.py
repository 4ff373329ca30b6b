"""`--objective service:LEVEL`: deployments, their plan, the command, and the manifest."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from handmade_decoder import write_decoder

LEVEL = "service:rate=40,prompt=24,answer=16,part=16"


@pytest.fixture(scope="module", params=[False, True])
def decoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "m.onnx"
    return write_decoder(path, layers=1, in_place=request.param)


def test_the_fewest_devices_are_best(opt, decoder: Path) -> None:
    done = opt(decoder, "--devices", "4", "--objective", LEVEL, "--format", "json")
    document = json.loads(done.out)
    assert (done.status, document["level"]["first_s"]) == (0, None)
    rows = document["deployments"]
    assert rows == sorted(rows, key=lambda row: row["devices"])
    (best,) = (row for row in rows if row["best"])
    assert best["devices"] == min(row["devices"] for row in rows)
    for row in rows:
        assert row["devices"] == row["ranks"] * row["replicas"] <= 4
        assert row["rate"] * row["replicas"] >= 40
        assert row["slots"] > row["texts"]


def test_caches_of_all_slots_are_counted(opt, decoder: Path) -> None:
    heads, size, element = 4, 8, 4
    rows = [
        row
        for answer in (16, 512)
        for row in json.loads(
            opt(
                decoder, "--devices", "1", "--format", "json",
                "--objective", f"service:rate=1,prompt=16,answer={answer}",
            ).out
        )["deployments"]
        if row["texts"] == 1
    ]  # fmt: skip
    short, long = rows
    caches = 2 * heads * size * element * long["slots"] * (512 - 16)
    assert long["process_bytes"] - short["process_bytes"] >= caches


def test_the_plan_of_the_best_is_written(opt, decoder: Path, tmp_path: Path) -> None:
    plan, manifest = tmp_path / "plan", tmp_path / "serve.json"
    done = opt(
        decoder, "--devices", "2", "--objective", LEVEL, "-o", plan, "--kubernetes", manifest
    )
    assert done.status == 0, done.err
    command = done.out.splitlines()[-1].partition(": ")[2].split()
    assert command[:2] == ["tensoropt-serve", str(plan)]
    flags = dict(zip(command[2::2], command[3::2], strict=True))
    assert flags.keys() == {"--slots", "--context", "--step-tokens"}
    assert (flags["--context"], flags["--step-tokens"]) == ("40", "16")
    deployment, service = json.loads(manifest.read_text())["items"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"][1:7] == command[2:]
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    ranks = math.prod(json.loads((plan / "plan.json").read_text())["mesh"]["shape"])
    assert container["resources"]["limits"]["cpu"] == str(ranks)


def test_another_form_with_smaller_caches(opt, tmp_path: Path) -> None:
    large = write_decoder(tmp_path / "large.onnx", layers=1, in_place=True)
    small = write_decoder(tmp_path / "small.onnx", layers=1, in_place=True, shared=1)
    done = opt(large, "--devices", "1", "--objective", LEVEL, "--also", small, "--format", "json")
    rows = json.loads(done.out)["deployments"]
    assert {row["model"] for row in rows} == {"small.onnx"}
    table = opt(large, "--devices", "1", "--objective", LEVEL, "--also", small).out
    assert table.splitlines()[1].split()[-1] == "model"


def test_limits_that_no_deployment_meets(opt, decoder: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    done = opt(decoder, "--objective", f"{LEVEL},token_s=1e-9", "-o", plan)
    assert (done.status, plan.exists()) == (1, False)
    assert "too slow" in done.out
    assert "no deployment has a first token in any time and each other in 1.00 ns" in done.err
    done = opt(decoder, "--objective", "service:rate=1e9,prompt=24,answer=16")
    assert done.status == 1
    assert "cannot serve 1e+09 requests per second" in done.err


@pytest.mark.parametrize(
    ("level", "message"),
    [
        ("service:", "expected rate, prompt, answer as well, such as service:rate=4"),
        ("service:rate=1,prompt=2", "expected answer as well"),
        ("service:rate=1,prompt=2.5,answer=1", "prompt: expected a whole number, got: '2.5'"),
        ("service:rate=0,prompt=2,answer=1", "rate: expected more than 0, got: 0.0"),
        ("service:rate=nan,prompt=2,answer=1", "rate: expected more than 0, got: nan"),
        ("service:speed=1", "unknown part 'speed', valid choices are rate, prompt"),
    ],
)
def test_levels_that_are_refused(refused, decoder: Path, level: str, message: str) -> None:
    assert message in refused(decoder, "--objective", level)


def test_other_models_are_refused(refused, mlp: Path, decoder: Path) -> None:
    assert "expected a decoder with the input input_ids" in refused(mlp, "--objective", LEVEL)
    fixed = refused(decoder, "--objective", LEVEL, "--dim", "batch=4")
    assert "any number of sequences, expected a symbolic dimension, got: 4" in fixed


def test_flags_that_do_not_go_with_it(refused, decoder: Path, tmp_path: Path) -> None:
    for flag in (["--pareto"], ["--mesh", "2"], ["--pick", "knee"], ["--explain"]):
        message = refused(decoder, "--objective", LEVEL, *flag)
        assert message.startswith("--objective service picks by itself, expected no")
    manifest = refused(decoder, "--kubernetes", tmp_path / "x.json")
    assert "expected --objective service:LEVEL" in manifest
