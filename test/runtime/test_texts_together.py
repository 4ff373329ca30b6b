"""Texts that join and leave a running batch, against each text alone."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from contextlib import aclosing
from functools import lru_cache
from pathlib import Path

import pytest
from handmade_decoder import greedy, write_decoder
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.compiler.cli.opt import main as compile_model
from tensoropt.runtime.support.errors import RankFailedError, UserError
from tensoropt.runtime.support.rank_options import SessionOptions
from tensoropt.runtime.text.sampling import Sampler, Sampling
from tensoropt.runtime.text.scheduling import Schedule, Text
from tensoropt.runtime.text.session import TextSession
from tensoropt.serving.metrics import Metrics
from tensoropt.serving.opening import open_texts
from tensoropt.serving.options import TextLimits

CONTEXT = 40
FLAGS = {
    "whole": ["--pick", "fastest"],
    "heads": ["--device", "v100", "--pick", "leanest"],
    "single": ["--dim", "sequence=1"],
    "rows": ["--pin", "present.0.key=S(0)@x", "--dim", "batch=4"],
    "fixed": ["--dim", "batch=4"],
}


@pytest.fixture(scope="module", params=["concat", "in place"])
def family(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A model, and a folder for its plans."""
    folder = tmp_path_factory.mktemp("together")
    config = {"max_position_embeddings": CONTEXT, "eos_token_id": None}
    (folder / "config.json").write_text(json.dumps(config))
    return write_decoder(folder / "m.onnx", layers=1, in_place=request.param == "in place"), folder


def plan_of(family: tuple[Path, Path], name: str, ranks: int = 2) -> Path:
    model, folder = family
    plan = folder / f"{name}-{ranks}"
    if not plan.exists():
        flags = ["--mesh", str(ranks), *FLAGS[name], "-o", str(plan)]
        assert compile_model([str(model), *flags]) == 0
    return plan


@lru_cache
def alone(model: Path, prompt: tuple[int, ...]) -> list[int]:
    """Return the tokens of a text up to the context, on one device without caches."""
    return greedy(model, prompt, CONTEXT - len(prompt))


def prompts_of(count: int, seed: int) -> list[tuple[int, ...]]:
    chosen = random.Random(seed)
    return [
        tuple(chosen.randrange(48) for _ in range(chosen.choice((1, 2, 3, 5, 9, 17))))
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("plan", "ranks", "options"),
    [
        ("heads", 2, {"slots": 3, "step_tokens": 4}),
        ("whole", 1, {"slots": 16}),
        ("single", 2, {"slots": 3, "step_tokens": 2}),
        ("rows", 2, {"slots": 5, "step_tokens": 3}),
        ("fixed", 2, {}),
    ],
)
def test_texts_join_and_leave(
    family: tuple[Path, Path], plan: str, ranks: int, options: dict[str, int]
) -> None:
    """More texts than slots, of different lengths; some are closed, and others come later."""
    model = family[0]
    prompts = prompts_of(8, seed=1)
    with TextSession(plan_of(family, plan, ranks), threads=1, **options) as session:
        streams = [
            session.stream(prompt, max_tokens=2 + 3 * n) for n, prompt in enumerate(prompts[:6])
        ]
        next(streams[5])
        streams[4].close()
        streams += [session.stream(prompt, max_tokens=4) for prompt in prompts[6:]]
        found = [[piece.token for piece in stream] for stream in streams]
        together = session.generate(prompts, max_tokens=5)
    assert found[4] == []
    for n in (0, 1, 2, 3, 5, 6, 7):
        most = 4 if n > 5 else 2 + 3 * n
        own = found[n] if n != 5 else alone(model, prompts[n])[:1] + found[n]
        assert own == alone(model, prompts[n])[:most]
    assert [list(one.tokens) for one in together] == [alone(model, p)[:5] for p in prompts]


def test_samples_depend_on_the_seed_and_the_number(family: tuple[Path, Path]) -> None:
    how = {"temperature": 2.0, "top_k": 30, "max_tokens": 9}
    prompts = prompts_of(5, seed=2)
    with TextSession(plan_of(family, "heads"), threads=1, slots=2) as session:
        several = session.generate(prompts, seed=7, **how)
        assert session.generate(prompts[0], seed=7, **how) == several[:1]
        other = session.stream(prompts[1], seed=8, **how)
        assert session.generate(prompts, seed=7, **how) == several
        assert [piece.token for piece in other] != list(several[1].tokens)


@pytest.mark.quick
def test_many_texts(family: tuple[Path, Path]) -> None:
    _check_many(family, 36)


def test_a_thousand_texts(family: tuple[Path, Path]) -> None:
    _check_many(family, 1008)


def _check_many(family: tuple[Path, Path], count: int) -> None:
    """Check texts of random lengths, some dropped and a rank killed, against one device."""
    model, chosen = family[0], random.Random(3)
    prompts = prompts_of(count, seed=4)
    with TextSession(plan_of(family, "heads"), threads=1, slots=4, step_tokens=6) as session:
        for start in range(0, count, 12):
            wanted = [(p, chosen.randrange(1, 24)) for p in prompts[start : start + 12]]
            streams = [session.stream(prompt, max_tokens=most) for prompt, most in wanted]
            for stream in chosen.sample(streams, 3):
                stream.close()
            if start == 12:
                os.kill(session._pool.pids[1], signal.SIGKILL)
                with pytest.raises(RankFailedError):
                    [list(stream) for stream in streams]
                session.restart()
                continue
            for stream, (prompt, most) in zip(streams, wanted, strict=True):
                found = [piece.token for piece in stream]
                assert found in ([], alone(model, prompt)[: min(most, CONTEXT - len(prompt))])
            if start == 120:
                before = _memory_bytes(session)
        assert (session.running, session.waiting) == (0, 0)
        assert session._engine._texts == {}
        if count > 500:
            assert _memory_bytes(session) < before + (4 << 20)


def _memory_bytes(session: TextSession) -> int:
    """Return the resident memory of all ranks and of this process."""
    pids = [*session._pool.pids, os.getpid()]
    pages = (int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return sum(pages) * os.sysconf("SC_PAGE_SIZE")


def test_a_prefix_is_read_once(family: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt begins like that of a running text: a step reads the rest of it."""
    model = family[0]
    prefix = [5, 9, 2, 7] * 5
    prompts = [(*prefix, 1), (*prefix, 3, 4), tuple(prefix), (3, *prefix), (*prefix[:15], *[8] * 9)]
    with TextSession(plan_of(family, "heads"), threads=1, step_tokens=30) as session:
        chosen: list[tuple[int, int | None]] = []
        deliver = session._engine._deliver
        monkeypatch.setattr(
            session._engine,
            "_deliver",
            lambda all_: chosen.extend(one[:2] for one in all_) or deliver(all_),
        )
        found = session.generate(prompts, max_tokens=8)
    assert [list(one.tokens) for one in found] == [alone(model, p)[:8] for p in prompts]
    # 30 tokens may be read before the first text gets its second token: 21 of its prompt, 1 and 2
    # of the next prompts, and some of the fourth. Without copies, the second prompt takes the rest.
    first = [n for n, (key, _) in enumerate(chosen) if key == chosen[0][0]]
    admitted = [n for n, (_, token) in enumerate(chosen) if token is None]
    assert admitted[3] < first[2]


def test_a_long_prompt_delays_others_by_a_part(
    family: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two parts of the prompt, of 3 tokens each, the other text gets a token."""
    with TextSession(plan_of(family, "heads"), threads=1, step_tokens=4) as session:
        chosen: list[tuple[int, int | None]] = []
        deliver = session._engine._deliver
        monkeypatch.setattr(
            session._engine,
            "_deliver",
            lambda all_: chosen.extend(one[:2] for one in all_) or deliver(all_),
        )
        session.generate([[1], [2] * 30], max_tokens=20)
    (short, _), (long, _) = (pair for pair in chosen if pair[1] is None)
    first, begun = (
        next(
            n for n, (key, token) in enumerate(chosen) if key == long and (token is None) is is_new
        )
        for is_new in (False, True)
    )
    # If prompts and texts share a step, it also has a token of the short text for the last part.
    assert sum(key == short for key, _ in chosen[begun:first]) in (9, 10)


def test_requests_of_a_server_run_together(family: tuple[Path, Path]) -> None:
    """Each client gets its own text, and one that leaves frees its slot."""
    model, prompts = family[0], prompts_of(6, seed=5)
    plans = {"m": plan_of(family, "heads")}
    served = open_texts(plans, {}, SessionOptions(threads=1), TextLimits(slots=3), Metrics())["m"]
    most: list[int] = []

    async def text(prompt: tuple[int, ...], count: int) -> list[int]:
        found = []
        async with aclosing(served.pieces([prompt], max_tokens=CONTEXT)) as pieces:
            async for piece in pieces:
                most.append(served._session.running)
                found.append(piece.token)
                if len(found) == count:
                    break
        return found

    async def check() -> list[list[int]]:
        counts = [CONTEXT if n != 2 else 3 for n in range(len(prompts))]
        found = await asyncio.gather(*map(text, prompts, counts))
        assert served.is_idle
        await served.close()
        return found

    for number, (found, prompt) in enumerate(zip(asyncio.run(check()), prompts, strict=True)):
        assert found == alone(model, prompt)[: 3 if number == 2 else None]
    assert max(most) == 3


def test_a_context_of_the_session(family: tuple[Path, Path]) -> None:
    with TextSession(plan_of(family, "heads"), threads=1, context=9) as session:
        (found,) = session.generate([1, 2, 3])
        assert (len(found.tokens), found.finish) == (6, "length")
        with pytest.raises(UserError, match="fewer tokens than the session's context of 9"):
            session.generate([1] * 9)
    for name, option in {
        "slots": "slots",
        "context": "context",
        "step-tokens": "step_tokens",
    }.items():
        with pytest.raises(UserError, match=f"^{name}: expected at least 1, got: 0"):
            TextSession(plan_of(family, "heads"), **{option: 0})


def test_a_closed_session(family: tuple[Path, Path]) -> None:
    session = TextSession(plan_of(family, "heads"), threads=1, slots=1)
    streams = [session.stream([n]) for n in range(3)]
    next(streams[0])
    session.close()
    for stream in [*streams, session.stream([1])]:
        with pytest.raises(UserError, match="the session is closed"):
            list(stream)


def text(key: int, request: int, prompt: int = 1) -> Text:
    return Text(key, request, [0] * prompt, prompt, 9, (), Sampler(Sampling(), 0))


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(1, 5))
def test_admission_is_fair(requests: list[int], slots: int) -> None:
    schedule = Schedule(slots)
    for key, request in enumerate(requests):
        schedule.add(text(key, request))
    admitted: list[Text] = []
    while (new := schedule.admit()) is not None:
        admitted.append(new)
        schedule.join()
    assert len(admitted) == min(slots, len(requests))
    assert schedule.rows == admitted
    counts = {request: [t.request for t in admitted].count(request) for request in {*requests}}
    for request, count in counts.items():
        left = requests.count(request) - count
        assert not left or count >= max(counts.values()) - 1
    schedule.drop({*range(len(requests))})
    assert schedule.is_empty


def test_short_and_old_prompts_take_turns() -> None:
    """A prompt waits for one younger prompt per older one, and one more, at most."""
    schedule = Schedule(9)
    for key, prompt in enumerate([30, 20, 20, 5, 40, 5]):
        schedule.add(text(key, key, prompt))
    admitted = []
    while (new := schedule.admit()) is not None:
        admitted.append(new.key)
        schedule.join()
    assert admitted == [0, 3, 1, 5, 2, 4]


def test_a_text_that_may_not_join_yet_leaves_the_turn_to_another() -> None:
    schedule = Schedule(2)
    for key, prompt in enumerate([30, 20]):
        schedule.add(text(key, key, prompt))
    assert schedule.admit(lambda _: False) is None
    new = schedule.admit(lambda text: text.left < 30)
    assert new is not None
    assert new.key == 1
    schedule.join()
    assert schedule.admit() is not None


def test_the_end_of_a_text() -> None:
    ending = Text(0, 0, [5, 7], 2, 4, {7}, Sampler(Sampling(), 0))
    assert not ending.has_ended  # an end token of the prompt
    ending.tokens.append(3)
    assert not ending.has_ended
    ending.tokens.append(3)
    assert ending.has_ended
    ending.tokens[-1:] = []
    ending.tokens.append(7)
    assert ending.has_ended


def test_the_longest_common_prefix() -> None:
    schedule, new = Schedule(4), text(0, 0)
    new.tokens = [1, 2, 3, 4]
    assert schedule.find_prefix(new) is None
    for tokens, read in (([1, 2, 9], 3), ([1, 2, 3, 4, 5], 5), ([1, 2, 3, 4], 2), ([9], 1)):
        other = text(len(schedule.rows), 0)
        other.tokens, other.read = tokens, read
        schedule.rows.append(other)
    assert schedule.find_prefix(new) == (schedule.rows[1], 3)
