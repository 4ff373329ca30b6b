"""The check for GPU machines, run on the CPU and on the stand-ins for NCCL and CUDA."""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from collectives import latency
from gpu import attention, check, fused, machine, steps, texts
from gpu.chain import KINDS
from gpu.failure import RunError
from gpu.models import SIZES, Zoo, write_plan
from gpu.pieces import cut
from gpu.products import write_products
from gpu.ranks import on_ranks
from gpu.setting import Part, Setting
from onnx import TensorProto, helper
from stand_ins import stand_ins

from tensoropt.runtime.support.errors import UserError

_FLOAT = TensorProto.FLOAT


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use one tiny model instead of three, in one type."""
    monkeypatch.setattr(Setting, "precisions", ["float32"])
    monkeypatch.setitem(SIZES, "tiny", {"gpt2": SIZES["tiny"]["gpt2"]})
    monkeypatch.delenv("TENSOROPT_STAND_IN", raising=False)


def _setting(folder: Path) -> Setting:
    return Setting("cpu", True, 0, Zoo("tiny", folder), [2], "h100", lambda text: None)


def _collective(x: str, y: str) -> onnx.NodeProto:
    values = {"domain": "tensoropt", "group": [0, 1], "reduction": "sum"}
    return helper.make_node("AllReduce", [x, f"{x}.t"], [y, f"{y}.t"], name=y, **values)


def _value(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, _FLOAT, shape)


def test_a_graph_is_cut_at_its_collectives() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["inner"])], "body", [], [_value("inner", 2)]
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["x"], ["b"]),
        _collective("a", "c"),
        _collective("w", "d"),
        helper.make_node("If", ["yes"], ["e"], then_branch=body, else_branch=body),
        helper.make_node("Sum", ["c", "d", "e"], ["y"]),
    ]
    weights = [helper.make_tensor("w", _FLOAT, [2], [1, 2])]
    weights.append(helper.make_tensor("yes", TensorProto.BOOL, [], [True]))
    between = [_value(name, 2) for name in "abcd"]
    graph = helper.make_graph(
        nodes, "g", [_value("x", 2)], [_value("y", 2)], weights, value_info=between
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("tensoropt", 1)]
    pieces = cut(helper.make_model(graph, ir_version=10, opset_imports=opsets))
    borders = [(piece.collective, piece.reads, piece.writes) for piece in pieces]
    assert borders == [
        (False, ["x"], ["a", "b"]),
        (True, ["a"], ["c"]),
        (True, [], ["d"]),  # of a weight, which the piece includes
        (False, ["a", "b", "c", "d"], ["y"]),
    ]
    first, *_, last = (piece.model for piece in pieces)
    assert first is not None and last is not None
    found = _run(first, {"x": [1.0, -2.0]})
    assert found == [[1.0, 0.0], [-1.0, 2.0]]
    arrays = {"a": found[0], "b": found[1], "c": [3.0, 3.0], "d": [1.0, 2.0]}
    assert _run(last, arrays) == [[4.0, 7.0]]


def test_what_goes_on_beside_other_nodes_is_cut_out_where_it_starts() -> None:
    values = {"domain": "tensoropt", "group": [0, 1], "dim": 0}
    starts = helper.make_node("AllGatherStart", ["t", "x"], ["s", "h", "g"], name="g", **values)
    wait = helper.make_node("AllGatherWait", ["h", "g", "x"], ["y"], domain="tensoropt")
    nodes = [starts, helper.make_node("Neg", ["x"], ["b"]), wait]
    graph = helper.make_graph(
        nodes, "g", [_value("x", 2)], [_value("y", 4), _value("b", 2)], value_info=[_value("g", 4)]
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("tensoropt", 1)]
    alone, behind = cut(helper.make_model(graph, ir_version=10, opset_imports=opsets))
    (node,) = alone.nodes
    assert (node.op_type, list(node.output), alone.reads) == ("AllGather", ["g"], ["x"])
    assert behind.model is not None
    arrays = {"x": [1.0, 2.0], "g": [1.0, 2.0, 3.0, 4.0]}
    assert _run(behind.model, arrays) == [[-1.0, -2.0], [1.0, 2.0, 3.0, 4.0]]


def _run(model: onnx.ModelProto, inputs: dict[str, list[float]]) -> list[list[float]]:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = {name: np.array(values, np.float32) for name, values in inputs.items()}
    return [array.tolist() for array in session.run(None, feeds)]


def test_a_value_without_a_type_cannot_be_cut_out() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), _collective("a", "y")]
    graph = helper.make_graph(nodes, "g", [_value("x", 2)], [_value("y", 2)])
    with pytest.raises(ValueError, match="value 'a' has no type, expected it in value_info"):
        cut(helper.make_model(graph))


def test_pieces_give_what_the_graph_gives(tmp_path: Path) -> None:
    zoo = Zoo("tiny", tmp_path)
    plans = {
        "products": (write_products(tmp_path / "products", 2), 64),
        "gpt2": (write_plan(zoo.path("gpt2"), 2, "expert", "h100", tmp_path), 5),
    }
    for plan, collectives in plans.values():
        found = on_ranks(
            "gpu.piecewise:measure", 2, plan=str(plan), provider="cpu", steps=1, rounds=1
        )
        assert found["collectives"] == collectives
        assert found["difference"] < 1e-6
        assert found["ways"].keys() == {"graph", "sessions", "calls", "silent"}


def test_collectives_in_a_graph_and_called() -> None:
    found = latency.measured("cpu", 2, KINDS, [8, 256], 1 << 10, 1)
    assert [(held["kind"], held["bytes"]) for held in found] == [
        (kind, size) for kind in KINDS for size in (8, 256)
    ]
    assert all(held["correct"] for held in found)


def test_the_bus_bandwidth_is_that_of_nccl_tests() -> None:
    held = {"bytes": 4_000_000, "graph_s": 1e-3, "calls_s": 2e-3, "correct": True}
    rows = latency.rows_of([{"kind": kind, **held} for kind in ("AllReduce", "AllGather")], 4)
    assert [row[4] for row in rows] == ["6", "3"]  # 4 GB/s times 2 (n - 1) / n, and (n - 1) / n


def test_ranks_that_fail_say_why() -> None:
    with pytest.raises(RunError, match=r"rank.: FileNotFoundError: .*plan/rank"):
        on_ranks("gpu.piecewise:measure", 2, plan="plan", provider="cpu", steps=1, rounds=1)


@pytest.mark.parametrize(
    ("driver", "reason"),
    [("none", "no GPU: there is no NVIDIA driver on this machine\n"), ("", "onnxruntime 1.")],
)
def test_machines_without_gpus_are_skipped(
    driver: str,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(machine, "_DRIVER", [tmp_path / driver])
    assert check.main([]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"gpu-check: skipped: {reason}")
    assert said.count("\n") == 1


@pytest.mark.usefixtures("few")
def test_on_the_stand_ins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written: dict[str, str] = {}
    monkeypatch.setattr(check, "write_section", written.__setitem__)
    monkeypatch.setenv("TENSOROPT_STAND_IN", "")  # set by the flag, and reset after the test
    flags = ["--stand-in", str(stand_ins()), "--tiny", "--ranks", "2", "--write"]
    status = check.main([*flags, "--only", "agree,latency"])
    said = capsys.readouterr().out
    assert status == 0, said
    assert said.endswith("gpu-check: 2 parts, 0 failures\n")
    report = written["gpu"]
    assert "none: stand-ins for NCCL and CUDA on host memory" in report
    assert report.count("| agrees |") == 4 + 3  # plans; losses
    assert report.count("| 2 | staged |") == 2
    assert report.count("| AllReduce | 2 |") == 2


def test_attention_next_to_float64_and_its_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: attention._FORMS[name] for name in ("window of rows in the middle", "float16")}
    monkeypatch.setattr(attention, "_FORMS", few)
    monkeypatch.setattr(attention, "_SHAPES", {"small": few["window of rows in the middle"]})
    setting = _setting(tmp_path)
    part = attention.attention(setting)
    assert part.failures == []
    assert part.text.count("agrees") == 1  # CPUs have no kernel for float16
    text, failures = attention._times(setting)
    assert failures == []
    assert text.count("| small |") == 1
    monkeypatch.setitem(attention._TOLERANCE, "bfloat16", 0.0)
    (failure,) = attention.attention(setting).failures
    assert failure.startswith("window of rows in the middle: differs by 0.0")


def test_fused_arithmetic_next_to_float64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = fused.fused(_setting(tmp_path))
    assert part.failures == []
    assert part.text.count("| float32 | 8 | 2 |") == 1
    monkeypatch.setitem(fused._TOLERANCE, "float32", 0.0)
    failures = fused.fused(_setting(tmp_path)).failures
    assert len(failures) == 2
    assert all(": differs by " in failure for failure in failures)


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_switches_on_the_stand_ins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TENSOROPT_STAND_IN", "")  # set by the flag, and reset after the test
    flags = ["--stand-in", str(stand_ins()), "--tiny", "--ranks", "2"]
    status = check.main([*flags, "--only", "switches"])
    said = capsys.readouterr().out
    assert status == 0, said
    assert said.count(" | live | ") == 2


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_texts_by_the_scores_of_one_device(tmp_path: Path) -> None:
    setting = _setting(tmp_path)
    part = texts.texts(setting)
    assert part.failures == []
    assert part.text.count("agrees") == 4  # one text and several, on one rank and on two
    one = texts._OneDevice(setting, setting.zoo.decoder())
    assert max(one.distance([3, 5], [token]) for token in range(9)) > 0.1


def test_times_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*words: Path | str) -> None:  # takes a while, and has its own tests
        shutil.copy(str(files("tensoropt.compiler.cost") / "devices/cpu.toml"), words[-1])

    monkeypatch.setattr(steps, "tensoropt_profile", measure)
    text, failures = check.check(_setting(tmp_path), ["segments", "profile", "graphs"])
    assert failures == []
    assert "| 64 products | 2 | 64 |" in text
    assert text.count("| gpt2 | 2 | leanest |") == 2


def test_a_part_that_fails_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(setting: Setting) -> Part:
        raise RunError("rank1: lost")

    parts = {"one": ("First", fail), "two": ("Second", lambda setting: Part("held\n"))}
    monkeypatch.setattr(check, "PARTS", parts)
    text, failures = check.check(_setting(tmp_path), ["one", "two"])
    assert text == "### First\n\nfailed: rank1: lost\n\n### Second\n\nheld\n"
    assert failures == ["one: rank1: lost"]


def test_parts_are_named() -> None:
    message = "unknown part 'speed', expected some of agree,segments"
    with pytest.raises(UserError, match=message):
        check.main(["--only", "agree,speed"])
