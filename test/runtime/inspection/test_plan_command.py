"""``tensoropt-plan``: what it shows, what it finds different, and what it finds wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from handmade import Perceptron, collective, edit, model_of, sha256, tensor, value_info, write_plan
from handmade_training import LeastSquares
from onnx import TensorProto, helper

from tensoropt.runtime.cli.plan import main
from tensoropt.runtime.inspection.transfers import bad_transfers


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run the command; return its exit status and what it printed, errors too."""

    def run(*argv: str | Path) -> tuple[int, str]:
        capsys.readouterr()
        status = main([str(one) for one in argv])
        out, err = capsys.readouterr()
        return status, out + err

    return run


def strategies(content: dict[str, Any]) -> None:
    rows = []
    for layer in range(3):
        for op, left, right, made in (
            ("MatMul", "S(0)", "R", "S(0)"),
            ("Relu", "S(0)", "", "S(0)"),
        ):
            sides = [[left, "R"], [right, "R"]] if right else [[left, "R"]]
            name = f"/net/layers.{layer}/{op.lower()}/{op}"
            rows.append({"node": name, "op": op, "operands": sides, "results": [[made, "R"]]})
    content["strategies"] = rows


def test_marks_of_the_point_are_shown(plan: Path, command) -> None:
    edit(plan, lambda content: content["frontier"][0].update(marks=["fastest", "above capacity"]))
    assert ", point 0 of 1 (fastest, above capacity)\n" in command("show", plan)[1]


def test_a_plan_is_shown_with_layers_alike_once(plan: Path, command) -> None:
    edit(plan, strategies)
    status, text = command("show", plan)
    assert status == 0
    lines = text.splitlines()
    assert lines[0] == f"{plan}: perceptron.onnx on 2 x cpu, mesh 1x2"
    assert lines[1].endswith(", point 0 of 1")
    assert "  net/layers.0 to net/layers.2, 3 alike: 2 ops" in lines
    assert "    MatMul /net/layers.0/matmul/MatMul: [S(0), R], R -> [S(0), R]" in lines
    assert "  x  float32  4x6  [S(0), R]  96 B a rank" in lines
    assert lines[-1].split() == ["1", "x", "AllReduce", "2", "ranks", "-", "fc2_reduce"]
    document = json.loads(command("show", plan, "--format", "json")[1])
    assert document["collectives"][0]["kind"] == "AllReduce"
    assert document["layers"][0]["names"][2] == "net/layers.2"


def test_plans_that_do_the_same_and_others(plan: Path, perceptron: Perceptron, command, tmp_path):
    status, text = command("diff", plan, plan)
    assert (status, text) == (0, "the plans are equal\n")
    other = perceptron.plan(tmp_path / "other", (2, 2))
    edit(other, lambda content: content["predicted"].update(time_s=2e-3))
    status, text = command("diff", plan, other)
    assert status == 1
    assert "mesh: 1x2 -> 2x2; " in text
    assert "predicted time: 1 ms -> 2 ms (+100.0%)" in text
    assert "different models" not in text
    found = json.loads(command("diff", plan, other, "--format", "json")[1])
    assert found["same"] is False
    assert found["mesh"] == {"name": "mesh", "before": [1, 2], "after": [2, 2]}


def test_pins_are_shown_and_compared(plan: Path, perceptron: Perceptron, command, tmp_path) -> None:
    def pinned(content: dict[str, Any]) -> None:
        cost = {"time": 0.031, "memory": 0.0}
        content["pins"] = {"pin": ["w=S(0)@x"], "forbid": [], "annotations": None, "cost": cost}

    assert "pins:" not in command("show", plan)[1]
    other = perceptron.plan(tmp_path / "other")
    edit(other, pinned)
    shown = command("show", other)[1]
    assert "pins: --pin 'w=S(0)@x'\npins cost: 3.1% time at the fastest point\n" in shown
    status, text = command("diff", plan, other)
    assert status == 1
    assert "pins: none -> --pin 'w=S(0)@x'\n" in text
    assert "pins cost: none -> 3.1% time at the fastest point\n" in text


def test_plans_of_different_models(plan: Path, tmp_path: Path, command) -> None:
    other = LeastSquares(tmp_path).plan(tmp_path / "other")
    status, text = command("diff", plan, other)
    assert status == 1
    assert "different models: perceptron.onnx (sha256 " in text
    assert "training.micro_batches: none -> 1" in text


def test_sound_plans(plan: Path, tmp_path: Path, command) -> None:
    assert command("validate", plan) == (0, f"{plan}: sound\n")
    training = LeastSquares(tmp_path).plan(tmp_path / "training")
    assert command("validate", training) == (0, f"{training}: sound\n")


def test_all_problems_are_listed(plan: Path, command) -> None:
    graph = plan / "rank1.onnx"
    graph.write_bytes(graph.read_bytes()[:-9])

    def spoil(content: dict[str, Any]) -> None:
        content["inputs"][0]["layout"] = ["S(0)", "S(9)"]
        content["files"]["../secret"] = "0" * 64
        content["files"]["rank7.bin"] = "0" * 64

    edit(plan, spoil)
    status, text = command("validate", plan)
    assert status == 1
    lines = text.splitlines()
    for start in (
        "plan.json: input 'x': layout shards dimension 9",
        "plan.json: files: expected a path inside, got: ../secret",
        "rank7.bin: is missing",
        "rank1.onnx: was changed after the plan was written, ",
        "rank1.onnx: is no ONNX graph: ",
    ):
        assert sum(line.startswith(start) for line in lines) == 1, start
    assert lines[-1] == f"{plan}: 5 problems"


def reduced(perceptron: Perceptron, folder: Path, *nodes: list[onnx.NodeProto]) -> Path:
    ends = [value_info("x", "float32", [2])], [value_info("y", "float32", [2])]
    graphs = [model_of(own, *ends) for own in nodes]
    x, y = tensor("x", [2], ["R"]), tensor("y", [2], ["R"])
    return write_plan(folder, perceptron.model, (len(nodes),), graphs, [x], [y])


def reduce(group: list[int], reduction: str = "sum") -> onnx.NodeProto:
    return collective("AllReduce", "x", "y", 0, "total", group=group, reduction=reduction)


def test_collectives_that_do_not_match(perceptron: Perceptron, tmp_path: Path, command) -> None:
    both = [0, 1]
    plan = reduced(perceptron, tmp_path / "a", [reduce(both)], [reduce(both, "max")])
    status, text = command("validate", plan)
    assert status == 1
    assert text.splitlines()[0] == (
        "rank0.onnx: AllReduce 'total' of ranks 0, 1 (float32 2, reduction sum) never ends, rank 1 "
        "comes to AllReduce 'total' of ranks 0, 1 (float32 2, reduction max)"
    )
    plan = reduced(perceptron, tmp_path / "b", [reduce(both)], [reduce([0])])
    assert (
        "rank1.onnx: AllReduce 'total': expected a group of different ranks, 1 among them"
        in (command("validate", plan)[1])
    )


def test_a_rank_that_waits_for_ever(hanging: Path, command) -> None:
    status, text = command("validate", hanging)
    assert status == 1
    assert "never ends, rank 1 has no more" in text


def relist(plan: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["files"] = {name: sha256(plan / name) for name in content["files"]}

    edit(plan, change)


def test_weights_outside_of_the_folder_are_not_read(plan: Path, command, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(64))
    graph = onnx.load(plan / "rank0.onnx")
    weight = TensorProto(name="stolen", data_type=1, dims=[4], data_location=1)
    for key, value in (("location", "../secret"), ("offset", "0"), ("length", "16")):
        weight.external_data.add(key=key, value=value)
    graph.graph.initializer.append(weight)
    onnx.save(graph, plan / "rank0.onnx")
    relist(plan)
    status, text = command("validate", plan)
    assert status == 1
    assert text.startswith(
        "rank0.onnx: weight 'stolen': expected a file inside the plan, got: ../s"
    )


def test_links_that_lead_out_are_not_followed(plan: Path, command, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes((plan / "rank0.onnx").read_bytes())
    (plan / "rank0.onnx").unlink()
    (plan / "rank0.onnx").symlink_to(tmp_path / "elsewhere")
    for what in ("show", "validate"):
        status, text = command(what, plan)
        assert status == (1 if what == "validate" else 2)
        assert "elsewhere" not in text
    (plan / "plan.json").rename(tmp_path / "plan.json")
    (plan / "plan.json").symlink_to(tmp_path / "plan.json")
    assert "leads out of the folder" in command("validate", plan)[1]


def test_what_claims_to_be_huge_ends_soon(plan: Path, command) -> None:
    def grow(content: dict[str, Any]) -> None:
        content["mesh"]["shape"], content["ranks"] = [1, 10**9], 10**9

    edit(plan, grow)
    status, text = command("validate", plan)
    assert status == 1
    assert "plan.json: files: expected 1000000000 graphs rank*.onnx, got: 2" in text


def test_a_pipe_in_the_place_of_a_graph_is_not_waited_for(plan: Path, command) -> None:
    (plan / "rank0.onnx").unlink()
    os.mkfifo(plan / "rank0.onnx")
    assert "rank0.onnx: expected a file" in command("validate", plan)[1]
    assert command("show", plan)[0] == 2


def test_names_that_are_no_text(plan: Path, command) -> None:
    graph = plan / "rank1.onnx"
    graph.write_bytes(graph.read_bytes().replace(b"fc2_reduce", b"fc2_reduc\xff"))
    relist(plan)
    expected = f"rank1.onnx: is no ONNX graph: a name is not UTF-8\n{plan}: 1 problem\n"
    assert command("validate", plan) == (1, expected)


def test_an_input_that_the_graph_has_otherwise(perceptron: Perceptron, tmp_path, command) -> None:
    ends = [value_info("x", "float32", [3])], [value_info("z", "float32", [2])]
    graph = model_of([helper.make_node("Identity", ["x"], ["z"])], *ends)
    x, y = tensor("x", [2], ["R"]), tensor("y", [2], ["R"])
    plan = write_plan(tmp_path / "plan", perceptron.model, (1,), [graph], [x], [y])
    lines = command("validate", plan)[1].splitlines()
    assert lines[:3] == [
        "rank0.onnx: input 'x': expected float32 2, got: float32 3",
        "rank0.onnx: output 'z' is not in plan.json, so a run could not feed it",
        "rank0.onnx: output 'y' is missing",
    ]


def test_mistakes(command, tmp_path: Path) -> None:
    status, text = command("show", tmp_path / "no")
    assert (status, text) == (
        2,
        f"error: {tmp_path / 'no'}: expected a plan directory, got: no such folder\n",
    )
    assert "expected a command: show, diff or validate" in command()[1]


def later(name: str, wait: list[str], made: list[str], op: str = "AllReduce") -> list:
    """An ``op`` of x that is started, and the nodes that are given ``wait``."""
    own = {"domain": "tensoropt", "name": f"{name}.{op}Start", "group": [0, 1]}
    own |= {"dim": 0} if op == "AllGather" else {"reduction": "sum"}
    given = ["t1", "h", "held"]
    start = helper.make_node(f"{op}Start", ["t0", "x"], given, **own)
    named = {"domain": "tensoropt", "name": f"{name}.{op}Wait"}
    return [start, helper.make_node(f"{op}Wait", wait, made, **named)]


BETWEEN = helper.make_node("Neg", ["held"], ["early"], name="between")


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        (later("a", ["h", "held"], ["y"]), ""),
        (later("a", ["h", "held", "x"], ["z"], "AllGather"), ""),
        (
            later("a", ["h", "held"], ["y"])[:1],
            "AllReduceStart 'a.AllReduceStart': expected one wait",
        ),
        (
            [*later("a", ["h", "held"], ["y"]), BETWEEN],
            "AllReduceStart 'a.AllReduceStart': its results are read by 'between', expected",
        ),
        (
            later("a", ["h", "held", "x"], ["y"]),
            "AllReduceWait 'a.AllReduceWait': expected the inputs h, held, got: h, held, x",
        ),
        (
            later("a", ["h", "held"], ["z"], "AllGather"),
            "AllGatherWait 'a.AllGatherWait': expected the inputs h, held, x, got: h, held",
        ),
        (
            later("a", ["h", "held"], ["y", "z"]),
            "AllReduceWait 'a.AllReduceWait': expected 1 results, got: 2",
        ),
        (
            [later("a", ["h", "held"], ["y"])[1]],
            "AllReduceWait 'a.AllReduceWait': expected the handle of a node AllReduceStart, got: h",
        ),
    ],
)
def test_what_is_started_is_waited_for(nodes: list[onnx.NodeProto], text: str) -> None:
    graph = helper.make_graph(nodes, "g", [], [value_info("y", "float32", [2])])
    assert [found[: len(text)] for found in bad_transfers(graph)] == ([text] if text else [])


def test_a_result_that_leaves_before_it_is_there() -> None:
    graph = helper.make_graph(
        later("a", ["h", "held"], ["y"]), "g", [], [value_info("held", "float32", [2])]
    )
    (found,) = bad_transfers(graph)
    assert found.endswith("its results are results of the graph, expected its wait to read them")


def test_starts_are_collectives_of_a_plan(
    perceptron: Perceptron, tmp_path: Path, command, hanging_later: Path
) -> None:
    nodes = later("a", ["h", "held"], ["y"])
    plan = reduced(perceptron, tmp_path / "right", nodes, nodes)
    assert command("validate", plan)[0] == 0
    plan = reduced(perceptron, tmp_path / "half", nodes, nodes[:1])
    assert "expected one wait for it, got: 0" in command("validate", plan)[1]
    assert "never ends, rank 1 has no more" in command("validate", hanging_later)[1]


def test_plans_that_cannot_be_compared(plan: Path, command, tmp_path: Path) -> None:
    """As of diff(1), 1 is an answer and 2 a mistake."""
    status, text = command("diff", plan, tmp_path / "none")
    assert (status, text.startswith("error: ")) == (2, True)
    assert command("diff", plan)[0] == 2
