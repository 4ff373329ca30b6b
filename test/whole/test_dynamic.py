"""Symbolic dimensions: they stay open in the graphs of a plan, unless `--dim` fixes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import zoo
from onnx import helper

from tensoropt.compiler.cli.opt import main
from tensoropt.runtime.inference.jobs import check_plans
from tensoropt.runtime.inference.jobs import run as run_plans
from tensoropt.runtime.support.job import Job

DECODERS = [
    *("decoder_small", "decoder_standard", "decoder_runtime", "decoder_4_bits"),
    *("decoder_packed", "decoder_runtime_packed"),
]
ENDS: list[tuple[str, list[int]]] = [("s", [4]), ("n", [])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dynamic")


def _model(name: str, folder: Path) -> Path:
    return zoo.provide(name, folder)


def _plan(model: Path, *flags: str) -> Path:
    """Compile the leanest plan on two devices, or what the flags say."""
    plan = model.parent / f"{model.stem}{''.join(flags)}"
    given = flags if "--search" in flags else ("--device", "v100", "--pick", "leanest", *flags)
    assert main([str(model), "--devices", "2", *given, "-o", str(plan)]) == 0
    return plan


def _tensors(plan: Path) -> dict[str, Any]:
    document = json.loads((plan / "plan.json").read_text())
    return {row["name"]: row for row in (*document["inputs"], *document["outputs"])}


def _split(plan: Path, op: str) -> list[bool]:
    """Say of each node of one operator whether the plan splits it."""
    rows = json.loads((plan / "plan.json").read_text())["strategies"]
    held = [row["operands"] + row["results"] for row in rows if row["op"] == op]
    return [any(text != "R" for layout in layouts for text in layout) for layouts in held]


@pytest.mark.parametrize("name", DECODERS)
def test_one_plan_serves_every_length_with_the_cache_split_by_heads(
    name: str, folder: Path
) -> None:
    model = _model(name, folder)
    plan = _plan(model)
    tensors = _tensors(plan)
    for layer in range(2):
        for kind in ("key", "value"):
            past, present = (tensors[f"{side}.{layer}.{kind}"] for side in ("past", "present"))
            assert past["shape"] == ["batch", 2, "past", 16]
            assert present["shape"] == ["batch", 2, "past + sequence", 16]
            assert past["layout"] == present["layout"] == ["S(1)"]
    for past_size in (0, 7):
        dims = {"batch": 2, "sequence": 1, "past": past_size}
        [result] = check_plans([plan], model, dims=dims, int_range=(0, 200), threads=1)
        assert result.passed, result


@pytest.mark.parametrize("name", DECODERS[:2])
def test_random_plans_of_a_model_with_symbolic_dimensions(name: str, folder: Path) -> None:
    model = _model(name, folder)
    plans = [_plan(model, "--search", "random", "--seed", str(seed)) for seed in range(4)]
    dims = {"batch": 3, "sequence": 2, "past": 5}
    results = check_plans(plans, model, dims=dims, int_range=(0, 200), threads=1)
    assert all(result.passed for result in results), results


def test_an_exported_model_splits_by_heads_though_nothing_is_fixed(folder: Path) -> None:
    """Its shapes are computed when it runs: inference alone does not find the number of heads."""
    model = zoo.transformer_path("llama_tiny_dynamic")
    plan = folder / "llama"
    assert (
        main(
            [
                str(model),
                "--devices",
                "2",
                "--pick",
                "leanest",
                "--resolution",
                "0",
                "-o",
                str(plan),
            ]
        )
        == 0
    )
    assert all(_split(plan, "MatMul"))
    assert all(_split(plan, "Softmax"))
    for dims in ({"batch": 1, "seq": 9}, {"batch": 3, "seq": 4}):
        assert check_plans([plan], model, dims=dims, threads=1)[0].passed


def test_rank_graphs_keep_the_names_of_dimensions(folder: Path) -> None:
    plan = _plan(_model("decoder_small", folder))
    graph = onnx.load(plan / "rank1.onnx", load_external_data=False).graph
    shapes = {
        value.name: [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }
    assert shapes["ids"] == ["batch", "sequence"]
    assert shapes["past.0.key"] == ["batch", 1, "past", 16]
    assert shapes["present.0.key"] == ["batch", 1, "past + sequence", 16]


def test_a_size_fixes_the_sums_that_it_is_in(folder: Path) -> None:
    model = _model("decoder_small", folder)
    tensors = _tensors(_plan(model, "--dim", "past=12"))
    assert tensors["past.0.key"]["shape"] == ["batch", 2, 12, 16]
    assert tensors["present.0.key"]["shape"] == ["batch", 2, "12 + sequence", 16]


@pytest.mark.parametrize("name", DECODERS)
def test_a_cache_grows_by_the_new_tokens(name: str, folder: Path) -> None:
    """ONNX Runtime's own inference takes it to be as long as it was."""
    model = _model(name, folder)
    plan = _plan(model, "--dim", "past=12", "--dim", "sequence=1", "--dim", "batch=8")
    assert _tensors(plan)["present.0.key"]["shape"] == [8, 2, 13, 16]
    assert check_plans([plan], model, int_range=(0, 200), threads=1)[0].passed


def test_a_plan_generates_what_one_device_does(folder: Path, tmp_path: Path) -> None:
    """Three steps, the caches of each given to the next."""
    model = _model("decoder_standard", folder)
    plan, session = _plan(model), onnxruntime.InferenceSession(model)
    names = [output.name for output in session.get_outputs()]
    feeds: dict[str, Any] = {
        held.name: np.zeros((1, 2, 0, 16), np.float32) for held in session.get_inputs()[1:]
    }
    ids = np.array([[3, 1, 4, 1, 5]])
    for _ in range(3):
        np.savez(tmp_path / "in.npz", ids=ids, **feeds)
        files = {"inputs": str(tmp_path / "in.npz"), "outputs": str(tmp_path / "out.npz")}
        run_plans(Job((str(plan),), threads=1, **files))
        expected = dict(zip(names, session.run(names, {"ids": ids, **feeds}), strict=True))
        with np.load(tmp_path / "out.npz") as found:
            for name in names:
                np.testing.assert_allclose(found[name], expected[name], rtol=1e-3, atol=1e-4)
            feeds = {name: found[name.replace("past", "present")] for name in feeds}
            ids = found["scores"][:, -1:].argmax(-1)
    assert feeds["past.0.key"].shape == (1, 2, 7, 16)


def test_strategies_that_split_a_symbolic_dimension_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = _model("decoder_small", folder)
    fixed = folder / "fixed"
    sizes = ["--dim", "batch=4", "--dim", "sequence=4", "--dim", "past=4"]
    assert main([str(model), "--devices", "2", *sizes, "-o", str(fixed)]) == 0
    assert _tensors(fixed)["ids"]["layout"] == ["S(0)"]
    capsys.readouterr()
    assert main([str(model), "--strategies", str(fixed), "-o", str(folder / "open")]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --strategies: 'ids' cannot lie as [S(0)]")
    assert "expected dimension 0 whole or fixed by --dim, got: a symbolic size" in line


def test_sizes_that_are_only_question_marks(folder: Path) -> None:
    """As Paddle writes them: -1 and `?` say nothing, so none of them is equal to another."""
    model = _of_unknown_sizes(folder / "unknown.onnx")
    opened, fixed = _plan(model), _plan(model, "--dim", "x:0=2")
    assert _tensors(opened)["x"]["shape"] == ["x:0", 3, "x:2", "x:3"]
    assert _tensors(fixed)["x"]["shape"] == [2, 3, "x:2", "x:3"]
    sizes = {"x:2": 6, "x:3": 10}
    assert check_plans([opened], model, dims={"x:0": 2, **sizes}, threads=1)[0].passed
    assert check_plans([fixed], model, dims=sizes, threads=1)[0].passed


def _of_unknown_sizes(path: Path) -> Path:
    """Write a model that flattens its pixels, whose inner types say `?` too."""
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Size", ["x"], ["n"])]
    nodes += [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Flatten", ["r"], ["y"])]
    kind = onnx.TensorProto.FLOAT
    given, inner = (helper.make_tensor_value_info(n, kind, [-1, 3, "?", "?"]) for n in "xr")
    ends = [helper.make_tensor_value_info("y", kind, ["?", "?"])]
    ends += [helper.make_tensor_value_info(n, onnx.TensorProto.INT64, k) for n, k in ENDS]
    graph = helper.make_graph(nodes, "unknown", [given], ends, value_info=[inner])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


def test_a_scalar_is_declared_of_what_was_traced_with_a_batch_of_one(tmp_path: Path) -> None:
    """Exporters do so behind a Squeeze without axes, which leaves a batch of four what it is."""
    path, plan = tmp_path / "squeezed.onnx", tmp_path / "plan"
    text = """<ir_version: 10, opset_import: ["" : 17]>
        squeezed (float[batch,1] x) => (float y) { h = Squeeze (x) y = Sigmoid (h) }"""
    onnx.save(onnx.parser.parse_model(text), path)
    assert main([str(path), "--devices", "2", "-o", str(plan)]) == 0
    assert check_plans([plan], path, dims={"batch": 4}, threads=1)[0].passed
