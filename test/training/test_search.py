"""The search over training steps: followers are right, costs are those of the program, ZeRO."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from on_tensors import ON_TENSORS
from onnx import helper, numpy_helper
from training.simulated import points, relative_error
from training.steps import Node, build, model_of, spec_of

from tensoropt.compiler.cost.memory import program_memory
from tensoropt.compiler.pipeline.driver import run_phase
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.search.engine.ft import solve_frontier
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.search.problem.training_tables import TrainingTables
from tensoropt.dialects.mlir import ir
from tensoropt.passes.search_strategies import annotate
from tensoropt.runtime.layout.mesh import Mesh

MESHES = [Mesh((2,)), Mesh((4,)), Mesh((2, 2))]


def network(folder: Path, layers: int = 2, width: int = 8, batch: int = 8) -> Path:
    """Write a network with residuals, a shared weight and a loss ``l``."""
    rng = np.random.default_rng(0)
    nodes, weights, x = [], {"shared": rng.standard_normal((width, width)) / 4}, "x"
    for n in range(layers):
        weights[f"w{n}"] = rng.standard_normal((width, 4 * width)) / 4
        weights[f"b{n}"] = rng.standard_normal(4 * width)
        weights[f"v{n}"] = rng.standard_normal((4 * width, width)) / 4
        nodes += [
            ("MatMul", [x, "shared"], f"s{n}", {}),
            ("MatMul", [f"s{n}", f"w{n}"], f"p{n}", {}),
            ("Add", [f"p{n}", f"b{n}"], f"q{n}", {}),
            ("Relu", [f"q{n}"], f"r{n}", {}),
            ("MatMul", [f"r{n}", f"v{n}"], f"t{n}", {}),
            ("Add", [x, f"t{n}"], f"x{n}", {}),
        ]
        x = f"x{n}"
    nodes += [("Mul", [x, x], "y", {}), ("ReduceSum", ["y"], "l", {"keepdims": 0})]
    held = {name: array.astype(np.float32) for name, array in weights.items()}
    path = folder / "network.onnx"
    inputs = {"x": np.zeros((batch, width), np.float32)}
    path.write_bytes(model_of(nodes, inputs, ["l"], held).SerializeToString())
    return path


@pytest.fixture
def step(tmp_path: Path) -> ir.Module:
    return build(network(tmp_path), spec_of("output:l", "adamw"))


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("options", ["adamw", "clipped", "accumulated", "decayed"])
def test_random_plans_compute_the_same_step(tmp_path: Path, mesh: Mesh, options: str) -> None:
    more = {
        "adamw": {},
        "clipped": {"clip_norm": 0.5},
        "accumulated": {"micro_batches": 2},
        "decayed": {"weight_decay": 0.1},
    }[options]
    path = network(tmp_path)

    def make() -> ir.Module:
        return build(path, spec_of("output:l", "momentum" if more else "adamw", **more))

    (point,) = points(make(), mesh, seed=len(options))
    assert relative_error(make, point) < 1e-4


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_charges_are_the_times_of_the_program(step: ir.Module, mesh: Mesh) -> None:
    tables = TrainingTables(read_graph(step), mesh, ON_TENSORS)
    charged = solve_frontier(tables.problem).points
    found = points(step, mesh)
    fastest = min(point.time for point in charged)
    assert found[0].time_s == pytest.approx(fastest, rel=1e-3)


@pytest.mark.parametrize("batches", [1, 2])
def test_static_memory_is_that_of_the_partitioned_step(tmp_path: Path, batches: int) -> None:
    path = network(tmp_path, width=32)
    for number in (0, -1):
        module = build(path, spec_of("output:l", "adamw", micro_batches=batches))
        point = points(module, Mesh((2, 2)))[number]
        annotate(module, point, "cpu")
        run_phase(module, "reshard")
        run_phase(module, "partition")
        memory = program_memory(module)
        assert point.static_bytes == pytest.approx(memory.static_bytes, rel=0.02)
        assert point.transient_bytes == pytest.approx(memory.transient_bytes, rel=0.1)


def test_static_memory_is_parameters_gradients_and_moments(tmp_path: Path) -> None:
    """On one device: four numbers per parameter, with accumulators or without, and literals."""
    path = network(tmp_path, width=32)
    parameters = 32 * 32 + 2 * (2 * 32 * 128 + 128)
    for batches in (1, 2):
        module = build(path, spec_of("output:l", "adamw", micro_batches=batches))
        (point,) = points(module, Mesh((1,)))
        assert point.static_bytes == pytest.approx(4 * 4 * parameters, rel=0.01)


def _splits(point: FrontierPoint, name: str) -> list[bool]:
    """Return on which axes an argument is split."""
    graph = point.tables.graph
    index = next(i for i, node in enumerate(graph.nodes) if node.name == name)
    return [p.is_split for p in point.strategies[index].results[0].placements]


def test_the_leanest_plan_splits_all_state_and_the_fastest_not(tmp_path: Path) -> None:
    """A large batch: all data parallel, weights whole for speed, split for memory (ZeRO)."""
    module = build(network(tmp_path, width=8, batch=512), spec_of("output:l", "adamw"))
    found = points(module, Mesh((4,)))
    names = [f"{w}{of}" for w in ("w0", "v1", "shared") for of in ("", ".mean", ".variance")]
    assert all(_splits(found[-1], name) == [True] for name in names)
    assert found[-1].static_bytes < found[0].static_bytes / 2


def test_moments_can_be_split_where_the_parameter_is_whole(tmp_path: Path) -> None:
    module = build(network(tmp_path, width=32, batch=512), spec_of("output:l", "adamw"))
    found = points(module, Mesh((4,)))
    pairs = [(_splits(p, "w0"), _splits(p, "w0.mean")) for p in found]
    assert ([False], [True]) in pairs


def rotated(path: Path) -> Path:
    """Write layers that share angles, which are computed from trained frequencies."""
    rng = np.random.default_rng(0)
    nodes: list[Node] = [("Mul", ["positions", "frequencies"], "angles", {})]
    nodes.append(("Cos", ["angles"], "cos", {}))
    weights = {"frequencies": rng.random(64).astype(np.float32)}
    x = "x"
    for layer in range(4):
        weights[f"w{layer}"] = rng.standard_normal((64, 64)).astype(np.float32) / 8
        nodes += [
            ("MatMul", [x, f"w{layer}"], f"m{layer}", {}),
            ("Mul", [f"m{layer}", "cos"], f"r{layer}", {}),
            ("Tanh", [f"r{layer}"], f"h{layer}", {}),
        ]
        x = f"h{layer}"
    nodes.append(("ReduceSum", [x], "l", {"keepdims": 0}))
    model = model_of(nodes, {"x": np.zeros((8, 2, 64), np.float32)}, ["l"], weights)
    positions = numpy_helper.from_array(np.arange(2, dtype=np.float32)[:, None], "positions")
    constant = helper.make_node("Constant", [], ["positions"], value=positions)
    model.graph.node.insert(0, constant)
    path.write_bytes(model.SerializeToString())
    return path


def test_angles_of_all_layers_join_none(tmp_path: Path) -> None:
    """A small value of many readers is whole, and its gradient is reduced after the last sum."""

    def make() -> ir.Module:
        return build(rotated(tmp_path / "model.onnx"), spec_of("output:l"))

    graph = read_graph(make())
    tables = TrainingTables(graph, Mesh((2, 2)), ON_TENSORS)
    options = {node.name: tables.options[i] for i, node in enumerate(graph.nodes)}
    assert len(options["cos"]) == 1
    assert options["cos"][0].results[0].is_replicated
    sums = [own for name, own in options.items() if name.startswith("cos.grad.Sum")]
    assert len(sums) == 2
    for own in sums:
        assert [p.is_partial for p in own[0].results[0].placements] == [True, True]
        assert len(own) == 1
    assert len(options["m0"]) > 1
    for point in (points(make(), Mesh((2, 2)))[n] for n in (0, -1)):
        assert relative_error(make, point) < 1e-4
