"""Probabilities of the tokens of prompts, against the scores of one device."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from handmade_decoder import greedy, log_probabilities, write_decoder
from letters import LETTERS, letters_plan

from tensoropt.compiler.cli.opt import main as compile_model
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.text.feeding import share_step
from tensoropt.runtime.text.sampling import Likely, Sampler, Sampling
from tensoropt.runtime.text.scheduling import Schedule, Text
from tensoropt.runtime.text.session import TextSession

CONTEXT = 40
HEADS = ["--device", "v100", "--pick", "leanest"]
FLAGS = {
    "heads": HEADS,
    "single": [*HEADS, "--dim", "sequence=1"],
    "rows": ["--pin", "present.0.key=S(0)@x", "--dim", "batch=4"],
    "whole": ["--pick", "fastest"],
    "fours": ["--pin", "logits=S(1)@x", "--dim", "sequence=4"],
}


@pytest.fixture(scope="module", params=["concat", "in place"])
def family(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A model, and a folder for its plans."""
    folder = tmp_path_factory.mktemp("scores")
    config = {"max_position_embeddings": CONTEXT, "eos_token_id": None}
    (folder / "config.json").write_text(json.dumps(config))
    return write_decoder(folder / "m.onnx", layers=1, in_place=request.param == "in place"), folder


def plan_of(family: tuple[Path, Path], name: str) -> Path:
    model, folder = family
    if not (folder / name).exists():
        flags = ["--mesh", "2", *FLAGS[name], "-o", str(folder / name)]
        assert compile_model([str(model), *flags]) == 0
    return folder / name


def prompts_of(*lengths: int, vocabulary: int = 48) -> list[list[int]]:
    chosen = random.Random(len(lengths))
    return [[chosen.randrange(vocabulary) for _ in range(length)] for length in lengths]


def check_prompt(model: Path, prompt: Sequence[int], found: Sequence[Likely], count: int) -> None:
    """Check the tokens of a prompt after its first, and the ``count`` likeliest in each place."""
    wanted = log_probabilities(model, prompt)
    assert [own[0][0] for own in found] == prompt[1:]
    for place, own in enumerate(found):
        assert len(own) == 1 + count
        for token, value in own:
            assert value == pytest.approx(wanted[place, token], abs=1e-4)
        best = np.sort(wanted[place])[::-1][:count]
        np.testing.assert_allclose([value for _, value in own[1:]], best, atol=1e-4)


@pytest.mark.parametrize(
    ("plan", "prefill", "options"),
    [
        ("heads", None, {"slots": 3, "step_tokens": 4}),
        ("heads", None, {"slots": 1}),
        ("single", None, {"slots": 3, "step_tokens": 2}),
        ("rows", None, {"slots": 5, "step_tokens": 3}),
        ("heads", "whole", {"step_tokens": 5}),
        ("heads", "fours", {}),
        ("single", "fours", {}),
    ],
)
def test_texts_of_one_device(
    family: tuple[Path, Path], plan: str, prefill: str | None, options: dict[str, int]
) -> None:
    """Prompts are read in parts, and together with texts that want no probabilities."""
    model, prompts = family[0], prompts_of(1, 2, 5, 17, 30)
    other = None if prefill is None else plan_of(family, prefill)
    with TextSession(plan_of(family, plan), prefill=other, threads=1, **options) as session:
        plain = session.stream(prompts[2:], max_tokens=6)
        scored = [*session.stream(prompts, max_tokens=4, prompt_logprobs=2)]
        assert all(not piece.prompt for piece in plain)
    for number, prompt in enumerate(prompts):
        first, *others = (piece for piece in scored if piece.number == number)
        check_prompt(model, prompt, first.prompt, 2)
        assert all(not piece.prompt for piece in others)
        assert [piece.token for piece in (first, *others)] == greedy(model, prompt, 4)


def test_a_common_beginning_is_read_again(family: tuple[Path, Path]) -> None:
    """The first text shares its prompt with others, which want the probabilities of it."""
    model, (prompt,) = family[0], prompts_of(24)
    with TextSession(plan_of(family, "heads"), threads=1, step_tokens=5) as session:
        plain = session.stream(prompt, max_tokens=16)
        tokens = [next(plain).token]
        for piece in session.stream([prompt, prompt], max_tokens=1, prompt_logprobs=0):
            check_prompt(model, prompt, piece.prompt, 0)
        tokens += [piece.token for piece in plain]
    assert tokens == greedy(model, prompt, 16)


@pytest.mark.parametrize("slots", [1, 4])
def test_a_prompt_of_more_tokens_than_a_step_scores(tmp_path: Path, slots: int) -> None:
    plan = letters_plan(tmp_path)
    (prompt,) = prompts_of(570, vocabulary=len(LETTERS))
    with TextSession(plan, threads=1, slots=slots) as session:
        (piece,) = session.stream(prompt, max_tokens=1, prompt_logprobs=1)
    check_prompt(tmp_path / "m.onnx", prompt, piece.prompt, 1)


def test_proposals_of_a_text_with_a_scored_prompt(tmp_path: Path) -> None:
    """A prompt that repeats itself leaves one token, with proposals after it."""
    model = write_decoder(tmp_path / "m.onnx", layers=1, in_place=True)
    assert compile_model([str(model), "--mesh", "1", "-o", str(tmp_path / "plan")]) == 0
    prompt = prompts_of(5)[0] * 3
    for slots in (1, 4):
        with TextSession(
            tmp_path / "plan", threads=1, slots=slots, step_tokens=14, speculate=3
        ) as session:
            first, *others = session.stream(prompt, max_tokens=12, prompt_logprobs=1)
            assert session.proposed >= session.accepted
        check_prompt(model, prompt, first.prompt, 1)
        assert [piece.token for piece in (first, *others)] == greedy(model, prompt, 12)


def text(tokens: list[int], prompt_logprobs: int | None, read: int = 0) -> Text:
    sampler = Sampler(Sampling(prompt_logprobs=prompt_logprobs), 0)
    return Text(0, 0, tokens, len(tokens), 20, (), sampler, read)


def test_steps_score_few_tokens_of_prompts() -> None:
    texts = [text([1, 2, 3], 0), text([4, 5, 6, 7], None), text([8, 9, 1], 0), text([2, 3], 0)]
    parts = share_step(texts, 0, 9, 4)
    assert [part.count for part in parts] == [3, 4, 1, 0]
    assert [part.asked for part in parts] == [3, 1, 1, 0]


def test_a_scored_prompt_neither_waits_nor_copies() -> None:
    schedule = Schedule(4)
    schedule.rows.append(text([1, 2, 3, 4, 5], None, read=2))
    for count, expected in ((None, True), (0, False)):
        new = text([1, 2, 3, 4, 6], count)
        assert schedule.is_prefix_unread(new, 2) is expected
        assert (schedule.find_prefix(new) is not None) is expected


def test_numbers_of_likeliest_tokens() -> None:
    with pytest.raises(
        UserError, match="prompt_logprobs: expected a whole number from 0 to 20, got: 21"
    ):
        Sampling(prompt_logprobs=21)
