"""Texts that are continued on two ranks, against one device that keeps no caches."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from handmade_decoder import VOCABULARY, continued, greedy, write_decoder
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.compiler.cli.opt import main as compile_model
from tensoropt.runtime.cli.run import main as run_plan
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import RankFailedError, UserError
from tensoropt.runtime.text.decoder import decoder_of
from tensoropt.runtime.text.limits import MAX_TOKENS
from tensoropt.runtime.text.sampling import Floats
from tensoropt.runtime.text.session import TextSession
from tensoropt.runtime.text.stopping import StopTexts
from tensoropt.runtime.text.tokens import Vocabulary

PROMPTS = ([3, 7, 1], [5, 6, 7, 8, 9], [1])
CONTEXT = 40


def write_tokenizer(path: Path) -> None:
    """Write a tokenizer of one token a word: `t5` is token 5."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = {f"t{token}": token for token in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.save(str(path))


def compiled(folder: Path, *flags: str, **options: bool) -> tuple[Path, Path]:
    """Return a decoder and its plan for two ranks."""
    model, plan = write_decoder(folder / "m.onnx", layers=1, **options), folder / "plan"
    assert compile_model([str(model), "--mesh", "2", *flags, "-o", str(plan)]) == 0
    return model, plan


@pytest.fixture(scope="module", params=["concat", "in place"])
def started(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, TextSession]]:
    folder = tmp_path_factory.mktemp("text")
    write_tokenizer(folder / "tokenizer.json")
    config = {"max_position_embeddings": CONTEXT, "eos_token_id": None}
    (folder / "config.json").write_text(json.dumps(config))
    template = "{% for m in messages %}{{ m.content }} {% endfor %}t1"
    (folder / "chat_template.jinja").write_text(template)
    model, plan = compiled(
        folder, "--device", "v100", "--pick", "leanest", in_place=request.param == "in place"
    )
    with TextSession(plan, threads=1) as session:
        assert all(cache.past.layout.pieces(1) == 2 for cache in session._decoder.caches)
        yield model, session


def test_tokens_are_those_of_one_device(started: tuple[Path, TextSession]) -> None:
    model, session = started
    for _ in range(2):  # the second time, nothing of the first is left in the caches
        (found,) = session.generate(PROMPTS[0], max_tokens=12)
        assert list(found.tokens) == greedy(model, PROMPTS[0], 12)
        assert found.finish == "length"


def test_a_model_that_counts_tokens_by_its_cache(tmp_path: Path) -> None:
    """Its caches grow: room for more tokens would count as tokens."""
    model, plan = compiled(tmp_path, in_place=True, by_cache=True)
    with TextSession(plan, threads=1) as session:
        (found,) = session.generate(PROMPTS[0], max_tokens=8)
    assert list(found.tokens) == greedy(model, PROMPTS[0], 8)


def test_attention_by_lengths_is_not_padded_without_room(tmp_path: Path) -> None:
    """Not even if its caches grow in every step."""
    plan = Plan.load(compiled(tmp_path, in_place=True)[1])
    for cache in plan.document["caches"]:
        cache["in_place"] = False
    assert decoder_of(plan).padding is None


def test_several_sequences_of_different_lengths(started: tuple[Path, TextSession]) -> None:
    model, session = started
    found = session.generate(list(PROMPTS), max_tokens=6)
    assert [list(one.tokens) for one in found] == [greedy(model, p, 6) for p in PROMPTS]


def test_texts_and_stops(started: tuple[Path, TextSession]) -> None:
    model, session = started
    tokens = greedy(model, PROMPTS[0], 6)
    (found,) = session.generate("t3 t7 t1", max_tokens=6)
    assert found.text.split() == [f"t{token}" for token in tokens]
    last = f"t{tokens[3]}"
    (found,) = session.generate("t3 t7 t1", max_tokens=6, stop=[last])
    assert found.finish == "stop"
    assert last not in found.text
    assert len(found.tokens) <= 4


def test_a_chat(started: tuple[Path, TextSession]) -> None:
    model, session = started
    talk = [{"role": "user", "content": "t3"}, {"role": "user", "content": "t7"}]
    found = session.chat(talk, max_tokens=6)
    assert list(found.tokens) == greedy(model, [3, 7, 1], 6)
    assert session.room([3, 7, 1]) == CONTEXT - 3


def test_drawn_tokens_follow_the_seed(started: tuple[Path, TextSession]) -> None:
    session = started[1]
    one, same, other = (
        session.generate([3, 7], max_tokens=12, temperature=2.0, top_k=40, seed=seed)[0].tokens
        for seed in (5, 5, 6)
    )
    assert one == same
    assert one != other


def test_penalties_biases_and_likelihoods(started: tuple[Path, TextSession]) -> None:
    """Every rank changes the scores, and takes the tokens of one device that does the same."""
    model, session = started
    found = []

    def choose(scores: Floats, tokens: list[int]) -> int:
        found.append(scores - np.log(np.exp(scores).sum()))
        scores = scores.copy()
        scores[7] += 1.5
        for token in {*tokens}:
            scores[token] *= 1.1 if scores[token] < 0 else 1 / 1.1
            times = tokens[len(PROMPTS[0]) :].count(token)
            scores[token] -= 0.4 * times + 0.3 * (times > 0)
        return int(scores.argmax())

    how = {"presence_penalty": 0.3, "frequency_penalty": 0.4, "repetition_penalty": 1.1}
    stream = session.stream(PROMPTS[0], max_tokens=20, biases=[(7, 1.5)], logprobs=2, **how)
    pieces = list(stream)
    tokens = continued(model, PROMPTS[0], 20, choose)
    assert [piece.token for piece in pieces] == tokens != greedy(model, PROMPTS[0], 20)
    for piece, exact in zip(pieces, found, strict=True):
        likeliest = [piece.token, *np.argsort(-exact, kind="stable")[:2]]
        assert [token for token, _ in piece.likely] == likeliest
        assert [value for _, value in piece.likely] == pytest.approx(exact[likeliest], abs=1e-4)


def test_ends_are_chosen_by_a_request(started: tuple[Path, TextSession]) -> None:
    model, session = started
    tokens = greedy(model, PROMPTS[0], 8)
    (found,) = session.generate(PROMPTS[0], max_tokens=8, stop_tokens=[tokens[3]])
    assert list(found.tokens) == tokens[: tokens.index(tokens[3]) + 1]
    assert found.finish == "stop"


def test_the_context_is_the_end(started: tuple[Path, TextSession]) -> None:
    session = started[1]
    (found,) = session.generate([1] * (CONTEXT - 2), max_tokens=10)
    assert (len(found.tokens), found.finish) == (2, "length")


def test_texts_of_several_streams_run_together(started: tuple[Path, TextSession]) -> None:
    model, session = started
    streams = [session.stream(prompt, max_tokens=6) for prompt in PROMPTS]
    for stream, prompt in zip(reversed(streams), reversed(PROMPTS), strict=True):
        assert [piece.token for piece in stream] == greedy(model, prompt, 6)
    assert (session.running, session.waiting) == (0, 0)


def test_one_message_does_for_a_text(started: tuple[Path, TextSession]) -> None:
    session = started[1]
    ranks = session._pool._ranks
    assert ranks is not None
    before = ranks._sent
    (found,) = session.generate([3], max_tokens=30)
    assert (len(found.tokens), ranks._sent - before) == (30, 1)


def test_a_rank_is_killed_at_a_text(started: tuple[Path, TextSession]) -> None:
    model, session = started
    with closing(session.stream([1], max_tokens=CONTEXT - 1)) as stream:
        next(stream)
        os.kill(session._pool.pids[1], signal.SIGKILL)
        with pytest.raises(RankFailedError, match=r"^rank 1 of 2 was killed by signal 9"):
            list(stream)
    assert not session.is_alive
    session.restart()
    (found,) = session.generate(PROMPTS[0], max_tokens=3)
    assert list(found.tokens) == greedy(model, PROMPTS[0], 3)


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ("", "is empty"),
        ([], "is empty"),
        ([1] * CONTEXT, f"fewer tokens than the model's context of {CONTEXT}, got: {CONTEXT}"),
        ([VOCABULARY], f"expected tokens from 0 to {VOCABULARY} - 1"),
    ],
)
def test_prompts_that_are_refused(started: tuple[Path, TextSession], prompt, why: str) -> None:
    session = started[1]
    with pytest.raises(UserError, match=why):
        session.stream(prompt)
    assert session.is_alive


def test_a_very_long_prompt_is_refused_by_its_beginning(
    started: tuple[Path, TextSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, sizes = started[1], []
    encode = Vocabulary.tokens
    monkeypatch.setattr(Vocabulary, "tokens", lambda v, t: sizes.append(len(t)) or encode(v, t))
    for count in (1_000_000, 20_000):  # it is not even converted if it has too many characters
        with pytest.raises(UserError, match="expected fewer tokens than the model's context of 40"):
            session.tokens_of("t1 " * count)
        assert max(sizes, default=0) < 10_000
        assert bool(sizes) == (count < 100_000)
    assert session.tokens_of(" " * 10_000 + "t1") == [1]


def test_a_plan_of_single_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, plan = compiled(tmp_path, "--dim", "sequence=1", "--dim", "batch=1")
    capsys.readouterr()
    flags = ["--token-ids", "--max-tokens", "5", "--threads", "1"]
    assert run_plan([str(plan), "--generate", "3,7,1", *flags]) == 0
    assert capsys.readouterr().out.strip() == ",".join(map(str, greedy(model, [3, 7, 1], 5)))
    assert run_plan([str(plan), "--generate", "hello"]) == 1
    assert "has no tokenizer.json, expected --tokenizer FILE" in capsys.readouterr().err
    with TextSession(plan, threads=1) as session:
        assert session.room([1]) == MAX_TOKENS
        with pytest.raises(UserError, match="has no chat template, expected the plan of a model"):
            session.chat([{"role": "user", "content": "t1"}])


def test_a_plan_for_ranges_of_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Batches are filled up to what the plan takes, and texts end where its caches do."""
    ranges = {"batch": "2..4:2", "past": "1..12", "sequence": "1..4"}
    flags = [part for name, own in ranges.items() for part in ("--dim", f"{name}={own}")]
    model, plan = compiled(tmp_path, *flags)
    assert "without size" not in capsys.readouterr().err
    with TextSession(plan, threads=1) as session:
        for prompts in (PROMPTS[:1], [[3, 7, 1], [2, 2, 2], [1, 1, 1]]):
            found = session.generate(prompts, max_tokens=100)
            for prompt, text in zip(prompts, found, strict=True):
                assert list(text.tokens) == greedy(model, prompt, 9)
                assert text.finish == "length"
        [text] = session.generate([PROMPTS[1]], max_tokens=3)  # read in two steps
        assert list(text.tokens) == greedy(model, PROMPTS[1], 3)
        with pytest.raises(UserError, match="fewer tokens than the plan's context of 12, got: 12"):
            session.generate([[1] * 12])


def test_a_plan_of_steps_of_several_tokens(tmp_path: Path) -> None:
    _, plan = compiled(tmp_path, "--dim", "sequence=2..8:2")
    with pytest.raises(UserError, match="takes sequence from 2 to 8 in steps of 2, expected any"):
        TextSession(plan, threads=1)


def test_a_plan_without_caches(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_plan([str(plan), "--generate", "hello"]) == 1
    error = capsys.readouterr().err
    assert "has no caches of keys and values" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--max-tokens", "5"], "--max-tokens: expected --generate"),
        (["--generate", "a", "--check", "m"], "--check: not with --generate"),
        (["other", "--generate", "a"], "--generate: expected one plan, got: 2"),
    ],
)
def test_flags(flags: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_plan(["plan", *flags]) == 1
    assert why in capsys.readouterr().err


@given(st.lists(st.text("ab", max_size=3)), st.lists(st.text("ab", min_size=1), max_size=2))
def test_a_stop_is_found_however_the_text_comes(parts: list[str], stops: list[str]) -> None:
    until, out = StopTexts(stops), ""
    for part in parts:
        out += until.add(part)
        if until.found:
            break
    else:
        out += until.rest()
    whole = "".join(parts)
    places = [at for stop in stops if (at := whole.find(stop)) >= 0]
    assert until.found is bool(places)
    assert out == whole[: min(places)] if len(stops) == 1 and places else whole.startswith(out)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--temperature", "nan"], "error: --temperature: expected a number from 0, got: 'nan'"),
        (["--temperature", "-1"], "error: --temperature: expected a number from 0, got: '-1'"),
        (["--top-p", "0"], "error: --top-p: expected a number above 0, at most 1, got: '0'"),
        (["--top-p", "1.5"], "error: --top-p: expected a number above 0, at most 1, got: '1.5'"),
        (["--top-p", "inf"], "error: --top-p: expected a number above 0, at most 1, got: 'inf'"),
        (["--top-k", "0"], "error: --top-k: expected a whole number from 1, got: '0'"),
    ],
)
def test_flags_of_sampling(flags: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):
        assert run_plan(["plan", "--generate", "a", *flags]) != 0
    assert why in capsys.readouterr().err
