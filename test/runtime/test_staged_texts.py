"""Texts through the stages of a plan, against one device that keeps no caches."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path

import numpy as np
import onnx
import pytest
from handmade_decoder import greedy, log_probabilities, write_decoder
from onnx import helper

import tensoropt as to
from tensoropt.compiler.cli.opt import main as compile_model
from tensoropt.compiler.stages.chunk_costs import NodeTimes
from tensoropt.compiler.stages.order import order_of
from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.inference.jobs import check_plan
from tensoropt.runtime.inspection.validation import validate
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import RankFailedError, UserError
from tensoropt.runtime.text.decoder import MASK
from tensoropt.runtime.text.packing import can_count, pack_tokens
from tensoropt.runtime.text.session import TextSession

CONTEXT = 60
PROMPTS = ([3, 7, 1], [5, 6, 7, 8, 9], [1], [3, 7, 1] * 6)


@pytest.fixture(scope="module", params=["concat", "in place"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("staged")
    config = {"max_position_embeddings": CONTEXT, "eos_token_id": None}
    (folder / "config.json").write_text(json.dumps(config))
    return write_decoder(folder / "m.onnx", in_place=request.param == "in place")


@pytest.fixture(scope="module")
def in_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("staged")
    return write_decoder(folder / "m.onnx", in_place=True)


def plan_of(model: Path, ranks: int, *flags: str, stages: int = 2) -> Path:
    plan = model.with_name("-".join(["plan", str(ranks), str(stages), *flags]).replace("=", ""))
    if not plan.exists():
        own = ["--device", "v100", "--pick", "leanest", "--stages", str(stages), *flags]
        assert compile_model([str(model), "--devices", str(ranks), *own, "-o", str(plan)]) == 0
    return plan


def graphs_of(plan: Path) -> list[onnx.ModelProto]:
    """Return the graph of each rank."""
    read = Plan.load(plan)
    return [onnx.load(read.inference_graph(n), load_external_data=False) for n in range(read.ranks)]


def names_of(graph: onnx.ModelProto) -> tuple[set[str], set[str]]:
    """Return the names of the inputs and outputs."""
    return {v.name for v in graph.graph.input}, {v.name for v in graph.graph.output}


@pytest.mark.parametrize(("ranks", "stages"), [(2, 2), (4, 2)])
def test_tokens_are_those_of_one_device(model: Path, ranks: int, stages: int) -> None:
    plan = plan_of(model, ranks, stages=stages)
    assert validate(plan) == []
    pieces = {cache.layout.pieces(1) for cache in Plan.load(plan).inputs if "past" in cache.name}
    # A stage that does not set the peak may keep its caches whole.
    assert max(pieces) == ranks // stages
    with TextSession(plan, threads=1) as session:
        (found,) = session.generate(PROMPTS[0], max_tokens=12)
        assert list(found.tokens) == greedy(model, PROMPTS[0], 12)
        several = session.generate(list(PROMPTS), max_tokens=6)
    assert [list(one.tokens) for one in several] == [greedy(model, p, 6) for p in PROMPTS]


def test_each_cache_is_of_one_stage(model: Path) -> None:
    plan = plan_of(model, 2)
    (first, last), caches = map(names_of, graphs_of(plan)), Plan.load(plan).document["caches"]
    own = [[c for c in caches if c["past"] in given] for given, _ in (first, last)]
    assert [[c["past"] for c in each] for each in own] == [
        [f"past_key_values.{layer}.{part}" for part in ("key", "value")] for layer in (0, 1)
    ]
    for each, (_, made) in zip(own, (first, last), strict=True):
        assert {c["present"] for c in each} == {name for name in made if "present" in name}
    assert "logits" in last[1]


def test_masks_are_computed_by_each_stage(model: Path) -> None:
    plan = plan_of(model, 2)
    assert all(MASK in given for given, _ in map(names_of, graphs_of(plan)))
    staged = Plan.load(plan).staged
    assert staged is not None
    assert {own.dtype for own in staged.passed} == {"float32"}
    assert all(own.shape[:2] == (None, None) and own.shape[2] for own in staged.passed)


def test_texts_join_and_leave(model: Path) -> None:
    """More texts than slots; some are closed, others begin like a text that runs."""
    draw = random.Random(1)
    common = [draw.randrange(48) for _ in range(20)]
    prompts = [[draw.randrange(48) for _ in range(draw.choice((1, 3, 9, 17)))] for _ in range(5)]
    prompts += [[*common, n] for n in range(3)]
    with TextSession(plan_of(model, 2), threads=1, slots=3, step_tokens=4) as session:
        streams = [session.stream(p, max_tokens=2 + 2 * n) for n, p in enumerate(prompts)]
        next(streams[4])
        streams[4].close()
        found = [[piece.token for piece in stream] for stream in streams]
    for n in (0, 1, 2, 3, 5, 6, 7):
        assert found[n] == greedy(model, prompts[n], 2 + 2 * n)


def test_fixed_sizes_on_stand_ins(model: Path, log: Path) -> None:
    """On stand-ins for NCCL and CUDA: values pass through the host, caches stay on the device."""
    flags = ["--dim", "batch=4", "--dim", "sequence=1"]
    with TextSession(plan_of(model, 4, *flags), threads=1, provider="cuda") as session:
        rounds = [session.generate(list(PROMPTS), max_tokens=6) for _ in range(3)]
    for found in rounds:  # caches are released after each
        assert [list(one.tokens) for one in found] == [greedy(model, p, 6) for p in PROMPTS]
    assert any(log.iterdir())


def test_proposed_tokens(in_place: Path) -> None:
    with TextSession(plan_of(in_place, 2), threads=1, slots=1, speculate=4) as session:
        (found,) = session.generate(PROMPTS[3], max_tokens=24)
        assert session.accepted > 0
    assert list(found.tokens) == greedy(in_place, PROMPTS[3], 24)


@pytest.mark.parametrize("slots", [1, 3])
def test_turns_of_a_chat(in_place: Path, slots: int) -> None:
    """Each stage keeps its caches of the same texts."""
    chats = [[n, *range(17)] for n in range(slots)]
    with TextSession(plan_of(in_place, 2), threads=1, slots=slots) as session:
        for _ in range(3):
            found = session.generate(chats, max_tokens=5)
            assert [list(one.tokens) for one in found] == [greedy(in_place, p, 5) for p in chats]
            pairs = [*zip(chats, found, strict=True)]
            chats = [[*chat, *one.tokens, 3] for chat, one in reversed(pairs)]
        assert session.copied == slots * (22 + 28)


def test_probabilities_of_a_prompt(in_place: Path) -> None:
    wanted = log_probabilities(in_place, PROMPTS[3])
    with TextSession(plan_of(in_place, 2), threads=1) as session:
        first, *_ = session.stream(PROMPTS[3], max_tokens=2, prompt_logprobs=1)
    assert [own[0][0] for own in first.prompt] == PROMPTS[3][1:]
    pairs = zip(wanted, PROMPTS[3][1:], strict=False)
    expected = [row[token] for row, token in pairs]
    np.testing.assert_allclose([own[0][1] for own in first.prompt], expected, atol=1e-4)


def test_each_graph_packs_tokens(in_place: Path) -> None:
    pasts = [cache["past"] for cache in Plan.load(plan_of(in_place, 2)).document["caches"]]
    for graph in graphs_of(plan_of(in_place, 2)):
        assert pack_tokens(graph, MASK, pasts)


@pytest.mark.skipif(not can_count(CPU), reason="of ONNX Runtime 1.32 and later")
def test_texts_share_steps(in_place: Path) -> None:
    """Proposals of several texts are verified only in steps of packed tokens."""
    prompts = [PROMPTS[3], [9, 8, 9, 8, 9, 8, 9]]
    with TextSession(plan_of(in_place, 2), threads=1, speculate=3) as session:
        found = session.generate(prompts, max_tokens=20)
        assert session.proposed > 0
    assert [list(one.tokens) for one in found] == [greedy(in_place, p, 20) for p in prompts]


def test_a_stage_without_attention(tmp_path: Path) -> None:
    """The last stage has the scores alone, as most of the time is in the vocabulary."""
    model = write_decoder(tmp_path / "m.onnx", layers=1, in_place=True, vocabulary=4096)
    plan = plan_of(model, 2)
    given, made = names_of(graphs_of(plan)[1])
    assert made == {"logits"}
    assert not any("past" in name for name in given)
    with TextSession(plan, threads=1) as session:
        found = session.generate(list(PROMPTS), max_tokens=6)
    assert [list(one.tokens) for one in found] == [greedy(model, p, 6) for p in PROMPTS]


def test_one_step_against_the_model(model: Path) -> None:
    dims = {"batch": 2, "sequence": 1, "total": 4, "past": 3}
    found = check_plan(plan_of(model, 2), model, threads=1, dims=dims)
    assert found.passed, found.outputs


def test_a_rank_of_the_last_stage_is_killed(in_place: Path) -> None:
    with TextSession(plan_of(in_place, 2), threads=1) as session:
        stream = session.stream([1], max_tokens=50_000)
        next(stream)
        os.kill(session._pool.pids[1], signal.SIGKILL)
        with pytest.raises(RankFailedError, match="rank 1 of 2 was killed by signal 9"):
            list(stream)
        session.restart()
        (found,) = session.generate(PROMPTS[0], max_tokens=5)
    assert list(found.tokens) == greedy(in_place, PROMPTS[0], 5)


def test_memory_has_the_caches_of_the_stage(model: Path) -> None:
    sized = to.load(model, dims={"past": range(1, 4097), "batch": 4})
    whole, half = (sized.frontier(n, stages=n).fastest for n in (1, 2))
    cache_bytes = 2 * 4 * 4 * 4096 * 8 * 4  # keys and values of a layer
    assert 2 * cache_bytes <= whole.static_bytes < 2.04 * cache_bytes
    assert cache_bytes <= half.static_bytes < 1.04 * cache_bytes
    half.compile(model.with_name("memory"))
    emitted = Plan.load(model.with_name("memory")).document["predicted"]
    assert emitted["static_bytes"] == pytest.approx(half.static_bytes, rel=0.01)
    assert emitted["transient_bytes"] <= half.transient_bytes <= whole.transient_bytes


def test_no_stage_begins_between_a_cache_and_its_readers(tmp_path: Path) -> None:
    """A weight is read there, so that a chunk could begin with it."""
    path = write_decoder(tmp_path / "m.onnx")
    proto = onnx.load(path)
    nodes = proto.graph.node
    at = next(n for n, node in enumerate(nodes) if "present.0.key" in node.output)
    reader = next(node for node in nodes if "present.0.key" in node.input)
    reader.input[0] = "scaled"
    nodes.insert(at + 1, helper.make_node("Mul", ["present.0.key", "w.scale"], ["scaled"], "scale"))
    scale = np.linspace(0.5, 2, 4096, dtype=np.float32)[: 4 * 8].reshape(4, 1, 8)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(scale, "w.scale"))
    onnx.save(proto, path)
    sized = to.load(path, dims={"past": range(1, 4097)})
    point = sized.frontier(1).fastest.found
    times = NodeTimes(point)
    graph, order = point.tables.graph, order_of(point.tables.graph)
    names = [graph.op(order.forward[place]).name for place in order.beginnings]
    assert len(order.first_reads) > 10
    assert "scale" not in names
    assert max(times.passing_bytes[order.beginnings]) < 4096
    assert max(times.passing_bytes) > 4096 * 4 * 8 * 4 / 4


def test_a_stream_of_steps_is_refused(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--devices", "2", "--stages", "2", "--objective", "throughput"]
    assert compile_model([str(model), *flags]) == 1
    assert capsys.readouterr().err == (
        "error: --objective throughput: each step of a decoder in stages waits for the step "
        "before, expected --stages 1, or --objective time\n"
    )


def test_a_plan_for_prompts_is_refused(model: Path) -> None:
    staged, whole = plan_of(model, 2), plan_of(model, 2, stages=1)
    for plan, prefill in ((staged, whole), (whole, staged)):
        with pytest.raises(UserError, match="plan-2-2: is in stages, which read prompts by the"):
            TextSession(plan, prefill=prefill)


def test_a_cache_that_two_stages_read(tmp_path: Path) -> None:
    path = write_decoder(tmp_path / "m.onnx", layers=4)
    proto = onnx.load(path)
    last = proto.graph.node[-1]
    mean = helper.make_node("ReduceMean", [last.input[0]], ["mean"], "mean", keepdims=0)
    scaled = helper.make_node("Mul", ["past_key_values.0.key", "mean"], ["scaled"], "again")
    total = helper.make_node("ReduceSum", ["scaled"], ["total"], "total", keepdims=0)
    moved = helper.make_node("Add", [last.input[0], "total"], ["moved"], "moved")
    last.input[0] = "moved"
    for node in (mean, scaled, total, moved):
        proto.graph.node.insert(len(proto.graph.node) - 1, node)
    onnx.save(proto, path)
    message = "--stages: the cache 'past_key_values.0.key' is read in another stage than the one"
    with pytest.raises(UserError, match=message):
        to.load(path).frontier(2, stages=2).fastest.compile(tmp_path / "plan")


def test_a_tied_embedding_is_on_both_stages(tmp_path: Path) -> None:
    path = write_decoder(tmp_path / "m.onnx", vocabulary=512)
    proto = onnx.load(path)
    words = proto.graph.node[0].input[0]
    turn = helper.make_node("Transpose", [words], ["turned"], "turn", perm=[1, 0])
    proto.graph.node.insert(0, turn)
    proto.graph.node[-1].input[1] = "turned"
    onnx.save(proto, path)
    point = to.load(path).frontier(2, stages=2).fastest.found
    (table,) = (own for own in proto.graph.initializer if own.name == words)
    size = onnx.numpy_helper.to_array(table).nbytes
    assert all(own > size for own in point.pipeline.static_bytes_of)  # type: ignore[attr-defined]
    with TextSession(plan_of(path, 2), threads=1) as session:
        (found,) = session.generate(PROMPTS[0], max_tokens=8)
    assert list(found.tokens) == greedy(path, PROMPTS[0], 8)
