"""Grammars that ranks compile while texts go on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from decoder_plans import plan_of, small_decoder
from test_kept_texts import VOCABULARY, Caller, next_token, simulated

from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.text.compiling import Compiler
from tensoropt.runtime.text.decoder import Decoder, decoder_of
from tensoropt.runtime.text.grammar import Matcher
from tensoropt.runtime.text.shared_memory import SharedScores

LIMIT_S = 20.0


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    model = small_decoder(tmp_path_factory.mktemp("compiling"), 60)
    return decoder_of(Plan.load(plan_of(model, ranks=1)))


class Only(Matcher):
    """Allows one token alone."""

    def __init__(self, token: int) -> None:
        self._token = token

    def allowed(self, size: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return np.arange(size) == self._token

    def take(self, token: int) -> None:
        assert token == self._token


class Slow:
    """Compiles a number as a grammar of this token alone, once its gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.compiled: list[str] = []

    def matcher(self, grammar: str) -> Matcher:
        assert self.gate.wait(LIMIT_S)
        self.compiled.append(grammar)
        if grammar == "wrong":
            raise UserError("grammar: wrong")
        if grammar == "broken":
            raise MemoryError
        return Only(int(grammar))


def caller_of(decoder: Decoder, grammars: Slow, *, packs: bool = True) -> Caller:
    """Return the caller of a rank that knows of compiled grammars after each step."""
    rank = simulated(decoder, packs=packs, slots=4)
    compiler = rank._compiler = Compiler(grammars)  # type: ignore[arg-type]

    def agree(*, stop: bool, number: int) -> tuple[bool, int]:
        rank.steps -= 1
        return rank.steps <= 0, number

    rank._shared_scores = lambda _: SimpleNamespace(agree=agree)  # type: ignore[assignment]
    take_step = rank._take_step

    def take(*given: Any) -> Any:
        found = take_step(*given)
        rank._note_compiled(stop=rank._is_stopped, number=compiler.compiled)
        return found

    rank._take_step = take  # type: ignore[method-assign]
    return Caller(rank)


def send(
    caller: Caller, *prompts: tuple[list[int], str | None], steps: int, drop: int = -1
) -> None:
    """Send prompts, each with its grammar."""
    grammars = [grammar for _, grammar in prompts]
    caller.send([prompt for prompt, _ in prompts], 5, {drop} - {-1}, steps, grammars)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize("packs", [False, True])
def test_texts_go_on_while_grammars_are_compiled(decoder: Decoder, packs: bool) -> None:
    grammars = Slow()
    caller = caller_of(decoder, grammars, packs=packs)
    send(caller, ([1, 2], "7"), ([3], None), ([4], "9"), ([5, 6], None), steps=30)
    assert [len(found) for found in caller.found] == [0, 5, 0, 5]
    assert caller.rank._schedule.awaits_grammars
    send(caller, ([8], None), steps=8)  # a client that comes later
    assert len(caller.found[4]) == 5
    grammars.gate.set()
    send(caller, steps=1000)
    assert caller.found[0] == [7] * 5
    assert caller.found[2] == [9] * 5
    assert caller.found[1][0] == next_token([3])
    assert grammars.compiled == ["7", "9"]


def test_a_dropped_text_needs_no_grammar(decoder: Decoder) -> None:
    grammars = Slow()
    caller = caller_of(decoder, grammars)
    send(caller, ([1], "7"), ([2], "8"), ([3], "9"), steps=3)
    send(caller, steps=3, drop=1)
    grammars.gate.set()
    send(caller, steps=1000)
    assert grammars.compiled == ["7", "9"]
    assert [len(found) for found in caller.found] == [5, 0, 5]


def test_a_grammar_that_fails_ends_its_text_alone(decoder: Decoder) -> None:
    grammars = Slow()
    grammars.gate.set()
    caller = caller_of(decoder, grammars)
    send(caller, ([1], "wrong"), ([2], "8"), steps=1000)
    assert caller.found == [[], [8] * 5]
    assert caller.errors == {0: "grammar: wrong"}


def test_an_unexpected_error_is_raised_by_the_rank(decoder: Decoder) -> None:
    """Other ranks may not have it, so it ends all of them."""
    grammars = Slow()
    grammars.gate.set()
    caller = caller_of(decoder, grammars)
    with pytest.raises(MemoryError):
        send(caller, ([1], "broken"), steps=1000)
    send(caller, ([1], "7"), steps=1000)
    assert caller.found[-1] == [7] * 5


def test_ranks_agree_on_the_least_number() -> None:
    """The flag is rank 0's; a rank that is ahead does not change what others read."""
    barrier, passed = threading.Barrier(2), list[Any]()

    def comm(rank: int) -> Any:
        def bcast(value: Any) -> Any:
            if rank == 0:
                passed.append(value)
            barrier.wait(LIMIT_S)
            return passed[-1]

        wait = lambda: barrier.wait(LIMIT_S)  # noqa: E731
        return SimpleNamespace(rank=rank, size=2, bcast=bcast, Barrier=wait)

    def work(rank: int) -> list[tuple[bool, int]]:
        scores = SharedScores(comm(rank), 2, VOCABULARY, np.dtype(np.float32))
        return [
            scores.agree(stop=(rank, turn) in ((0, 1), (1, 2)), number=turn + rank * (turn % 3))
            for turn in range(5)
        ]

    with ThreadPoolExecutor(2) as threads:
        found = [*threads.map(work, (0, 1))]
    assert found == [[(turn == 1, turn) for turn in range(5)]] * 2


def test_compilations_leave_the_processor_to_others() -> None:
    found: list[int] = []

    class Looking:
        def matcher(self, _: str) -> Matcher:
            found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            return Only(0)

    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    compiler = Compiler(Looking())  # type: ignore[arg-type]
    compiler.add(1, "7")
    until(lambda: compiler.compiled)
    assert found[0] > own
