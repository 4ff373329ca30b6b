"""Texts that fail end alone: the other texts go on, and the ranks with them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from decoder_plans import plan_of
from handmade_decoder import greedy, write_decoder
from onnx import numpy_helper
from tokenizers import Tokenizer, decoders, models

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.messages import Message
from tensoropt.runtime.text.engine import Engine, Piece, Stream, Writer
from tensoropt.runtime.text.isolation import TextFailedError, isolated
from tensoropt.runtime.text.program import Texts
from tensoropt.runtime.text.sampling import Sampler, Sampling
from tensoropt.runtime.text.scheduling import Schedule, Text
from tensoropt.runtime.text.session import TextSession
from tensoropt.runtime.text.stopping import StopTexts
from tensoropt.runtime.text.tokens import Vocabulary

BAD = 5  # a token that overflows: after it, no score is finite
PROMPT = [3, 9, 1]
LONG = [*range(10, 40)]


@pytest.fixture(scope="module", params=["concat", "in place", "speculating", "one slot"])
def overflowing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, TextSession]]:
    folder = tmp_path_factory.mktemp("overflowing")
    model = write_decoder(folder / "m.onnx", layers=1, in_place=request.param != "concat")
    proto = onnx.load(model)
    (words,) = (weight for weight in proto.graph.initializer if weight.name == "w0")
    rows = numpy_helper.to_array(words).copy()
    rows[BAD] = np.inf
    words.CopyFrom(numpy_helper.from_array(rows, "w0"))
    onnx.save(proto, model)
    slots = {"slots": 1} if request.param == "one slot" else {}
    speculate = {"speculate": 2} if request.param == "speculating" else {}
    with TextSession(plan_of(model), threads=1, **slots, **speculate) as session:
        yield model, session


def _without_bad(model: Path, prompt: Sequence[int], count: int) -> list[int]:
    tokens = greedy(model, list(prompt), count)
    assert BAD not in tokens
    return tokens


@pytest.mark.parametrize(
    ("prompt", "how", "count"),
    [
        ([3, 9, BAD], {}, 0),
        ([BAD], {"temperature": 1.0}, 0),
        ([BAD, *LONG], {"temperature": 1.0, "top_k": 3}, 0),
        ([*LONG, BAD], {"logprobs": 2}, 0),
        ([*LONG, BAD, 1], {"prompt_logprobs": 2}, 0),
        (PROMPT, {"biases": [(BAD, 1e4)]}, 1),
        (LONG, {"biases": [(BAD, 1e4)], "temperature": 0.5, "repetition_penalty": 1.5}, 1),
    ],
)
def test_scores_that_are_not_finite_end_their_text(
    overflowing: tuple[Path, TextSession], prompt: list[int], how: Any, count: int
) -> None:
    model, session = overflowing
    with session.stream(PROMPT, max_tokens=30) as other:
        tokens = [next(other).token]
        failing, pieces = session.stream([prompt], max_tokens=5, **how), []
        with pytest.raises(TextFailedError, match=r"^scores: expected finite numbers, .* got: "):
            for piece in failing:
                pieces.append(piece)
        assert [piece.token for piece in pieces] == [BAD] * count
        tokens += [piece.token for piece in other]
    assert tokens == _without_bad(model, PROMPT, 30)
    # The rows of the text that failed are used again.
    (found,) = session.generate(LONG, max_tokens=6)
    assert list(found.tokens) == _without_bad(model, LONG, 6)


def test_texts_fail_among_many(overflowing: tuple[Path, TextSession]) -> None:
    model, session = overflowing
    prompts = [[n, n + 1, *(LONG if n % 2 else ())] for n in range(12, 24)]
    streams = [
        session.stream([[*prompt, BAD] if n % 3 == 0 else prompt], max_tokens=8)
        for n, prompt in enumerate(prompts)
    ]
    for n, (stream, prompt) in enumerate(zip(streams, prompts, strict=True)):
        if n % 3 == 0:
            with pytest.raises(TextFailedError, match="scores: expected finite"):
                next(stream)
        else:
            tokens = [piece.token for piece in stream]
            assert tokens == _without_bad(model, prompt, 8)


class Ranks:
    """Stands in for the ranks: each text gets the tokens of its prompt."""

    def empty(self, shapes: Any) -> dict[str, np.ndarray]:
        return {name: np.zeros(shape, dtype) for name, (dtype, shape) in shapes.items()}

    def stream(
        self, asked: Message, arrays: Any
    ) -> Generator[Message, None, tuple[Message, dict[str, Any]]]:
        counts = {"copied": [], "proposed": 0, "accepted": 0}
        for place in range(4):
            chosen = [
                (new["key"], new["prompt"][place], None)
                for new in asked["add"]
                if place < len(new["prompt"])
            ]
            yield {"chosen": chosen, "failed": [], **counts}
        failed = [(new["key"], *new["error"]) for new in asked["add"] if new["error"] is not None]
        return {"chosen": [], "failed": failed, **counts}, {}


class EndlessRanks(Ranks):
    """Continue texts without a token, until they are dropped."""

    def __init__(self) -> None:
        self._keys: set[int] = set()

    def stream(
        self, asked: Message, arrays: Any
    ) -> Generator[Message, None, tuple[Message, dict[str, Any]]]:
        self._keys |= {new["key"] for new in asked["add"]}
        self._keys -= {*asked["drop"]}
        nothing = {"chosen": [], "failed": [], "copied": [], "proposed": 0, "accepted": 0}
        while self._keys and not arrays["stop"][0]:
            time.sleep(0.001)
            yield nothing
        return nothing, {}


def test_garbage_collection_never_waits_for_the_engine() -> None:
    """It may run in the thread that the engine starts, before that thread has begun."""
    engine = Engine(EndlessRanks())  # type: ignore[arg-type]
    stream = Stream(engine, [({"prompt": [1], "error": None}, _writer(1))])
    assert engine.waiting == 1
    with engine._lock:
        thread = threading.Thread(target=stream.__del__, daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
    until = time.monotonic() + 10
    while engine.waiting and time.monotonic() < until:
        time.sleep(0.001)
    assert engine.waiting == 0


def _writer(count: int, vocabulary: Vocabulary | None = None, **more: Any) -> Writer:
    stream = None if vocabulary is None else vocabulary.stream()
    return Writer(0, count, stream, StopTexts([]), [], **more)


def _submitted(
    engine: Engine, prompt: list[int], writer: Writer, error: Any = None
) -> SimpleQueue[Any]:
    pieces: SimpleQueue[Any] = SimpleQueue()
    engine.submit([({"prompt": prompt, "error": error}, writer)], pieces.put)
    return pieces


def _all(pieces: SimpleQueue[Any]) -> tuple[list[int], Any]:
    tokens = []
    while isinstance(piece := pieces.get(timeout=10), Piece):
        tokens.append(piece.token)
    return tokens, piece


def _panicking(folder: Path) -> Vocabulary:
    tokenizer = Tokenizer(models.WordLevel({" ": 0, "a": 1}, unk_token="a"))
    tokenizer.decoder = decoders.Strip(" ", 1, 1)
    tokenizer.save(str(folder / "tokenizer.json"))
    return Vocabulary(folder / "tokenizer.json")


def test_a_text_that_cannot_be_decoded_ends_alone(tmp_path: Path) -> None:
    engine = Engine(Ranks())  # type: ignore[arg-type]
    vocabulary = _panicking(tmp_path)
    with engine._lock:  # all in one message
        good = _submitted(engine, [1, 1, 1], _writer(3))
        bad = _submitted(engine, [1, 0, 1], _writer(3, vocabulary))
        late = _submitted(engine, [1, 1, 1, 1], _writer(4, vocabulary))
    tokens, error = _all(bad)
    assert tokens == [1]
    assert isinstance(error, UserError)
    assert "PanicException" in str(error)
    assert _all(good) == ([1, 1, 1], None)
    assert _all(late) == ([1, 1, 1, 1], None)
    assert engine.running == engine.waiting == 0


def test_a_caller_that_cannot_take_a_piece_loses_its_text_alone() -> None:
    engine = Engine(Ranks())  # type: ignore[arg-type]

    def refuse(piece: object) -> None:
        raise ValueError("no")

    with engine._lock:
        engine.submit([({"prompt": [1, 2], "error": None}, _writer(2))], refuse)
        good = _submitted(engine, [1, 1, 1], _writer(3))
    assert _all(good) == ([1, 1, 1], None)
    assert engine.waiting == 0


@pytest.mark.parametrize(("is_refused", "kind"), [(True, UserError), (False, TextFailedError)])
def test_a_text_that_fails_on_the_ranks(is_refused: bool, kind: type[UserError]) -> None:
    engine = Engine(Ranks())  # type: ignore[arg-type]
    with engine._lock:
        bad = _submitted(engine, [1, 2], _writer(3), ("why", is_refused))
        good = _submitted(engine, [1, 1, 1], _writer(3))
    tokens, error = _all(bad)
    assert (tokens, type(error), str(error)) == ([1, 2], kind, "why")
    assert _all(good) == ([1, 1, 1], None)


def test_a_text_that_fails_on_one_rank_alone_is_dropped_by_all() -> None:
    texts = object.__new__(Texts)
    sampler = Sampler(Sampling(), 0)
    texts._schedule = Schedule(2)
    for key in (1, 2, 3):
        texts._schedule.add(Text(key, 1, [5], 1, 4, (), sampler))
    of_others = [(2, "cannot read", True)]
    failures = [(4, ValueError("why"))]
    texts._failed = []
    texts._compiler = SimpleNamespace(take_failures=lambda _: failures)  # type: ignore[assignment]
    texts._comm = SimpleNamespace(allgather=lambda own: [of_others, own])  # type: ignore[assignment]
    texts._note_compiled(stop=False, number=1)
    (key, error, is_refused), *_ = texts._failed[1:]
    assert texts._failed[0] == (2, "cannot read", True)
    assert (key, is_refused) == (4, False)
    assert "why" in error
    assert [text.key for text in texts._schedule._waiting] == [1, 3]
    texts._note_compiled(stop=True, number=1)  # no collective without more grammars
    assert texts._is_stopped
    assert len(texts._failed) == 2


def _exit() -> None:
    raise SystemExit


def _exhaust() -> None:
    raise MemoryError


@pytest.mark.parametrize(
    ("work", "passes"), [(lambda: 1 // 0, "ZeroDivisionError"), (_exit, None), (_exhaust, None)]
)
def test_errors_that_are_of_one_text(work: Callable[[], object], passes: str | None) -> None:
    errors: list[UserError] = []
    if passes is None:
        with pytest.raises((SystemExit, MemoryError)), isolated(errors.append):
            work()
        assert not errors
        return
    with isolated(errors.append):
        work()
    assert [type(error) for error in errors] == [TextFailedError]
    assert passes in str(errors[0])
