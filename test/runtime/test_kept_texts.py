"""Caches of texts that have ended: later texts copy them, and read the rest."""

from __future__ import annotations

import gc
import os
import random
import signal
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from budgets import examples
from decoder_plans import plan_of, small_decoder
from handmade_decoder import greedy
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.pool.programs import Request
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import RankFailedError
from tensoropt.runtime.text import program
from tensoropt.runtime.text.decoder import Decoder, decoder_of
from tensoropt.runtime.text.feeding import Part
from tensoropt.runtime.text.packing import COUNTS
from tensoropt.runtime.text.sampling import Sampler, Sampling
from tensoropt.runtime.text.scheduling import LEAST_PREFIX, Schedule, Text
from tensoropt.runtime.text.session import TextSession
from tensoropt.runtime.text.steps import Caches, Steps

CONTEXT = 60
VOCABULARY = 48


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_decoder(tmp_path_factory.mktemp("kept"), CONTEXT)


@pytest.fixture(scope="module")
def decoder(model: Path) -> Decoder:
    return decoder_of(Plan.load(plan_of(model, ranks=1)))


def next_token(tokens: Sequence[int]) -> int:
    """Return the token that the simulated decoder chooses: it depends on all tokens."""
    return zlib.crc32(bytes(tokens)) % VOCABULARY


class Simulated(program.Texts):
    """A rank that keeps tokens in its caches, and chooses tokens by nothing else.

    It stops after ``steps`` steps, and counts the tokens that were ``fed``.
    """

    steps = fed = 0

    def _take_step(self, steps: Steps, parts: Sequence[Part], caches: Caches) -> list[Array]:
        self.steps -= 1
        self._is_stopped = self.steps <= 0
        found = []
        for row, part in enumerate(parts):
            self.fed += part.size
            start, end = part.text.read, part.text.read + part.size
            for array in arrays_of(steps, caches):
                array[row, :, start:end] = np.array(part.tokens)[:, None]
            tokens = [*map(int, arrays_of(steps, caches)[0][row, 0, :end, 0])]
            scores = np.zeros((part.asked, VOCABULARY), np.float32)
            for n in range(part.asked):
                scores[n, next_token(tokens[: end - part.asked + 1 + n])] = 1
            found.append(scores)
        return found


def arrays_of(steps: Steps, caches: Caches) -> list[Array]:
    return [steps.part(cache, caches).get() for cache in steps.caches]


def simulated(decoder: Decoder, *, packs: bool, **options: int | None) -> Simulated:
    inputs: dict[str, None] = {cache.past.name: None for cache in decoder.caches}
    inputs |= {COUNTS: None} if packs else {}
    ignored = dict.fromkeys(("read", "write", "release"), lambda *_: None)
    session: Any = SimpleNamespace(inputs=inputs, outputs={}, **ignored)
    steps = Steps(session, decoder, CPU, SimpleNamespace(rank=0), {})
    rank: Any = mock.Mock()
    rank.comm.allgather = lambda value: [value]
    fixed = {"speculate": 0, "step_tokens": None, "tokenizer": None, "reads_tokenizer": False}
    rank.job.options = {**fixed, **options}
    with mock.patch.object(program, "open_steps", lambda *_, **__: steps):
        return Simulated(rank)


class Caller:
    """Sends messages to a rank, and collects the tokens of each text."""

    def __init__(self, rank: Simulated) -> None:
        self.rank = rank
        self.prompts: list[list[int]] = []
        self.limits: list[int] = []
        self.found: list[list[int]] = []
        self.copied: dict[int, int] = {}
        self.dropped: set[int] = set()
        self.errors: dict[int, str] = {}

    def send(
        self,
        prompts: Sequence[list[int]],
        most: int,
        drop: set[int],
        steps: int,
        grammars: Sequence[str | None] = (),
    ) -> None:
        added = [self._message(prompt, most) for prompt in prompts]
        for message, grammar in zip(added, grammars, strict=False):
            message["grammar"] = grammar
        self.rank.steps = steps
        self.dropped |= drop
        arrays = {"stop": np.zeros(1, np.int64)}
        request = Request({"drop": [*drop], "add": added}, arrays, {}, self._hear)
        self._hear(self.rank.answer(request).message)

    def _message(self, prompt: list[int], most: int) -> dict[str, Any]:
        key = len(self.prompts)
        self.prompts.append([*prompt])
        self.limits.append(most)
        self.found.append([])
        room = len(prompt) + most
        how = {"number": 0, "sampling": {}, "grammar": None, "end": [], "least": 0}
        return {"key": key, "request": key, "prompt": [*prompt], "room": room, **how}

    def _hear(self, message: dict[str, Any]) -> None:
        self.copied |= dict(message["copied"])
        self.errors |= {key: error for key, error, _ in message["failed"]}
        for key, token, _ in message["chosen"]:
            if token is not None:
                self.found[key].append(token)

    def histories(self) -> Iterator[list[int]]:
        for prompt, found in zip(self.prompts, self.found, strict=True):
            yield [*prompt, *found]

    def check(self) -> None:
        """Check each text's tokens, and the caches of each text that runs or is kept."""
        for key, (prompt, found) in enumerate(zip(self.prompts, self.found, strict=True)):
            tokens = [*prompt]
            for token in found:
                assert token == next_token(tokens)
                tokens.append(token)
            assert len(found) == self.limits[key] or key in self.dropped or self.is_running
        rows, schedule = self.rank._rows, self.rank._schedule
        held = schedule.with_caches
        assert {*rows._places} >= {*held}
        assert len(held) <= self.rank._slots
        for text in held:
            caches, row = rows._places[text]
            for array in arrays_of(self.rank._steps, caches):
                assert array.shape[0] <= self.rank._slots
                assert array[row, :, : text.read, 0].tolist() == [text.tokens[: text.read]] * 4
        if not self.is_running and held:
            assert {id(caches) for caches, _ in rows._places.values()} == {id(rows._block)}

    @property
    def is_running(self) -> bool:
        return not self.rank._schedule.is_empty


@pytest.mark.quick
@examples(200)
@given(data=st.data())
def test_each_text_has_its_own_tokens(decoder: Decoder, data: st.DataObject) -> None:
    """Texts join, end and are dropped, and many begin like others; each row has its tokens."""
    options = {
        "slots": data.draw(st.integers(1, 5)),
        "step_tokens": data.draw(st.sampled_from([None, 3, 20])),
        "speculate": data.draw(st.sampled_from([0, 2])),
    }
    caller = Caller(simulated(decoder, packs=data.draw(st.booleans()), **options))
    chosen = random.Random(data.draw(st.integers(0, 1 << 30)))
    for _ in range(data.draw(st.integers(1, 12))):
        prompts = []
        for _ in range(chosen.choice((0, 1, 1, 2, 4))):
            known = chosen.choice([*caller.histories(), [chosen.randrange(9)] * 20])
            begun = known[: chosen.choice((len(known), chosen.randrange(len(known) + 1)))]
            prompts.append(begun + [chosen.randrange(48) for _ in range(chosen.randrange(1, 9))])
        keys = {key for key in range(len(caller.prompts)) if chosen.random() < 0.1}
        steps = chosen.choice((1, 2, 5, 1000))
        caller.send(prompts, chosen.choice((1, 2, 3, 9)), keys, steps)
        caller.check()
    caller.send([], 1, set(), 1000)
    caller.check()


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("slots", [1, 3])
def test_a_second_turn_reads_the_new_part(decoder: Decoder, slots: int, packs: bool) -> None:
    caller = Caller(simulated(decoder, packs=packs, slots=slots, step_tokens=7))
    prompt = [*range(20)]
    for turn in range(4):
        caller.rank.fed = 0
        caller.send([prompt], 5, set(), 1000)
        assert caller.rank.fed == (24 if turn == 0 else 9)  # of 5 new tokens, the last is not read
        assert caller.copied.get(turn, 0) == (0 if turn == 0 else 15 + 9 * turn)
        prompt = [*prompt, *caller.found[-1], 1, 2, 3, 4]
    caller.check()


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("slots", [8, 32])
def test_many_long_prompts_do_not_delay_other_texts(
    decoder: Decoder, slots: int, packs: bool
) -> None:
    """A running text goes on in every step, and a late short prompt is read at once."""
    rank = simulated(decoder, packs=packs, slots=slots, step_tokens=10)
    caller, fed = Caller(rank), list[int]()

    def steps(count: int) -> None:
        for _ in range(count):
            rank.fed = 0
            caller.send([], 1, set(), 1)
            fed.append(rank.fed)

    caller.send([[9]], 40, set(), 3)
    caller.send([[n] * 50 for n in range(16)], 4, set(), 1)
    steps(6)
    caller.send([[7, 8]], 3, set(), 1)
    begun = len(caller.found[0])
    most = 5 if packs else 24  # otherwise it waits for the prompt that is read, between steps
    steps(most)
    assert caller.found[-1]
    assert len(caller.found[0]) - begun >= (most if packs else most // 3)
    assert not any(caller.found[3:-1])
    assert max(fed) <= 10
    caller.send([], 1, set(), 1000)
    caller.check()


def ended(*tokens: int, read: int | None = None) -> Text:
    own = [*tokens]
    text = Text(0, 0, own, len(own), 99, (), Sampler(Sampling(), 0))
    text.read = len(own) if read is None else read
    return text


def kept_of(schedule: Schedule) -> list[int]:
    """Return the first tokens of the texts that are kept."""
    return [text.tokens[0] for text in schedule.kept]


def test_the_oldest_texts_leave() -> None:
    """A text leaves before them if a newer one has copied most of its tokens."""
    schedule = Schedule(3, keeps=True)
    for first in range(5):
        schedule.add(ended(first, *[7] * 20))
        schedule.admit()
        schedule.join()
        schedule.drop({0})
    assert kept_of(schedule) == [2, 3, 4]
    found = schedule.find_prefix(ended(4, *[7] * 18, 1, 1))
    assert found is not None
    assert found[1] == 19
    schedule.note_copy(found[0], 10)
    assert kept_of(schedule) == [2, 3, 4]
    schedule.note_copy(*found)
    assert kept_of(schedule) == [4, 2, 3]
    schedule.add(ended(9, *[7] * 20))
    schedule.admit()
    assert kept_of(schedule) == [4, 2, 3]  # the text that reads has caches of its own
    schedule.join()
    assert kept_of(schedule) == [2, 3]


@pytest.mark.parametrize("packs", [False, True])
def test_all_chats_continue_on_nearly_full_slots(decoder: Decoder, packs: bool) -> None:
    """Their turns leave out the last tokens of an answer, so all old turns have other tokens."""
    caller = Caller(simulated(decoder, packs=packs, slots=4))
    chats = [[n, *range(20)] for n in range(3)]
    for turn in range(3):
        caller.send(chats, 5, set(), 1000)
        assert len(caller.copied) == 3 * turn
        chats = [
            [*prompt, *found[:2], 47]
            for prompt, found in zip(chats, caller.found[-3:], strict=True)
        ]
        chats = chats[1:] + chats[:1]


def test_texts_that_are_not_kept() -> None:
    """Short ones, beginnings of others, and texts of a plan that cannot keep caches."""
    for keeps in (True, False):
        schedule = Schedule(4, keeps=keeps)
        for read, expected in ((LEAST_PREFIX - 1, []), (20, [20]), (18, [20]), (21, [21])):
            schedule.rows = [ended(*range(30), read=read)]
            schedule.drop({0})
            assert [text.read for text in schedule.kept] == (expected if keeps else [])
    schedule = Schedule(4, keeps=True)
    schedule.kept = [ended(*range(20)), ended(*range(18), 3, 3)]
    schedule.reading = ended(*range(30), read=25)
    schedule.join()
    assert [text.tokens[-1] for text in schedule.kept] == [3]


def test_a_dropped_text_is_kept(decoder: Decoder) -> None:
    """Also one that has only read a part of its prompt."""
    for packs, steps in ((True, 1), (True, 5), (False, 1), (False, 5)):
        caller = Caller(simulated(decoder, packs=packs, slots=2, step_tokens=20))
        prompt = [*range(30)]
        caller.send([prompt], 25, set(), steps)
        (text,) = [*caller.rank._schedule._admitted]
        read = text.read
        assert (read < 30) == (steps == 1)
        caller.send([], 1, {0}, 1000)
        assert caller.rank._schedule.is_empty
        caller.send([[*prompt, *caller.found[0], 3, 3]], 2, set(), 1000)
        assert caller.copied == {1: read}
        caller.check()


def test_an_error_forgets_all_texts(decoder: Decoder) -> None:
    caller = Caller(simulated(decoder, packs=True, slots=2))
    caller.send([[*range(20)]], 3, set(), 1000)
    assert len(caller.rank._schedule.kept) == 1
    with (
        mock.patch.object(caller.rank, "_take_step", side_effect=MemoryError),
        pytest.raises(MemoryError),
    ):
        caller.send([[*range(20)]], 3, set(), 1000)
    assert not caller.rank._schedule.with_caches
    assert caller.rank._rows._block is None
    caller.send([[*range(20)]], 3, set(), 1000)
    assert caller.copied == {}


@pytest.mark.parametrize("packs", [False, True])
def test_memory_is_bounded(decoder: Decoder, packs: bool) -> None:
    """Caches have a row per slot, and one more for a text that reads its prompt."""
    gc.collect()
    known = {id(one) for one in gc.get_objects() if type(one) is Caches}
    found: list[int] = []

    def count(*_: object) -> None:
        caches = [own for own in gc.get_objects() if type(own) is Caches]
        arrays = [arrays_of(rank._steps, own)[0] for own in caches if id(own) not in known]
        rows = {array.ctypes.data: 0 for array in arrays}
        for array in arrays:
            if array.shape[2] > 1:  # not those of a session without texts
                rows[array.ctypes.data] = max(rows[array.ctypes.data], array.shape[0])
        found.append(sum(rows.values()))

    rank = simulated(decoder, packs=packs, slots=3, step_tokens=8)
    caller = Caller(rank)
    for n in range(12):
        prompts = [[n, *range(20)], [*range(20), n], [*range(20), 47 - n]]
        caller.send(prompts, 3, set(), 1)
        while caller.is_running:
            count()
            caller.send([], 1, set(), 1)
        count()
        caller.check()
    assert len(found) > 60
    assert max(found) == (3 if packs else 4)
    assert max(found[-1:]) == 3


@pytest.mark.parametrize("flags", [(), ("--dim", "sequence=1")])
@pytest.mark.parametrize(
    ("ranks", "options"), [(1, {}), (2, {}), (2, {"slots": 1}), (2, {"speculate": 3})]
)
def test_turns_of_a_chat(
    model: Path, ranks: int, options: dict[str, int], flags: tuple[str, ...]
) -> None:
    """Each turn copies the tokens that were read before, and has the tokens of one device."""
    if flags and "speculate" in options:
        pytest.skip("a plan of single tokens verifies no proposals")
    chosen = random.Random(1)
    with TextSession(plan_of(model, *flags, ranks=ranks), threads=1, **options) as session:
        chats = [[chosen.randrange(48) for _ in range(18)] for _ in range(min(3, session.slots))]
        copied = 0
        for turn in range(3):
            for chat in chats:
                first, *rest = session.stream(chat, max_tokens=6)
                tokens = [first.token, *(piece.token for piece in rest)]
                assert tokens == greedy(model, chat, 6)
                # The last token of an answer was not read, or only as a proposal.
                assert first.copied == (len(chat) - 3 if turn else 0)
                copied += first.copied
                chat += [*tokens, chosen.randrange(48), chosen.randrange(48)]
        assert session.copied == copied > 0


@pytest.mark.quick
@pytest.mark.parametrize("ranks", [1, 2])
def test_many_different_texts_on_few_slots(model: Path, ranks: int) -> None:
    """Texts begin like others, run together, are closed, and push each other out."""
    chosen = random.Random(3)
    begun = [[chosen.randrange(48) for _ in range(20)] for _ in range(3)]
    with TextSession(plan_of(model, ranks=ranks), threads=1, slots=2, step_tokens=9) as session:
        for _ in range(8):
            prompts = [
                [*chosen.choice(begun), *(chosen.randrange(48) for _ in range(5))] for _ in range(4)
            ]
            streams = [session.stream(prompt, max_tokens=9) for prompt in prompts]
            next(streams[1])
            streams[1].close()
            for prompt, stream in zip(prompts, streams, strict=True):
                found = [piece.token for piece in stream]
                assert found == ([] if stream is streams[1] else greedy(model, prompt, 9))
        assert session.copied > 0


def test_new_ranks_have_no_caches(model: Path) -> None:
    prompt = [*range(20)]
    with TextSession(plan_of(model), threads=1) as session:
        session.generate(prompt, max_tokens=2)
        os.kill(session._pool.pids[1], signal.SIGKILL)
        with pytest.raises(RankFailedError):
            session.generate(prompt, max_tokens=2)
        session.restart()
        assert list(session.generate(prompt, max_tokens=2)[0].tokens) == greedy(model, prompt, 2)
        assert session.copied == 0


@pytest.mark.parametrize("flags", [("--dim", "batch=4"), ("--dim", "batch=1..4:3")])
def test_plans_that_fill_rows_up_keep_nothing(model: Path, flags: tuple[str, str]) -> None:
    prompts = [[*range(20)], [*range(21)]]
    with TextSession(plan_of(model, *flags), threads=1) as session:
        for prompt in prompts:
            (found,) = session.generate(prompt, max_tokens=3)
            assert list(found.tokens) == greedy(model, prompt, 3)
        assert session.copied == 0
