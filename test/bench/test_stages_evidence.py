"""Figures of the comparisons of pipelines with published steps."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from accuracy import long_training
from accuracy.gpu_plans import fastest_plan, steps_of
from accuracy.long_training import TITAN
from graphs.gpt import Gpt
from graphs.llama import Llama
from hypothesis import given
from hypothesis import strategies as st
from stages import clusters, layered, megatron, megatron_degrees
from stages.clusters import Run, best_configurations, runs_of
from stages.cut_bounds import least_slowest_s
from stages.layered import Degrees, even_chunks, predict
from stages.megatron import SETTINGS
from stages.systems import System
from stages.updates import Update

from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.stages.chunk_costs import Costs, NodeTimes
from tensoropt.compiler.stages.devices import stage_link

TINY = Gpt(layers=5, width=32, heads=2, vocabulary=64, sequence=8, batch=2, dtype="float32")
PLAIN = System(
    attention="operators", fuses=False, precision="float32", recompute="none", parameter_bytes=4,
    gradient_bytes=4, optimizer_bytes=8,
)  # fmt: skip
H100 = load_device("h100")


LLAMA = Llama(
    layers=5, width=256, heads=4, groups=4, inner=512, vocabulary=512, sequence=8192, batch=4
)


@given(st.lists(st.floats(0.01, 9.0), min_size=2, max_size=6), st.integers(2, 3))
def test_no_partition_has_a_slowest_part_below_the_bound(times_s: list[float], parts: int) -> None:
    sums_s = (
        max(np.bincount(own, times_s, parts))
        for own in itertools.product(range(parts), repeat=len(times_s))
    )
    assert least_slowest_s(times_s, parts) <= min(sums_s) * (1 + 1e-9)


def test_three_layers_stand_for_all() -> None:
    """Layers that are repeated take the time and the memory of a model that has them."""
    graph = layered._graph(TINY, PLAIN)
    (own,) = NodeTimes(fastest_plan(graph, 1, H100)).step([])
    (part,) = layered._parts(TINY, PLAIN, 1, TINY.batch, H100).chunks([TINY.layers])
    assert part.work_s == pytest.approx(own.forward_s + own.backward_s + own.weights_s, rel=0.02)
    assert part.costs.kept_bytes == pytest.approx(own.kept_bytes, rel=0.02)
    assert part.parameters == pytest.approx(TINY.build("x").parameters, rel=0.01)


def test_what_a_system_hides_or_fuses_takes_no_more_time() -> None:
    degrees = Degrees(1, 2, 2, even_chunks(TINY.layers, 2), 2, 4)
    plain = predict(TINY, PLAIN, degrees, [[H100]] * 2)
    hidden = dataclasses.replace(PLAIN, hides_exchange=True)
    fused = dataclasses.replace(PLAIN, fuses=True)
    waits = dataclasses.replace(PLAIN, waits_for_sends=True)
    assert predict(TINY, hidden, degrees, [[H100]] * 2).exchange_s < plain.exchange_s
    assert predict(TINY, fused, degrees, [[H100]] * 2).pipeline_s < plain.pipeline_s
    assert predict(TINY, waits, degrees, [[H100]] * 2).pipeline_s > plain.pipeline_s
    assert plain.memory_bytes == predict(TINY, waits, degrees, [[H100]] * 2).memory_bytes


def test_a_stage_sends_itself_nothing() -> None:
    parts, degrees = [Costs(1.0, 1.0, 1.0)] * 4, Degrees(1, 1, 2, (1,) * 4, 2, 4)
    for waits, free in ((False, 0.0), (True, 1.0)):
        system = dataclasses.replace(PLAIN, waits_for_sends=waits)
        zigzag = layered._costs(TINY, system, degrees, parts, (0, 1, 1, 0), H100)
        alone = layered._costs(TINY, system, degrees, parts, (0, 0, 0, 0), H100)
        sent = [own.forward_s - free if waits else own.sent_s for own in zigzag]
        size = TINY.batch * TINY.sequence * TINY.width * 4
        message_s = stage_link(H100, 2, (1, 1)).send_s(size)
        wanted = [1, 1, 1, 1] if waits else [1, 0, 1, 0]
        assert sent == pytest.approx([message_s * n for n in wanted])
        assert {(own.forward_s, own.sent_s) for own in alone} == {(1.0, 0.0)}


def test_shared_moments_are_a_part_and_a_gather() -> None:
    shares = dataclasses.replace(PLAIN, shards_moments=True)
    whole, own = (Update(system, 8, 4, 1e9, 0, H100) for system in (PLAIN, shares))
    assert own.static_bytes == int(1e9 * (4 + 4 + 8 / 4)) < whole.static_bytes
    assert own.exchange_s(0.0, 0.0) == pytest.approx(whole.exchange_s(0.0, 0.0), rel=1e-3)
    assert Update(shares, 8, 1, 1e9, 0, H100).exchange_s(0.0, 0.0) == 0


def test_shared_parameters_are_gathered_for_each_pass() -> None:
    shares = dataclasses.replace(PLAIN, shards_moments=True)
    gathers = dataclasses.replace(shares, shards_parameters=True)
    one, own = (Update(system, 8, 4, 1e9, 1e7, H100) for system in (shares, gathers))
    assert own.static_bytes == int(1e9 * (4 + 8) / 4 + 1e7 * 4)
    hidden = dataclasses.replace(shares, hides_exchange=True)
    gather_s = Update(hidden, 8, 4, 1e9, 1e7, H100).exchange_s(1e9, 0.0)
    assert own.exchange_s(0.0, 0.0) == pytest.approx(one.exchange_s(0.0, 0.0) + gather_s)


def _layer(system: System) -> Costs:
    return layered._parts(LLAMA, system, 1, LLAMA.batch, H100).layer.costs


def test_slower_attention_and_products_take_longer() -> None:
    """A step whose products all have half of the rate is the sum of the two halves."""
    own = _layer(TITAN)
    rates = {"attention_rate": TITAN.attention_rate / 2}, {"layer_rate": 0.5}
    attention, products = (_layer(dataclasses.replace(TITAN, **rate)) for rate in rates)
    both = _layer(dataclasses.replace(TITAN, product_rate=0.5))
    assert attention.forward_s > own.forward_s < products.forward_s
    sums_s = attention.forward_s + products.forward_s - own.forward_s
    assert both.forward_s == pytest.approx(sums_s)


def test_repeated_products_take_time_and_are_not_kept() -> None:
    light = dataclasses.replace(TITAN, recompute="light")
    own = _layer(light)
    repeated = _layer(dataclasses.replace(light, repeats=("mlp/up/",)))
    saved = LLAMA.batch * LLAMA.sequence * LLAMA.inner * 2
    assert own.kept_bytes - repeated.kept_bytes == saved
    assert repeated.forward_s > own.forward_s


def test_ranks_with_parts_of_a_text_attend_to_all_of_it() -> None:
    """Two ranks share the tokens of a text, and half of its pairs of tokens is twice as many."""
    degrees = Degrees(1, 1, 1, (LLAMA.layers,), 2, 1)
    system = dataclasses.replace(TITAN, rest_bytes=0)
    half = dataclasses.replace(LLAMA, sequence=LLAMA.sequence // 2)
    slower = dataclasses.replace(system, attention_rate=system.attention_rate / 2)
    own = predict(LLAMA, system, dataclasses.replace(degrees, context=2), [[H100]])
    alone = predict(half, slower, degrees, [[H100]])
    assert own.pipeline_s == alone.pipeline_s
    assert own.memory_bytes < alone.memory_bytes  # they share moments


def test_long_steps_are_predicted() -> None:
    """Of published steps with 8B parameters, all but two with four and more parts of a text."""
    rows = [row for row in long_training.ROWS if row.name.startswith("8B")]
    for row in (row for row in rows if row.degrees.context <= 2):
        time_s, memory_bytes = long_training._theirs(row)
        assert time_s == pytest.approx(row.step_s, rel=0.1), row
        if row.memory_gib is not None:
            assert memory_bytes == pytest.approx(row.memory_gib * 2**30, rel=0.1), row


def test_published_parameters_are_those_of_the_rows() -> None:
    """The names of the rows are billions of parameters."""
    for setting in SETTINGS:
        for row in setting.rows:
            if row.name.endswith("B"):
                each = 12 * row.width**2
                found = (row.layers * each + setting.vocabulary * row.width) / 1e9
                assert found == pytest.approx(float(row.name[:-1]), rel=0.15)


@pytest.mark.parametrize(("device", "name"), [("a100", "18B"), ("h100", "70B")])
def test_megatron_steps_are_predicted(device: str, name: str) -> None:
    (setting,) = (own for own in SETTINGS if own.device == device)
    (row,) = (own for own in setting.rows if own.name == name)
    _, step = megatron.predicted(row, setting, setting.long)
    assert step.time_s == pytest.approx(row.step_s, rel=0.15)


def test_runs_on_gh200_are_predicted() -> None:
    """Two runs that Sailor measured (eth-easl/sailor), of the same batch on 64 GPUs."""
    first, second, _ = _runs()
    steps = [clusters.predicted(run) for run in (first, second)]
    assert steps[0].time_s == pytest.approx(7.039, rel=0.1)
    assert steps[1].time_s == pytest.approx(6.429, rel=0.1)
    assert steps[1].time_s < steps[0].time_s
    assert steps[0].memory_bytes == pytest.approx(37.28e9, rel=0.1)
    assert steps[1].memory_bytes == pytest.approx(44.03e9, rel=0.1)


def _published(layers: list[int], data: int, step_s: float) -> dict[str, object]:
    return {
        "gpu": "GH-96", "tensor_parallel": 4, "data_parallel": data, "layers_of_stages": layers,
        "micro_batch": 4, "global_batch": 1024, "step_s": step_s, "peak_bytes": 1,
    }  # fmt: skip


def _runs() -> list[Run]:
    rows = [_published([7, 9, 9, 9], 4, 7.0), _published([16, 18], 8, 6.4)]
    replicas = [{"gpu": gpu, "tensor_parallel": 8} for gpu in ("RTX-3090", "RTX-2080")]
    stages = [{"layers": layers, "replicas": replicas} for layers in (12, 14)]
    mixed = {"stages": stages, "micro_batch": 2, "global_batch": 256, "step_s": 1, "peak_bytes": 1}
    return runs_of({"runs": [*rows, mixed]})


def test_each_published_run_has_its_layers_and_gpus() -> None:
    first, second, mixed = _runs()
    assert first.degrees == Degrees(4, 4, 4, (6, 9, 9, 8), 4, 64)
    assert first.gpus == (("GH-96",),) * 4
    assert second.degrees == Degrees(4, 8, 2, (15, 17), 4, 32)
    assert mixed.degrees == Degrees(8, 2, 2, (11, 13), 2, 64)
    assert mixed.gpus == (("RTX-3090", "RTX-2080"),) * 2
    assert (first.ranks, second.ranks, mixed.ranks) == (64, 64, 32)


def test_the_fastest_run_of_a_number_of_gpus_is_compared() -> None:
    runs = _runs()
    found = [layered.Prediction(time_s, 0.0, 0.0, (1,)) for time_s in (6.0, 7.0, 1.0)]
    assert [*best_configurations(runs, found)] == [(64, runs[1], runs[0])]


def test_splits_have_as_many_gpus_and_texts_as_megatrons() -> None:
    for row in (row for setting in SETTINGS for row in setting.rows):
        splits = [*megatron_degrees._splits(row)]
        gpus = row.tensor * row.stages * row.data
        assert all(tensor * stages * data == gpus for tensor, stages, data, _ in splits)
        assert all(row.batch % (data * size) == 0 for *_, data, size in splits)
        own = row.tensor, row.stages, row.data
        assert {*row.micro_batches} <= {size for *degrees, size in splits if (*degrees,) == own}


def test_ranks_of_a_layer_gather_activations_and_no_weights() -> None:
    system = dataclasses.replace(TITAN.planned, recompute="none")
    point = layered._point(LLAMA, system, 2, 4, H100)
    graph, gathered = point.tables.graph, 0
    for node, step in steps_of(point):
        if step.movement is None or step.movement.kind != "all_gather" or node.phase == "update":
            continue
        assert step.movement.value is not None
        info = graph.values[step.movement.value].info
        assert info is not None
        if node.name.startswith("layer"):
            assert LLAMA.sequence in info.sizes, node.name
            gathered += 1
    assert gathered > 3 * 3
