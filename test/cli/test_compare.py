"""--compare, --search NAME and --search-time."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tensoropt.compiler.comparison.registry import COMPARED, METHODS


def test_compare(opt, mlp: Path) -> None:
    lines = opt(mlp, "--mesh", "2x2", "--compare").out.splitlines()
    assert lines[0] == "mlp.onnx on 4 x cpu: fastest, per device"
    assert lines[1].split() == ["method", "mesh", "time", "memory", "search", "ratio"]
    assert [line.split()[0] for line in lines[2:]] == list(COMPARED)
    assert lines[2].split()[-1] == "1.000"


def test_compare_as_json_and_csv(opt, mlp: Path) -> None:
    names = [name for name in METHODS if name != "pase-bfs"]
    flags = ["--devices", "2", "--compare", ",".join([*names, "ft"])]
    document = json.loads(opt(mlp, *flags, "--format", "json").out)
    assert (document["model"], document["devices"]) == ("mlp.onnx", 2)
    rows = {row["method"]: row for row in document["methods"]}
    assert list(rows) == names
    for name, row in rows.items():
        assert row["refused"] is None
        assert row["ratio"] >= 1 - 1e-9
        if name in ("ft", "pase", "ilp", "exhaustive"):
            assert row["ratio"] == pytest.approx(1, rel=1e-6)
    table = list(csv.DictReader(io.StringIO(opt(mlp, *flags, "--format", "csv").out)))
    assert [line["method"] for line in table] == names
    for line in table:
        assert float(line["time_s"]) == pytest.approx(rows[line["method"]]["point"]["time_s"])
        assert line["mesh"] == "2"


def test_a_refusal_is_a_row(opt, mlp: Path) -> None:
    flags = ["--device", "v100", "--devices", "2", "--memory", "16B", "--compare", "ft,ilp"]
    outcome = opt(mlp, *flags)
    lines = outcome.out.splitlines()
    assert lines[2].endswith("refused: nothing that it found fits the memory")
    assert lines[3].endswith("refused: no choice fits, expected more memory, got: 16 bytes")
    assert outcome.status == 1
    assert outcome.err == (
        "error: --compare: no search found a plan, for the reasons printed; "
        "expected more memory or devices, or other searches\n"
    )
    document = json.loads(opt(mlp, *flags, "--format", "json").out)
    assert [row["point"] for row in document["methods"]] == [None, None]


@pytest.mark.parametrize("name", [name for name in METHODS if name != "ft"])
def test_each_method_makes_a_plan(opt, mlp: Path, tmp_path: Path, name: str) -> None:
    assert opt(mlp, "--mesh", "2", "--search", name, "-o", tmp_path / "plan").status == 0
    document = json.loads((tmp_path / "plan" / "plan.json").read_text())
    assert document["search"]["name"] == name
    report = json.loads(opt(mlp, "--mesh", "2", "--search", name, "--format", "json").out)
    exact = name in ("pase", "pase-bfs", "ilp", "exhaustive")
    assert report["time_epsilon"] == (0 if exact else None)


def test_the_table_says_what_is_proven(opt, mlp: Path) -> None:
    def title(name: str) -> str:
        return str(opt(mlp, "--mesh", "2", "--search", name).out.splitlines()[0])

    assert title("pase").endswith("one of 1 point, least time, per device")
    assert title("mcmc").endswith("one of 1 point, no bound, per device")


def test_search_time(opt, mlp: Path) -> None:
    flags = ["--mesh", "2", "--search-time", "30", "--format", "json"]
    assert json.loads(opt(mlp, *flags).out)["epsilon"] == 0
    assert json.loads(opt(mlp, *flags, "--search", "ilp").out)["time_epsilon"] == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--compare", "ft,tf"], "--compare: unknown search 'tf', valid choices are ft, pase"),
        (["--compare", ""], "--compare: unknown search '', valid choices are"),
        (["--compare", "ft", "--pick", "1"], "prints a table of searches, expected no --pick"),
        (["--compare", "ft", "--pareto"], "prints a table of searches, expected no --pareto"),
        (["--compare", "ft", "-o", "plan"], "prints a table of searches, expected no -o"),
        (["--compare", "ft", "--search", "ft"], "expected no --search"),
        (["--compare", "ft,pase", "--seed", "1"], "--seed belongs to --search autoddl, mcmc or"),
        (["--search", "mcmc", "--search-time", "1"], "--search-time belongs to --search ft or ilp"),
        (["--search-time", "x"], "--search-time: expected seconds, at least 0, got: 'x'"),
        (["--search-time", "-1"], "--search-time: expected seconds, at least 0, got: '-1'"),
        (["--search-time", "inf"], "--search-time: expected seconds, at least 0, got: 'inf'"),
        (["--search", "ilp", "--epsilon", "0.1"], "--epsilon belongs to --search ft, got: --sea"),
    ],
)
def test_wrong_flag(refused, mlp: Path, flags: list[str], message: str) -> None:
    assert message in refused(mlp, *flags)


def test_an_integer_program_without_room(refused, mlp: Path) -> None:
    flags = ["--device", "v100", "--devices", "2", "--search", "ilp", "--memory", "16B"]
    message = refused(mlp, *flags, status=3)
    assert "--search ilp: no choice fits, expected more memory, got: 16 bytes" in message
