"""Proposed tokens that are verified in one step, against texts without them."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest
from decoder_plans import plan_of, small_decoder
from handmade_decoder import greedy, write_decoder
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.rank_options import SessionOptions
from tensoropt.runtime.text.proposals import Proposals
from tensoropt.runtime.text.sampling import Sampler, Sampling
from tensoropt.runtime.text.scheduling import Text
from tensoropt.runtime.text.session import TextSession
from tensoropt.serving.metrics import Metrics
from tensoropt.serving.opening import open_texts
from tensoropt.serving.options import TextLimits

CONTEXT = 60


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_decoder(tmp_path_factory.mktemp("speculation"), CONTEXT)


def prompts_of(count: int) -> list[list[int]]:
    """Return random prompts; every other one repeats itself."""
    chosen = random.Random(1)
    found = []
    for n in range(count):
        tokens = [chosen.randrange(48) for _ in range(chosen.randrange(1, 9))]
        found.append(tokens * (3 if n % 2 else 1))
    return found


@pytest.mark.parametrize("ranks", [1, 2])
def test_tokens_are_those_without_proposals(model: Path, ranks: int) -> None:
    with TextSession(plan_of(model, ranks=ranks), threads=1, slots=1, speculate=4) as session:
        for prompt in prompts_of(10):
            (found,) = session.generate(prompt, max_tokens=CONTEXT)
            assert list(found.tokens) == greedy(model, prompt, CONTEXT - len(prompt))
            assert found.finish == "length"
        assert 0 < session.accepted <= session.proposed


def test_texts_that_run_together(model: Path) -> None:
    prompts = prompts_of(7)
    with TextSession(plan_of(model), threads=1, slots=3, speculate=3) as session:
        found = session.generate(prompts, max_tokens=20)
    assert [list(one.tokens) for one in found] == [greedy(model, p, 20) for p in prompts]


def test_samples_are_those_without_proposals(model: Path) -> None:
    """Each token is drawn from its own scores, whether it was proposed or not."""
    how = {"temperature": 0.7, "top_k": 3, "seed": 5, "max_tokens": 40}
    prompt, found = [3, 7] * 5, []
    for speculate in (0, 3):
        with TextSession(plan_of(model, ranks=1), threads=1, speculate=speculate) as session:
            found.append(session.generate(prompt, **how))
    assert found[0] == found[1]
    assert session.accepted


def test_a_server_counts_proposals(model: Path) -> None:
    metrics, plans = Metrics(), {"m": plan_of(model, ranks=1)}
    limits = TextLimits(slots=1, speculate=3)
    served = open_texts(plans, {}, SessionOptions(threads=1), limits, metrics)["m"]

    async def finish() -> None:
        async with aclosing(served.pieces([[3, 7] * 5], max_tokens=40)) as pieces:
            assert len([piece async for piece in pieces]) == 40
        counts = f"{served._session.proposed}.0", f"{served._session.accepted}.0"
        for result, count in zip(("all", "accepted"), counts, strict=True):
            name = f'tensoropt_proposed_tokens{{model="m",result="{result}"}}'
            assert f"{name} {count}" in metrics.text().decode()
        assert "0.0" not in counts
        await served.close()

    asyncio.run(finish())


def test_an_end_token_among_the_accepted(model: Path) -> None:
    """The text ends there, though more proposed tokens would be right."""
    prompt = [3, 7] * 5
    expected = greedy(model, prompt, 40)
    end = expected[30]
    with TextSession(plan_of(model, ranks=1), threads=1, speculate=6) as session:
        session._decoder.entry["end"] = [end]
        (found,) = session.generate(prompt, max_tokens=40)
    assert list(found.tokens) == expected[: expected.index(end) + 1]
    assert found.finish == "stop"


def test_plans_that_cannot_verify(model: Path, tmp_path: Path) -> None:
    grows = write_decoder(tmp_path / "m.onnx", layers=1)
    for plan in (plan_of(grows, ranks=1), plan_of(model, "--dim", "sequence=1", ranks=1)):
        with pytest.raises(UserError, match="cannot verify 2 proposed tokens, expected caches"):
            TextSession(plan, speculate=2)
    with pytest.raises(UserError, match="speculate: expected at least 0, got: -1"):
        TextSession(plan_of(model, ranks=1), speculate=-1)


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 5))
def test_what_is_proposed_follows_the_last_tokens(tokens: list[int], most: int) -> None:
    """Calls after each token find the latest earlier place of the last three or two tokens."""
    proposals, found = Proposals(), []
    for count in range(len(tokens) + 1):
        found = proposals.propose(tokens[:count], most)
    places = [
        place
        for size in (3, 2)
        for place in range(len(tokens) - 1, size - 1, -1)
        if tokens[place - size : place] == tokens[len(tokens) - size :]
    ]
    expected = list(tokens)
    for _ in range(most if places else 0):
        expected.append(expected[places[0] + len(expected) - len(tokens)])
    assert found == expected[len(tokens) :]


def test_proposals_leave_room_for_the_token_after_them() -> None:
    text = Text(0, 0, [1, 2] * 4, 8, 11, (), Sampler(Sampling(), 0), read=7)
    assert text.propose(5) == [1, 2]
    scores = np.eye(3)[[1, 2, 0]]
    assert [token for token, _ in text.go_on(1, [1, 2], scores)] == [1, 2, 0]
    assert (text.read, text.has_ended) == (10, True)
