"""Frontiers, picks, profiles and plans of a small model, through the command."""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import re
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tensoropt.compiler.support import files
from tensoropt.compiler.support.units import format_bytes
from tensoropt.runtime.plan.plan import Plan

FIELDS = [
    "index",
    "mesh",
    "time_s",
    "compute_s",
    "communication_s",
    "hidden_s",
    "process_bytes",
    "memory_bytes",
    "static_bytes",
    "transient_bytes",
    "marks",
]


V100 = ("--device", "v100")
"""Where processes are not measured: they take what their tensors take."""
ALONE = "note: --memory limits tensors alone: v100 has no [process]"


def points(outcome) -> list[dict[str, float]]:
    assert outcome.status == 0
    assert outcome.err == "" or outcome.err.startswith(ALONE)
    found: list[dict[str, float]] = json.loads(outcome.out)["points"]
    return found


def test_json_of_a_frontier(opt, mlp: Path) -> None:
    outcome = opt(mlp, "--pareto", "--devices", "4", "--format", "json", "--epsilon", "0")
    document = json.loads(outcome.out)
    assert {key: document[key] for key in ("schema", "model", "device")} == {
        "schema": 1,
        "model": "mlp.onnx",
        "device": "cpu",
    }
    found = points(outcome)
    assert len(found) > 1
    assert [list(point) for point in found] == [FIELDS] * len(found)
    assert [point["index"] for point in found] == list(range(len(found)))
    for a, b in itertools.pairwise(found):
        assert a["time_s"] < b["time_s"]
        assert a["memory_bytes"] > b["memory_bytes"]
    for point in found:
        assert point["memory_bytes"] == point["static_bytes"] + point["transient_bytes"]
        assert point["time_s"] == pytest.approx(point["compute_s"] + point["communication_s"])


def test_same_input_same_text(opt, mlp: Path) -> None:
    runs = [opt(mlp, "--pareto", "--devices", "4", "--format", "json") for _ in range(2)]
    assert runs[0] == runs[1]


def test_table_csv_and_plot(opt, mlp: Path, tmp_path: Path) -> None:
    drawn = tmp_path / "frontier.svg"
    table = opt(mlp, "--pareto", "--mesh", "2x2", "--plot", drawn)
    assert table.out.startswith("mlp.onnx on 4 x cpu: ")
    assert "knee" in table.out
    assert "\x1b" not in table.out
    assert "<svg" in drawn.read_text()
    csv = opt(mlp, "--pareto", "--mesh", "2x2", "--format", "csv")
    assert csv.out.splitlines()[0] == ",".join(FIELDS)


@pytest.mark.parametrize(
    ("flags", "drawn"),
    [
        (["--devices", "2", "--pick", "leanest"], ["knee", "pick"]),
        (["--devices", "2", "--objective", "profile"], ["steps per second", "in proportion to"]),
        (["--devices", "2", "--compare", "pase,data-parallel"], ["pase", "over the least"]),
    ],
)
def test_whatever_is_printed_can_be_drawn(opt, mlp: Path, tmp_path: Path, flags, drawn) -> None:
    path = tmp_path / "a.svg"
    assert opt(mlp, *flags, "--plot", path).status == 0
    assert all(re.search(f"<!-- .*{text}.* -->", path.read_text()) for text in drawn)


def test_a_report(opt, mlp: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    outcome = opt(mlp, "--devices", "2", "--pick", "leanest", "--report", path)
    assert outcome.out.startswith("mlp.onnx on 2 x cpu: one of ")
    assert "mlp.onnx" in path.read_text()


def test_without_pareto_one_point_is_printed(opt, mlp: Path) -> None:
    outcome = opt(mlp, "--pareto", "--devices", "2", *V100, "--pick", "leanest", "--format", "json")
    whole = points(outcome)
    assert json.loads(outcome.out)["chosen"] == len(whole) - 1
    for which, index in (("fastest", 0), ("leanest", len(whole) - 1), ("1", 1)):
        (one,) = points(opt(mlp, "--devices", "2", *V100, "--pick", which, "--format", "json"))
        assert one == whole[index]
    flags = ("--devices", "2", *V100, "--objective", "memory", "--format", "json")
    (leanest,) = points(opt(mlp, *flags))
    assert leanest == whole[-1]


def test_memory_takes_the_fastest_that_fits(opt, refused, mlp: Path) -> None:
    whole = points(opt(mlp, "--pareto", "--devices", "2", *V100, "--format", "json"))
    limit = str(int(whole[1]["process_bytes"]))
    (one,) = points(opt(mlp, "--devices", "2", *V100, "--memory", limit, "--format", "json"))
    # Points next to the limit are not left out for their neighbours, which changes numbers.
    assert {**one, "index": 1} == whole[1]
    message = refused(mlp, "--devices", "2", *V100, "--memory", limit, "--pick", "0")
    assert re.search(r"expected the index of a point that fits, from [12] to", message)


def test_a_note_says_what_is_limited(opt, mlp: Path) -> None:
    """Nobody has measured what processes of a V100 take."""
    assert ALONE in opt(mlp, "--devices", "2", *V100, "--memory", "1GiB").err
    assert ALONE not in opt(mlp, "--devices", "2", *V100).err
    assert ALONE not in opt(mlp, "--devices", "2", "--memory", "1GiB").err


def test_nothing_fits(refused, opt, mlp: Path) -> None:
    whole = points(opt(mlp, "--devices", "2", "--pareto", "--format", "json"))
    need = min(int(point["process_bytes"]) for point in whole)
    limit = ("--memory", str(need - 100))
    message = refused(mlp, "--devices", "2", *limit, "--stages", "1", status=3)
    assert message.startswith("--memory: nothing fits ")
    assert f" on 2 devices, the leanest plan needs {format_bytes(need)} ({need} bytes), " in message
    assert message.endswith(
        "100 B more; expected more --devices (at least 4) or more memory (there is nothing else to "
        "try; kept: --stages 1)"
    )
    outcome = opt(mlp, "--devices", "2", *limit)
    assert outcome.status == 0
    assert "the search chose --stages auto, which repeats this answer\n" in outcome.err
    assert opt(mlp, "--devices", "2", *limit, "--stages", "auto").out == outcome.out


def test_less_than_a_process_takes(refused, mlp: Path) -> None:
    """More devices would not help."""
    message = refused(mlp, "--devices", "2", "--memory", "10MiB", status=3)
    assert re.search(
        r" more; a process takes \d.* MiB without any model, expected more memory$", message
    )


def test_fewest_devices(opt, refused, mlp: Path) -> None:
    needs = {}
    for count in (1, 2, 4):
        flags = ["--devices", str(count), "--pick", "leanest", "--format", "json"]
        needs[count] = int(points(opt(mlp, *flags, *V100))[0]["process_bytes"])
    assert needs[1] > needs[2] > needs[4]
    for count, need in needs.items():
        flags = ["--objective", "devices", "--memory", str(need), "--devices", "4", *V100]
        assert opt(mlp, *flags).out.startswith(f"mlp.onnx on {count} x v100:")
    limit = str(needs[4] - 1)
    flags = ["--objective", "devices", "--memory", limit, "--devices", "4", *V100]
    message = refused(mlp, *flags, status=3)
    assert "nothing fits" in message
    assert "on 4 devices" in message


def test_profile(opt, mlp: Path) -> None:
    outcome = opt(mlp, "--objective", "profile", "--devices", "4", "--format", "json")
    rows = json.loads(outcome.out)["profile"]
    assert [row["devices"] for row in rows] == [1, 2, 4]
    assert rows[0]["point"]["communication_s"] == 0
    need = rows[0]["point"]["process_bytes"]
    limited = ["--objective", "profile", "--devices", "3", "--memory", str(need - 1)]
    table = opt(mlp, *limited)
    assert [line.split()[0] for line in table.out.splitlines()[2:-1]] == ["1", "2", "3"]
    assert "does not fit" in table.out.splitlines()[2]
    assert opt(mlp, *limited, "--format", "csv").out.splitlines()[1] == "1,,,,,,,,,"


def test_a_profile_of_nothing_fails(opt, mlp: Path) -> None:
    limited = ["--device", "v100", "--devices", "2", "--memory", "1KiB"]
    outcome = opt(mlp, *limited, "--objective", "profile", "--format", "json")
    assert outcome.status == 3
    assert [row["point"] for row in json.loads(outcome.out)["profile"]] == [None, None]
    assert outcome.err == (
        "error: --memory: nothing fits 1.00 KiB on up to 2 devices, "
        "expected more devices or more memory\n"
    )


def test_plan(opt, mlp: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        outcome = opt(mlp, "--devices", "2", "--pick", "knee", "-o", tmp_path / name)
        assert (outcome.status, outcome.err) == (0, "")
        assert re.fullmatch(
            rf"plan: {tmp_path / name}: point \d of \d \(.*knee.*\), 2: [\d.]+ us, [\d.]+ MiB per "
            "device\n", outcome.out,
        )  # fmt: skip
    plan = Plan.load(tmp_path / "a")
    assert (plan.ranks, plan.model_name) == (2, "mlp.onnx")
    assert [tensor.name for tensor in plan.parameters] == ["w1", "w2"]
    written = {p.relative_to(tmp_path / "a"): p for p in (tmp_path / "a").rglob("*") if p.is_file()}
    for relative, path in written.items():
        assert path.read_bytes() == (tmp_path / "b" / relative).read_bytes()


def test_random_plans_differ_by_seed(opt, mlp: Path, tmp_path: Path) -> None:
    def strategies(seed: int) -> str:
        flags = ["--mesh", "2x2", "--search", "random", "--seed", str(seed)]
        assert opt(mlp, *flags, "-o", tmp_path / "plan").status == 0
        document = json.loads((tmp_path / "plan" / "plan.json").read_text())
        assert document["search"] == {"name": "random", "seed": seed, "epsilon": None}
        return json.dumps(document["strategies"])

    assert strategies(1) == strategies(1)
    assert len({strategies(seed) for seed in range(6)}) > 1


def test_plan_and_report_at_once(opt, mlp: Path, tmp_path: Path) -> None:
    outcome = opt(mlp, "--devices", "2", "--pareto", "-o", tmp_path / "plan")
    assert outcome.out.startswith("mlp.onnx on 2 x cpu:")
    assert (tmp_path / "plan" / "plan.json").exists()


def test_a_folder_of_somebody_is_refused_before_the_search(refused, mlp, tmp_path, monkeypatch):
    (tmp_path / "thesis.tex").write_text("years of work")
    monkeypatch.setattr("tensoropt.compiler.planning.objectives.search", None)
    message = refused(mlp, "--devices", "2", "-o", tmp_path)
    assert "got: a folder with 'thesis.tex', which is not part of a plan" in message


def test_a_full_disk_leaves_nothing(refused, mlp: Path, tmp_path: Path, monkeypatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "rank0.onnx")

    monkeypatch.setattr("tensoropt.compiler.pipeline.export.export_rank", full)
    message = refused(mlp, "--devices", "2", "-o", tmp_path / "plan")
    assert message == (
        f"-o {tmp_path / 'plan'}: no space left on device, free some space or choose another "
        "place (the partial plan was removed)"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mask", [0o022, 0o027])
def test_files_have_the_mode_that_new_files_have(opt, tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        assert opt(_wide(tmp_path / "m.onnx"), "-o", tmp_path / "plan").status == 0
    finally:
        os.umask(before)
    weights = tmp_path / "plan" / "weights"
    assert len(list(weights.iterdir())) > 0
    for path in (tmp_path / "plan", weights):
        assert path.stat().st_mode & 0o777 == 0o777 & ~mask
    for path in (tmp_path / "plan" / "plan.json", *weights.iterdir()):
        assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def _wide(path: Path) -> Path:
    """Write a model whose weight is too large for the graph's own file."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [64, 64]) for n in "xy")
    weight = helper.make_tensor("w", TensorProto.FLOAT, [64, 64], [0.5] * 4096)
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def test_a_full_disk_at_the_last_file(refused, mlp: Path, tmp_path: Path, monkeypatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "_swap", full)
    message = refused(mlp, "--devices", "2", "-o", tmp_path / "plan")
    assert message == (
        f"-o {tmp_path / 'plan'}: no space left on device, free some space or choose another "
        "place (the partial plan was removed)"
    )
    assert list(tmp_path.iterdir()) == []


def test_inputs_that_no_plan_can_have(refused, tmp_path: Path) -> None:
    given = helper.make_tensor_value_info("s", TensorProto.UINT4, [4])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    cast = helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT)
    graph = helper.make_graph([cast], "g", [given], [made])
    opsets = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.save(model, tmp_path / "s.onnx")
    message = refused(tmp_path / "s.onnx", "--pareto", "--devices", "2")
    assert message == (
        f"{tmp_path / 's.onnx'}: input 's': expected a tensor of known rank, of strings, of "
        "booleans or of numbers of 8 bits or more, got: a tensor of uint4"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["s.onnx"]


SEQUENCE = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
OPTIONAL = onnx.ValueInfoProto(
    name="y", type=helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [4]))
)


@pytest.mark.parametrize(
    ("op", "output", "message"),
    [
        ("SplitToSequence", SEQUENCE, "got: a sequence, each item a tensor of float32"),
        ("Optional", OPTIONAL, "got: an optional value, a tensor of float32"),
        ("Neg", None, "has no outputs, expected at least one"),
    ],
)
def test_outputs_that_no_plan_can_have(
    refused, tmp_path: Path, op: str, output: onnx.ValueInfoProto | None, message: str
) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    nodes, ends = [helper.make_node(op, ["x"], ["y"])], [output] if output else []
    graph = helper.make_graph(nodes, "g", [x], ends)
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "m.onnx")
    said = refused(tmp_path / "m.onnx", "--pareto", "--devices", "2")
    assert said.startswith(f"{tmp_path / 'm.onnx'}: ")
    assert said.endswith(message)


@pytest.mark.parametrize("flags", [("--pareto",), ("--emit", "search", "--devices", "2")])
def test_a_graph_without_anything(opt, tmp_path: Path, flags: tuple[str, ...]) -> None:
    opsets = [helper.make_opsetid("", 20)]
    empty = helper.make_graph([], "g", [], [])
    onnx.save(helper.make_model(empty, opset_imports=opsets, ir_version=10), tmp_path / "m.onnx")
    outcome = opt(tmp_path / "m.onnx", *flags)
    assert outcome.status == (1 if "--pareto" in flags else 0)
    assert "func.func @main" in outcome.out or "has no outputs" in outcome.err


@pytest.mark.parametrize(
    ("op_type", "shapes", "result"),
    [
        ("ConvTranspose", [[1, 2, 6, 6], [1, 2, 3, 3, 1]], [1, 2, 8, 8]),
        ("SoftmaxCrossEntropyLoss", [[3], [3]], []),
    ],
)
def test_operands_that_do_not_fit_together(
    refused, tmp_path: Path, op_type: str, shapes: list[list[int]], result: list[int]
) -> None:
    types = [
        TensorProto.FLOAT,
        TensorProto.INT64 if op_type.endswith("Loss") else TensorProto.FLOAT,
    ]
    inputs = [
        helper.make_tensor_value_info(name, type_, shape)
        for name, type_, shape in zip("xw", types, shapes, strict=True)
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, result)
    node = helper.make_node(op_type, ["x", "w"], ["y"], name="odd")
    graph = helper.make_graph([node], "g", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    message = refused(path, "--pareto")
    assert re.search(rf"'?odd'?.*{op_type}", message)


def test_a_text_whose_arguments_have_no_names(refused, tmp_path: Path) -> None:
    text = """module attributes {topt.opset = {ai.onnx = 20 : i64}} {
      func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
        %0 = "onnx.Neg"(%a) : (tensor<4xf32>) -> tensor<4xf32>
        return %0 : tensor<4xf32>
      }
    }"""
    (tmp_path / "m.mlir").write_text(text)
    assert "expected topt.name on every argument" in refused(tmp_path / "m.mlir", "--devices", "2")


def test_tensors_that_no_machine_holds(refused, tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1 << 40] * 2) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "m.onnx")
    message = refused(tmp_path / "m.onnx", "--devices", "2", "-o", tmp_path / "plan")
    assert message.startswith("x: needs 2417851639229258349412352 bytes on one rank, expected at ")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize("name", ["plan", "plan/", "plan.d/", "there"])
def test_a_folder_to_write_to_is_a_plan(opt, mlp: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "there").mkdir()
    assert opt(mlp, "-o", f"{tmp_path}/{name}").status == 0
    assert (tmp_path / name / "plan.json").is_file()


@pytest.mark.parametrize("name", ["module.mlir", "there"])
def test_a_file_to_write_to_is_text(opt, mlp: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "there").write_text("module {}")
    assert opt(mlp, "-o", tmp_path / name).status == 0
    assert "func.func @main" in (tmp_path / name).read_text()


@pytest.mark.parametrize("flags", [("--emit", "import"), ("-p", "cse")])
def test_a_text_is_no_folder(refused, mlp: Path, tmp_path: Path, flags: tuple[str, str]) -> None:
    message = refused(mlp, *flags, "-o", f"{tmp_path}/plan/")
    assert message == f"-o {tmp_path}/plan/: expected a file for MLIR text, got: a folder"


def test_a_plan_is_no_text(refused, mlp: Path) -> None:
    message = refused(mlp, "--devices", "2", "-o", "-")
    assert message == "-o -: a plan is a folder, expected its name"


@pytest.mark.parametrize("phase", ["import", "prepare", "rules", "search", "reshard", "partition"])
def test_every_phase_is_printed_and_read_back(opt, mlp: Path, tmp_path: Path, phase: str) -> None:
    flags = [] if phase in ("import", "prepare", "rules") else ["--mesh", "2"]
    text = opt(mlp, "--emit", phase, *flags)
    assert text.status == 0
    assert 'loc("first")' in text.out
    path = tmp_path / "phase.mlir"
    path.write_text(text.out)
    again = opt(path)
    assert again.status == 0
    assert 'loc("first")' in again.out


def test_no_flag_prints_the_imported_module(opt, mlp: Path) -> None:
    outcome = opt(mlp)
    assert outcome == opt(mlp, "--emit", "import")
    assert '"onnx.MatMul"' in outcome.out
    assert "topt.param" in outcome.out


def test_passes_over_a_model(opt, refused, mlp: Path) -> None:
    flags = ["-p", ",".join(PASSES.values()).strip(",")]
    assert opt(mlp, *flags).out == opt(mlp, "--emit", "partition", "--mesh", "2").out
    message = refused(mlp, "-p", "insert-reshards")
    assert message.startswith(f"{mlp}: ")
    assert "(in pass 'insert-reshards')" in message


PASSES = {
    "import": "verify-onnx,infer-shapes,fold-constants,reduce-bags,unpack-sequences,simplify,"
    "join-boxes,fuse-experts,unmerge-rows,fold-transposes,dce",
    "prepare": "add-rules,mark-caches",
    "rules": "search-strategies{mesh=2}",
    "search": "check-strategies,insert-reshards,optimize-reshards",
    "reshard": "check-strategies,keep-whole,partition,dce",
    "partition": "",
}


@pytest.mark.parametrize("phase", PASSES)
def test_resuming_from_a_phase_gives_the_same(opt, mlp: Path, tmp_path: Path, phase: str) -> None:
    before = phase in ("import", "prepare", "rules")
    mesh = ["--mesh", "2"]
    path = tmp_path / "phase.mlir"
    assert opt(mlp, "--emit", phase, *([] if before else mesh), "-o", path).status == 0
    whole = opt(mlp, "--emit", "partition", *mesh).out
    rest = ",".join(list(PASSES.values())[list(PASSES).index(phase) :])
    assert opt(path, "-p", rest.strip(",")).out == whole
    assert opt(path, "--emit", "partition", *(mesh if before else [])).out == whole


def test_what_has_passed_the_search_is_not_searched(refused, opt, mlp: Path, tmp_path) -> None:
    path = tmp_path / "phase.mlir"
    assert opt(mlp, "--emit", "partition", "--mesh", "2", "-o", path).status == 0
    assert refused(path, "--emit", "reshard") == (
        f"{path}: has passed the partition already, expected --emit partition or later, "
        "got: --emit reshard"
    )
    assert refused(path, "--emit", "partition", "--mesh", "2") == (
        f"{path}: has passed the search, expected no planning flags"
    )
    assert refused(path, "--pareto") == (
        f"{path}: has passed the partition already, expected IR from before the search"
    )


def test_planning_from_stdin(opt, refused, mlp: Path, monkeypatch) -> None:
    text = opt(mlp, "--emit", "prepare").out
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    outcome = opt("-", "--pareto", "--mesh", "2", "--format", "csv")
    assert outcome.out == opt(mlp, "--pareto", "--mesh", "2", "--format", "csv").out
    monkeypatch.setattr(sys, "stdin", io.StringIO("module {\n  oops\n"))
    assert refused("-", "--pareto", "--mesh", "2").startswith("<stdin>:2:3: ")
    monkeypatch.setattr(sys, "stdin", io.StringIO("module {}"))
    assert refused("-", "--emit", "prepare").startswith("<stdin>: the module has no attribute topt")


def test_a_full_disk_is_named(refused, mlp: Path, tmp_path: Path, monkeypatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    message = refused(mlp, "-o", tmp_path / "a.mlir")
    assert message.startswith(f"{tmp_path / 'a.mlir'}: no space left on device, free")
    assert list(tmp_path.iterdir()) == []
