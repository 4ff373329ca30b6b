"""`--also`: one frontier of several forms of a model."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from handmade_decoder import VOCABULARY, write_decoder
from onnx import TensorProto, helper, numpy_helper

import tensoropt as to
from tensoropt.compiler.exporter.standard.int8_caches import write_int8_caches

FLAGS = ("--devices", "2", "--pareto")


def write_products(path: Path, width: int, times: int, rows: int) -> Path:
    """Write a model that multiplies ``rows`` by the same square weight, several ``times``."""
    weight = np.random.default_rng(width).normal(0, width**-0.5, (width, width))
    nodes = [
        helper.make_node("MatMul", [f"x{n}", "w"], [f"x{n + 1}"], f"product{n}")
        for n in range(times)
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, width])
        for name in ("x0", f"x{times}")
    ]
    weights = [numpy_helper.from_array(weight.astype(np.float32), "w")]
    graph = helper.make_graph(nodes, "products", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A fast model with a large weight, and a slow one with a small weight."""
    folder = tmp_path_factory.mktemp("forms")
    return (
        write_products(folder / "large.onnx", 4096, 1, 64),
        write_products(folder / "small.onnx", 256, 20, 8192),
    )


def points_of(opt: Any, *flags: object) -> list[dict[str, Any]]:
    done = opt(*flags, "--format", "json")
    assert done.status == 0, done.err
    return json.loads(done.out)["points"]


def test_points_are_those_that_none_of_any_form_beats(opt, forms: tuple[Path, Path]) -> None:
    alone = [
        {**point, "model": form.name} for form in forms for point in points_of(opt, form, *FLAGS)
    ]

    def is_beaten(point: dict[str, Any]) -> bool:
        return any(
            other["time_s"] <= point["time_s"]
            and other["process_bytes"] <= point["process_bytes"]
            and other is not point
            for other in alone
        )

    wanted = sorted((p for p in alone if not is_beaten(p)), key=lambda point: point["time_s"])
    found = points_of(opt, forms[0], *FLAGS, "--also", forms[1])
    assert {point["model"] for point in found} == {form.name for form in forms}
    own = ("model", "mesh", "time_s", "process_bytes")
    assert [[p[k] for k in own] for p in found] == [[p[k] for k in own] for p in wanted]
    assert [point["index"] for point in found] == [*range(len(found))]
    marks = [mark for point in found for mark in point["marks"]]
    assert sorted(marks) == ["fastest", "knee", "leanest"]


def test_the_picked_point_is_written(opt, forms: tuple[Path, Path], tmp_path: Path) -> None:
    for pick, model in (("fastest", 0), ("leanest", 1), ("0", 0)):
        plan = tmp_path / pick
        done = opt(forms[0], "--devices", "2", "--also", forms[1], "--pick", pick, "-o", plan)
        assert done.status == 0, done.err
        assert json.loads((plan / "plan.json").read_text())["model"]["name"] == forms[model].name


def test_tables_name_the_models(opt, forms: tuple[Path, Path]) -> None:
    table = opt(forms[0], *FLAGS, "--also", forms[1]).out.splitlines()
    assert table[1].split()[:3] == ["index", "model", "mesh"]
    assert {line.split()[1] for line in table[2:-1]} == {form.name for form in forms}
    rows = [*csv.DictReader(io.StringIO(opt(forms[0], *FLAGS, "--also", forms[1],
                                            "--format", "csv").out))]  # fmt: skip
    assert {row["model"] for row in rows} == {form.name for form in forms}


def test_a_form_that_does_not_fit_is_left_out(opt, refused, forms: tuple[Path, Path]) -> None:
    leanest = [points_of(opt, form, *FLAGS)[-1]["process_bytes"] for form in forms]
    assert leanest[1] < leanest[0]
    done = opt(forms[0], *FLAGS, "--also", forms[1], "--memory", str(sum(leanest) // 2))
    assert "small.onnx" in done.out
    assert "large.onnx " not in done.out
    assert "note: large.onnx: --memory: nothing fits" in done.err
    message = refused(forms[0], *FLAGS, "--also", forms[1], "--memory", "1KiB", status=3)
    assert "nothing fits" in message


def test_forms_from_python(forms: tuple[Path, Path], tmp_path: Path) -> None:
    large, small = map(to.load, forms)
    frontier = large.frontier(devices=2, also=[small])
    assert (frontier.fastest.model, frontier.leanest.model) == ("large.onnx", "small.onnx")
    assert "of small.onnx" in repr(frontier.leanest)
    plan = frontier.leanest.compile(tmp_path / "plan")
    assert plan.model == "small.onnx"
    assert "small.onnx" in str(frontier)
    assert frontier.leanest.explain() is not None


def test_the_effect_of_small_caches_is_shown(opt, tmp_path: Path) -> None:
    model = write_decoder(tmp_path / "m.onnx", layers=1, in_place=True)
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, 48).tolist()
    effect = write_int8_caches(model, tmp_path / "int8.onnx", tokens)
    flags = ("--devices", "2", "--dim", "past=1..4096", "--pareto")
    done = opt(model, *flags, "--also", tmp_path / "int8.onnx")
    assert f"int8.onnx: {effect}" in done.out.splitlines()
    assert re.search(r"^ +\d+ +int8.onnx", done.out, re.M)
    exact = points_of(opt, model, *flags)
    both = points_of(opt, model, *flags, "--also", tmp_path / "int8.onnx")
    kept = [point["time_s"] for point in both if point["model"] == "m.onnx"]
    assert kept == [point["time_s"] for point in exact]  # no rounded cache beats an exact one
    document = json.loads(opt(tmp_path / "int8.onnx", *flags, "--format", "json").out)
    assert document["effects"]["int8.onnx"]["same"] == effect.same
    level = "service:rate=40,prompt=24,answer=16,part=16"
    done = opt(model, "--devices", "1", "--objective", level, "--also", tmp_path / "int8.onnx")
    assert f"int8.onnx: {effect}" in done.out.splitlines()


def test_an_effect_of_another_form(refused, forms: tuple[Path, Path], tmp_path: Path) -> None:
    proto = onnx.load(forms[1])
    proto.metadata_props.add(key="tensoropt_int8_caches", value='{"same": 1}')
    path = tmp_path / "odd.onnx"
    onnx.save(proto, path)
    assert "expected the effect that --int8-caches records" in refused(path, *FLAGS)


def test_flags_that_do_not_go_with_it(refused, forms: tuple[Path, Path], tmp_path: Path) -> None:
    for flags in (["--objective", "profile"], ["--compare", "all"]):
        message = refused(forms[0], "--also", forms[1], *flags)
        assert "--also is for one frontier of several models, expected no" in message
    same = tmp_path / "large.onnx"
    same.write_bytes(forms[0].read_bytes())
    message = refused(forms[0], *FLAGS, "--also", same)
    assert "--also: expected files with different names" in message
