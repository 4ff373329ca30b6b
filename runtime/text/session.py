"""`TextSession`: a decoder's ranks, started once, that continue texts."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from tensoropt.runtime.plan.plan import Plan, given_dims
from tensoropt.runtime.pool.pool import GRACE_S, Pool, check_unchanged, start
from tensoropt.runtime.pool.ranks import last
from tensoropt.runtime.support.closing import Closing
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.messages import Message
from tensoropt.runtime.text.chat import Chat, ChatTemplate, find_template
from tensoropt.runtime.text.decoder import check_reader, check_steps, decoder_of
from tensoropt.runtime.text.sampling import Sampling
from tensoropt.runtime.text.stopping import MAX_TOKENS, StopTexts
from tensoropt.runtime.text.together import batches
from tensoropt.runtime.text.tokens import TextOf, Vocabulary, find_tokenizer

__all__ = ["AHEAD", "Continuation", "How", "Piece", "Prompt", "TextSession"]

Prompt = str | Sequence[int]
"""Text, or tokens."""

AHEAD = 32
"""Steps that ranks take for one request: so far they may be ahead of who reads."""


class How(TypedDict, total=False):
    """How to continue, see `TextSession.stream`."""

    max_tokens: int
    stop: Sequence[str]
    temperature: float
    top_k: int | None
    top_p: float | None
    seed: int


@dataclass(frozen=True)
class Piece:
    """One more token of the continuation of prompt ``number``.

    ``text`` is what is new and sure: it may be empty, as several tokens may be one character.
    ``finish`` is set with the last one: "stop" at a stop text or at a token that ends texts,
    "length" at the limit.
    """

    number: int
    token: int
    text: str
    finish: str | None = None


@dataclass(frozen=True)
class Continuation:
    """What followed a prompt: ``text`` up to a stop text, all ``tokens``, and why it ended."""

    text: str
    tokens: tuple[int, ...]
    finish: str


class TextSession(Closing):
    """The ranks of a decoder's plan, ready to continue texts; a context that ends them.

    ``tokenizer`` is a file tokenizer.json: None takes the plan's, if it has one; without any,
    prompts are tokens. ``dims`` gives sizes that the model leaves open, but for those of batch and
    tokens. ``prefill`` is the folder of another plan of the same model, for as many ranks: it reads
    the prompts, and hands its caches on. Sequences of more than ``step_tokens`` tokens do not go
    through the model together, and longer prompts are read in several steps: None sets no limit.
    The rest is as for `Session`. Caches stay on the ranks.

    One text after the other: other threads wait. Raises `UserError` where the plan has no caches.
    """

    def __init__(
        self,
        plan: Path | str,
        *,
        prefill: Path | str | None = None,
        tokenizer: Path | str | None = None,
        step_tokens: int | None = None,
        provider: str = "cpu",
        threads: int | None = None,
        dims: Mapping[str, int] | None = None,
        share_gpus: bool = False,
        custom_ops: Sequence[str] = (),
        timeout_s: float | None = None,
        ready_s: float | None = None,
    ) -> None:
        self.plan = Plan.load(plan)
        sizes = given_dims(dims, self.plan)
        self._decoder = decoder_of(self.plan, sizes)
        check_steps(self._decoder)
        options: dict[str, Any] = {"dims": sizes}
        self._prefill: Plan | None = None
        if prefill is not None:
            reader = decoder_of(Plan.load(prefill), sizes)
            check_reader(reader, self._decoder)
            self._prefill = reader.plan
            options["prefill"] = str(reader.plan.folder.absolute())
            options["prefill_sha256"] = reader.plan.sha256
        path = find_tokenizer(self.plan, tokenizer)
        self._vocabulary = None if path is None else Vocabulary(path)
        self._template: ChatTemplate | None = None
        self._step_tokens = step_tokens
        self._turn = threading.Lock()
        self._holder: int | None = None
        self._pool: Pool = start(
            self.plan,
            "text",
            options,
            threads=threads,
            provider=provider,
            share_gpus=share_gpus,
            custom_ops=tuple(map(str, custom_ops)),
            timeout_s=timeout_s,
            ready_s=ready_s,
        )

    @property
    def context(self) -> int | None:
        """The most tokens of a text, None where nothing says it."""
        return self._decoder.context

    @property
    def is_alive(self) -> bool:
        """Whether all ranks are there."""
        return self._pool.is_alive

    @property
    def silent_s(self) -> float:
        """For how many seconds a step has been without tokens; 0 where there is none."""
        return self._pool.silent_s

    def close(self, grace_s: float = GRACE_S) -> None:
        """End the ranks, after what they are at or in ``grace_s`` seconds; again is no error."""
        self._pool.close(grace_s)
        if self._template is not None:
            self._template.close()

    def restart(self) -> None:
        """Start new ranks in place of any that are left.

        Raises `UserError`, also for a plan that was replaced in its folder.
        """
        if self._prefill is not None:
            check_unchanged(self._prefill)
        self._pool.restart()

    def generate(
        self, prompts: Prompt | Sequence[Prompt], **how: Unpack[How]
    ) -> list[Continuation]:
        """Return the continuation of each prompt; of a single one, a list of one.

        ``how`` is as for `stream`, and so are errors.
        """
        many = _listed(prompts)
        pieces: list[list[Piece]] = [[] for _ in many]
        for piece in self.stream(many, **how):
            pieces[piece.number].append(piece)
        return [
            Continuation(
                "".join(piece.text for piece in own),
                tuple(piece.token for piece in own),
                own[-1].finish or "",
            )
            for own in pieces
        ]

    def stream(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        max_tokens: int = MAX_TOKENS,
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        cancelled: threading.Event | None = None,
    ) -> Generator[Piece, None, None]:
        """Return an iterator over the tokens of all continuations, as they are made.

        ``temperature``, ``top_k``, ``top_p`` and ``seed`` are those of `Sampling`: tokens are
        drawn unless ``temperature`` is 0. Texts end at any of ``stop``, which is left out. Once
        another thread sets ``cancelled``, the ranks end at the step that they are at, also while
        they read prompts, and the iterator ends.

        Raises `UserError` at once for a prompt that is empty or longer than the model's context.
        Close an iterator that is not read to its end: others wait for it.
        """
        if max_tokens < 1:
            raise UserError(f"max-tokens: expected at least 1, got: {max_tokens}")
        if stop and self._vocabulary is None:
            raise UserError("stop: expected a tokenizer, as texts are looked for")
        sampling = Sampling(temperature, top_k, top_p, seed)
        tokens = [self.tokens_of(prompt) for prompt in _listed(prompts)]
        cancelled = cancelled or threading.Event()
        return self._texts(tokens, max_tokens, stop, sampling, cancelled)

    def chat(self, messages: Chat, **how: Unpack[How]) -> Continuation:
        """Return what a model answers to messages, each with a ``role`` and its ``content``.

        They become a text by the model's own chat template; ``how`` is as for `stream`. Raises
        `UserError` where the plan has no template, or that refuses the messages.
        """
        (answer,) = self.generate(self.tokens_of_chat(messages), **how)
        return answer

    def room(self, tokens: Sequence[int]) -> int:
        """Return how many tokens may follow these where nobody says: all that the context takes."""
        context = self._decoder.context
        return MAX_TOKENS if context is None else max(1, context - len(tokens))

    def tokens_of_chat(self, messages: Chat) -> list[int]:
        """Return the tokens of a chat; raises `UserError` for one that cannot be continued."""
        if self._template is None:
            self._template = find_template(self.plan)
        if self._template is None:
            raise UserError(
                f"{self.plan.folder}: has no chat template, expected the plan of a model with "
                "chat_template.jinja or tokenizer_config.json beside it, or a prompt"
            )
        if self._vocabulary is None:
            raise UserError(f"{self.plan.folder}: has no tokenizer.json, expected --tokenizer FILE")
        text = self._template.text_of(messages)
        self._check_beginning(self._vocabulary, text)
        tokens = self._vocabulary.tokens(text, is_begun=True)
        self._check(tokens)
        return tokens

    def tokens_of(self, prompt: Prompt) -> list[int]:
        """Return the tokens of one prompt; raises `UserError` for one that cannot be continued."""
        if isinstance(prompt, str):
            if self._vocabulary is None:
                raise UserError(
                    f"{self.plan.folder}: has no tokenizer.json, expected --tokenizer FILE, or "
                    "tokens for a prompt"
                )
            self._check_beginning(self._vocabulary, prompt)
            prompt = self._vocabulary.tokens(prompt) if prompt else []
        self._check(prompt)
        return [int(token) for token in prompt]

    def _check_beginning(self, vocabulary: Vocabulary, text: str) -> None:
        context = self._decoder.context
        if context is not None and vocabulary.exceeds(text, context):
            raise self._too_long(f"more, in {len(text)} characters")

    def _too_long(self, found: str) -> UserError:
        context = self._decoder.context
        whose = "model" if context == self._decoder.entry["context"] else "plan"
        return UserError(
            f"prompt: expected fewer tokens than the {whose}'s context of {context}, got: {found}"
        )

    def _check(self, tokens: Sequence[int]) -> None:
        if not len(tokens):
            raise UserError("prompt: is empty, expected at least one token")
        context, size = self._decoder.context, self._decoder.scores.shape[2]
        if context is not None and len(tokens) >= context:
            raise self._too_long(str(len(tokens)))
        for token in tokens:
            if token < 0 or (isinstance(size, int) and token >= size):
                raise UserError(f"prompt: expected tokens from 0 to {size} - 1, got: {token}")

    def _texts(
        self,
        prompts: list[list[int]],
        max_tokens: int,
        stop: Sequence[str],
        sampling: Sampling,
        cancelled: threading.Event,
    ) -> Generator[Piece, None, None]:
        if self._holder == threading.get_ident():
            raise UserError("a stream of this session is not at its end, expected it to be closed")
        with self._turn:
            self._holder = threading.get_ident()
            try:
                for numbers in self._batches(prompts, max_tokens):
                    if cancelled.is_set():
                        return
                    batch = {number: prompts[number] for number in numbers}
                    yield from self._continued(batch, max_tokens, stop, sampling, cancelled)
            finally:
                self._holder = None

    def _batches(self, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
        lengths, context = [len(prompt) for prompt in prompts], self._decoder.context
        limit = max_tokens if context is None else min(max_tokens, context - min(lengths))
        return batches(lengths, self._decoder, limit, self._step_tokens)

    def _writer(self, number: int, stop: Sequence[str]) -> _Writer:
        stream = None if self._vocabulary is None else self._vocabulary.stream()
        return _Writer(number, stream, StopTexts(stop), self._decoder.entry["end"])

    def _continued(
        self,
        prompts: Mapping[int, list[int]],
        max_tokens: int,
        stop: Sequence[str],
        sampling: Sampling,
        cancelled: threading.Event,
    ) -> Generator[Piece, None, None]:
        """Yield the tokens of prompts that go together until each sequence is at its end."""
        writers = [self._writer(number, stop) for number in prompts]
        limit, context = max_tokens, self._decoder.context
        if context is not None:
            limit = min(limit, context - max(map(len, prompts.values())))
        asked = {
            "prompts": list(prompts.values()),
            "tokens": limit,
            "end": self._decoder.entry["end"],
            "numbers": list(prompts),
            "sampling": asdict(sampling),
            "step_tokens": self._step_tokens,
        }
        with closing(self._steps(asked, cancelled)) as steps:
            for count, tokens in enumerate(steps, 1):
                for writer, token in zip(writers, tokens, strict=True):
                    if not writer.is_done:
                        yield writer.add(token, is_last=count == limit)
                if all(writer.is_done for writer in writers):
                    return

    def _steps(
        self, asked: Message, cancelled: threading.Event
    ) -> Generator[list[int], None, None]:
        """Yield the tokens of each step as ranks choose them; they are no further than a request.

        So they sleep while nobody takes what they made, and one message does for many tokens. The
        end comes early once ``cancelled`` is set.
        """
        shared = self._pool.empty({"stop": (np.dtype(np.int64), (1,))})
        left = asked["tokens"]
        while left and not cancelled.is_set():
            shared["stop"][0] = 0
            heard = self._pool.heard({**asked, "steps": AHEAD}, shared)
            try:
                for tokens in _all_told(heard, cancelled):
                    left -= 1
                    yield tokens
            finally:  # also when nobody wants more
                shared["stop"][0] = 1
                last(heard)
            asked = {}


@dataclass
class _Writer:
    """Makes the pieces of one continuation."""

    number: int
    stream: TextOf | None
    until: StopTexts
    end: Sequence[int]
    is_done: bool = False

    def add(self, token: int, *, is_last: bool) -> Piece:
        """Return the piece of another token."""
        ends = token in self.end
        text = "" if ends or self.stream is None else self.until.add(self.stream.add(token))
        finish = "stop" if ends or self.until.found else "length" if is_last else None
        self.is_done = finish is not None
        if self.is_done and not self.until.found:
            text += self.until.rest()
        return Piece(self.number, token, text, finish)


def _all_told(
    heard: Generator[Message, None, tuple[Message, object]], cancelled: threading.Event
) -> Generator[list[int], None, None]:
    """Yield the tokens of each step from the messages of the ranks, until ``cancelled``."""
    while not cancelled.is_set():
        try:
            message = next(heard)
        except StopIteration as end:
            yield from end.value[0]["tokens"]
            return
        yield from message["tokens"]


def _listed(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """Return prompts as a list, also where it is a single one."""
    if isinstance(prompts, str):
        return [prompts]
    listed = list(prompts)
    if listed and all(isinstance(one, int | np.integer) for one in listed):
        return [listed]  # type: ignore[list-item]
    return listed or [[]]  # type: ignore[return-value]
