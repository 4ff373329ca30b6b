"""Steps that read parts of several texts at once, where ONNX Runtime counts the tokens of rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import pytest
from decoder_plans import plan_of, small_decoder
from handmade_decoder import greedy, write_decoder

from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.text.decoder import MASK, decoder_of
from tensoropt.runtime.text.feeding import feed_packed, longest_part, share_prompts, share_step
from tensoropt.runtime.text.packing import COUNTS, PLACES, ROWS, can_count, pack_tokens
from tensoropt.runtime.text.sampling import Sampler, Sampling
from tensoropt.runtime.text.scheduling import Schedule, Text
from tensoropt.runtime.text.scoring import SCORED, score_asked
from tensoropt.runtime.text.session import TextSession

CONTEXT = 40

counts = pytest.mark.skipif(not can_count(CPU), reason="of ONNX Runtime 1.32 and later")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_decoder(tmp_path_factory.mktemp("packing"), CONTEXT)


def packed(plan: Path) -> tuple[onnx.ModelProto, bool]:
    """Return the changed graph of rank 0, and the result of `pack_tokens`."""
    graph = onnx.load(plan / "rank0.onnx", load_external_data=False)
    assert score_asked(graph, "logits")
    pasts = [cache.past.name for cache in decoder_of(Plan.load(plan)).caches]
    return graph, pack_tokens(graph, MASK, pasts)


def text(tokens: list[int], read: int = 0, room: int = 20) -> Text:
    return Text(0, 0, tokens, len(tokens), room, (), Sampler(Sampling(), 0), read)


def test_only_attention_reads_rows(model: Path) -> None:
    graph, is_packed = packed(plan_of(model))
    assert is_packed
    by_name = {node.output[0]: node for node in graph.graph.node}
    (attention,) = (node for node in graph.graph.node if node.op_type == "GroupQueryAttention")
    for name in attention.input[:3]:
        assert list(by_name[name].input)[1:] == [ROWS]
    assert attention.input[16] == COUNTS
    (after,) = (node for node in graph.graph.node if attention.output[0] in node.input)
    assert list(after.input)[1:] == [PLACES]


def test_attention_of_other_operators_is_not_packed(tmp_path: Path) -> None:
    grows = write_decoder(tmp_path / "m.onnx", layers=1)
    graph, is_packed = packed(plan_of(grows))
    assert not is_packed
    assert {ROWS, PLACES, COUNTS}.isdisjoint(value.name for value in graph.graph.input)


@pytest.mark.parametrize("end", ["Softmax", "CumSum", "Concat"])
def test_operators_that_join_tokens_are_not_packed(model: Path, end: str) -> None:
    graph = onnx.load(plan_of(model) / "rank0.onnx", load_external_data=False)
    assert pack_tokens(onnx.ModelProto.FromString(graph.SerializeToString()), MASK, ())
    tanh = next(node for node in graph.graph.node if node.op_type == "Tanh")
    tanh.op_type = end
    before = graph.SerializeToString()
    assert not pack_tokens(graph, MASK, ())
    assert graph.SerializeToString() == before


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], True),
        (["--dim", "sequence=1"], False),
        (["--dim", "batch=4"], False),
        (["--dim", "batch=2..8:2"], False),
    ],
)
def test_which_plans_can_pack(model: Path, flags: list[str], expected: bool) -> None:
    assert decoder_of(Plan.load(plan_of(model, *flags))).can_pack is expected


def test_texts_share_the_tokens_of_a_step() -> None:
    texts = [text([1, 2, 3, 4, 5]), text([6, 7, 6, 7, 6], read=4), text([8, 9, 8])]
    parts = share_step(texts, 2, 8, 9)
    assert [(part.count, list(part.proposed)) for part in parts] == [(3, []), (1, [7, 6]), (2, [])]
    assert [part.asked for part in parts] == [0, 3, 0]
    assert [part.count for part in share_step(texts, 0, 2, 9)] == [1, 1, 0]
    assert [part.count for part in share_step(texts, 0, None, 9)] == [5, 1, 3]
    assert [longest_part(texts, *limits) for limits in ((0, None), (0, 3), (6, 3))] == [5, 3, 7]


@pytest.mark.parametrize(
    ("unread", "most", "counts"),
    [
        ([], 5, []),
        ([3, 9], None, [3, 9]),
        ([9, 9, 9], 8, [8, 0, 0]),  # of equals the oldest is first
        ([9, 3, 5], 9, [5, 3, 1]),
        ([9, 3, 5], 99, [9, 3, 5]),
        ([9, 5, 5], 1, [1, 0, 0]),
        ([1000, 900, 800], 512, [256, 0, 256]),
    ],
)
def test_a_step_reads_the_shortest_rest_and_half_of_the_oldest(
    unread: list[int], most: int | None, counts: list[int]
) -> None:
    assert share_prompts(unread, most) == counts


def test_tokens_are_packed_into_one_row(model: Path) -> None:
    decoder = decoder_of(Plan.load(plan_of(model)))
    texts = [text([1, 2, 3, 4]), text([6, 7, 6, 7, 6], read=4), text([8, 9, 8, 9, 8])]
    fed = feed_packed(decoder, share_step(texts, 1, 5, 9))
    assert fed["input_ids"].tolist() == [[1, 2, 3, 6, 7]]
    assert fed[COUNTS].tolist() == [3, 2, 0]
    assert fed[MASK].sum(axis=1).tolist() == [3, 6, 1]
    assert fed[SCORED][0, :, 0].tolist() == [3, 4]
    assert fed[PLACES][0].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]]
    ids = fed["input_ids"][0][fed[ROWS][..., 1]]
    assert (ids[0].tolist(), ids[1, :2].tolist()) == ([1, 2, 3], [6, 7])


def test_a_text_waits_for_a_common_beginning() -> None:
    """It waits until the other text has read it, and not for tokens that are not common."""
    schedule, new = Schedule(4), text([1, 2, 3, 4, 9])
    other = text([1, 2, 3, 4, 5, 6])
    schedule.rows.append(other)
    for read, expected in ((0, True), (3, True), (4, False), (5, False)):
        other.read = read
        assert schedule.is_prefix_unread(new, 2) is expected
    other.read = 0
    assert not schedule.is_prefix_unread(new, 5)
    assert not schedule.is_prefix_unread(text([1]), 1)


@contextmanager
def opened(model: Path, ranks: int, **options: int | None) -> Iterator[TextSession]:
    with TextSession(plan_of(model, ranks=ranks), threads=1, **options) as session:
        yield session


@counts
@pytest.mark.parametrize("ranks", [1, 2])
def test_prompts_and_texts_in_one_step(model: Path, ranks: int) -> None:
    """Texts of random lengths join and leave; each has the tokens that it has alone."""
    chosen = random.Random(2)
    prompts = [[chosen.randrange(48) for _ in range(chosen.randrange(1, 30))] for _ in range(9)]
    expected = [greedy(model, p, CONTEXT - len(p)) for p in prompts]
    for options in ({"slots": 4, "step_tokens": 5}, {"slots": 9, "speculate": 3}):
        with opened(model, ranks, **options) as session:
            streams = [session.stream(p, max_tokens=3 + 4 * n) for n, p in enumerate(prompts)]
            streams[3].close()
            for n, (stream, tokens) in enumerate(zip(streams, expected, strict=True)):
                found = [piece.token for piece in stream]
                assert found == ([] if n == 3 else tokens[: 3 + 4 * n])


@counts
def test_proposals_of_several_texts(model: Path) -> None:
    prompts = [[n, n + 1] * 4 for n in range(3)]
    with opened(model, 2, slots=3, speculate=3) as session:
        found = session.generate(prompts, max_tokens=25)
        assert session.accepted > 3
    assert [list(one.tokens) for one in found] == [greedy(model, p, 25) for p in prompts]


@counts
def test_several_prompts_take_one_step(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(model, 1, slots=4) as session:
        events: list[int | None] = []
        deliver = session._engine._deliver
        monkeypatch.setattr(
            session._engine,
            "_deliver",
            lambda pairs: events.extend(token for _, token, _ in pairs) or deliver(pairs),
        )
        session.generate([[3, 7, 1], [5, 6], [1, 2, 3, 4]], max_tokens=2)
    assert [token is None for token in events[:6]] == [True] * 3 + [False] * 3
