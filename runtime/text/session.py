"""`TextSession`: text generation on a decoder's ranks, which are started once."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict, Unpack

import numpy as np

from tensoropt.runtime.plan.plan import Plan, check_dims
from tensoropt.runtime.pool.pool import GRACE_S, Pool, check_unchanged, start
from tensoropt.runtime.pool.ranks import exhaust
from tensoropt.runtime.support.closing import Closing
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.messages import Message
from tensoropt.runtime.support.options import OptionError, shows_options
from tensoropt.runtime.support.rank_options import SessionArguments, SessionOptions
from tensoropt.runtime.text.batching import batches
from tensoropt.runtime.text.chat import Chat, ChatTemplate, find_template
from tensoropt.runtime.text.decoder import check_reader, check_steps, decoder_of
from tensoropt.runtime.text.sampling import Sampling
from tensoropt.runtime.text.stopping import MAX_TOKENS, StopTexts
from tensoropt.runtime.text.tokens import TextOf, Vocabulary, find_tokenizer

__all__ = ["AHEAD", "Continuation", "How", "Piece", "Prompt", "TextSession"]

Prompt = str | Sequence[int]
"""Text, or tokens."""

AHEAD = 32
"""Steps per request to the ranks, which bounds their lead over the reader of the stream."""


class How(TypedDict, total=False):
    """Options of a continuation, see `TextSession.stream`."""

    max_tokens: int
    stop: Sequence[str]
    temperature: float
    top_k: int | None
    top_p: float | None
    seed: int


@dataclass(frozen=True)
class Piece:
    """One token of the continuation of prompt ``number``.

    ``text`` is the new final text; it may be empty, because a character may take several tokens.
    ``finish`` is set on the last piece: "stop" at a stop text or an end token, "length" at the
    limit.
    """

    number: int
    token: int
    text: str
    finish: str | None = None


@dataclass(frozen=True)
class Continuation:
    """The continuation of a prompt: ``text`` up to a stop text, all ``tokens``, and ``finish``.

    ``finish`` is "stop" or "length", as in `Piece`.
    """

    text: str
    tokens: tuple[int, ...]
    finish: str


class TextSession(Closing):
    """The ranks of a decoder's plan, ready to continue texts; a context manager that ends them.

    ``tokenizer`` is a file tokenizer.json; None uses the plan's, if any. Without a tokenizer,
    prompts are tokens. ``dims`` has the sizes of symbolic dimensions other than batch and tokens.
    ``prefill`` is the folder of another plan of the same model, with the same number of ranks; it
    reads the prompts and passes on its caches. ``step_tokens`` bounds the tokens of the sequences
    of a batch, and of a step that reads prompts; None sets no limit. The other arguments are
    arguments of `Session`; ``stall_s`` limits each step. Caches stay on the ranks.

    One request runs at a time, and other threads wait. Raises `UserError` if the plan has no
    caches.
    """

    @shows_options(SessionOptions, SessionArguments)
    def __init__(
        self,
        plan: Path | str,
        *,
        prefill: Path | str | None = None,
        tokenizer: Path | str | None = None,
        step_tokens: int | None = None,
        **options: Unpack[SessionArguments],
    ) -> None:
        own = SessionOptions(**options)
        if own.cuda_graphs:
            raise OptionError("{cuda_graphs}: not for texts, as their steps differ in size")
        self.plan = Plan.load(plan)
        check_dims(own.dims, self.plan.inputs)
        self._decoder = decoder_of(self.plan, own.dims)
        check_steps(self._decoder)
        prefilling: dict[str, str] = {}
        self._prefill: Plan | None = None
        if prefill is not None:
            reader = decoder_of(Plan.load(prefill), own.dims)
            check_reader(reader, self._decoder)
            self._prefill = reader.plan
            prefilling["prefill"] = str(reader.plan.folder.absolute())
            prefilling["prefill_sha256"] = reader.plan.sha256
        path = find_tokenizer(self.plan, tokenizer)
        self._vocabulary = None if path is None else Vocabulary(path)
        self._template: ChatTemplate | None = None
        self._step_tokens = step_tokens
        self._turn = threading.Lock()
        self._holder: int | None = None
        self._pool: Pool = start(self.plan, "text", own, **prefilling)

    @property
    def context(self) -> int | None:
        """Maximum number of tokens of a text, None if unknown."""
        return self._decoder.context

    @property
    def is_alive(self) -> bool:
        """True if all ranks are running."""
        return self._pool.is_alive

    @property
    def silent_s(self) -> float:
        """Seconds since the current request last returned tokens; 0 without a request."""
        return self._pool.silent_s

    def close(self, grace_s: float = GRACE_S) -> None:
        """End the ranks after their current request or ``grace_s`` seconds. Idempotent."""
        self._pool.close(grace_s)
        if self._template is not None:
            self._template.close()

    def restart(self) -> None:
        """Replace all ranks by new ranks.

        Raises `UserError`, also for a plan that was replaced in its folder.
        """
        if self._prefill is not None:
            check_unchanged(self._prefill)
        self._pool.restart()

    def generate(
        self, prompts: Prompt | Sequence[Prompt], **how: Unpack[How]
    ) -> list[Continuation]:
        """Return a list of the continuation of each prompt, or of the single prompt.

        Takes the options and raises the errors of `stream`.
        """
        many = _as_list(prompts)
        pieces: list[list[Piece]] = [[] for _ in many]
        for piece in self.stream(many, **how):
            pieces[piece.number].append(piece)
        return [
            Continuation(
                "".join(piece.text for piece in group),
                tuple(piece.token for piece in group),
                group[-1].finish or "",
            )
            for group in pieces
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
        """Return an iterator over the tokens of all continuations, while ranks generate them.

        ``temperature``, ``top_k``, ``top_p`` and ``seed`` are fields of `Sampling`: tokens are
        sampled unless ``temperature`` is 0. A text ends before any text of ``stop``. When another
        thread sets ``cancelled``, the ranks stop after the current step, even while they read
        prompts, and the iterator ends.

        Raises `UserError` immediately for a prompt that is empty or exceeds the model's context.
        Close an iterator that is not exhausted: other requests wait for it.
        """
        if max_tokens < 1:
            raise UserError(f"max-tokens: expected at least 1, got: {max_tokens}")
        if stop and self._vocabulary is None:
            raise UserError("stop: expected a tokenizer to find stop texts")
        sampling = Sampling(temperature, top_k, top_p, seed)
        tokens = [self.tokens_of(prompt) for prompt in _as_list(prompts)]
        cancelled = cancelled or threading.Event()
        return self._texts(tokens, max_tokens, stop, sampling, cancelled)

    def chat(self, messages: Chat, **how: Unpack[How]) -> Continuation:
        """Return the model's answer to messages, each with a ``role`` and its ``content``.

        The model's chat template renders the messages. Takes the options of `stream`. Raises
        `UserError` if the plan has no template, or the template refuses the messages.
        """
        (answer,) = self.generate(self.tokens_of_chat(messages), **how)
        return answer

    def room(self, tokens: Sequence[int]) -> int:
        """Return the default limit of new tokens after these: the rest of the context."""
        context = self._decoder.context
        return MAX_TOKENS if context is None else max(1, context - len(tokens))

    def tokens_of_chat(self, messages: Chat) -> list[int]:
        """Return the tokens of a chat; raises `UserError` if it cannot be continued."""
        if self._template is None:
            self._template = find_template(self.plan)
        if self._template is None:
            raise UserError(
                f"{self.plan.folder}: has no chat template, expected the plan of a model with "
                "chat_template.jinja or tokenizer_config.json next to it, or a prompt"
            )
        if self._vocabulary is None:
            raise UserError(f"{self.plan.folder}: has no tokenizer.json, expected --tokenizer FILE")
        text = self._template.text_of(messages)
        self._check_beginning(self._vocabulary, text)
        tokens = self._vocabulary.tokens(text, is_begun=True)
        self._check(tokens)
        return tokens

    def tokens_of(self, prompt: Prompt) -> list[int]:
        """Return the tokens of a prompt; raises `UserError` if it cannot be continued."""
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
        source = "model" if context == self._decoder.entry["context"] else "plan"
        return UserError(
            f"prompt: expected fewer tokens than the {source}'s context of {context}, got: {found}"
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
                    yield from self._continue(batch, max_tokens, stop, sampling, cancelled)
            finally:
                self._holder = None

    def _batches(self, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
        lengths, context = [len(prompt) for prompt in prompts], self._decoder.context
        limit = max_tokens if context is None else min(max_tokens, context - min(lengths))
        return batches(lengths, self._decoder, limit, self._step_tokens)

    def _continue(
        self,
        prompts: Mapping[int, list[int]],
        max_tokens: int,
        stop: Sequence[str],
        sampling: Sampling,
        cancelled: threading.Event,
    ) -> Generator[Piece, None, None]:
        """Yield the tokens of a batch of prompts until all its sequences have ended."""
        vocabulary, end = self._vocabulary, self._decoder.entry["end"]
        writers = [
            _Writer(n, None if vocabulary is None else vocabulary.stream(), StopTexts(stop), end)
            for n in prompts
        ]
        limit, context = max_tokens, self._decoder.context
        if context is not None:
            limit = min(limit, context - max(map(len, prompts.values())))
        asked = {
            "prompts": list(prompts.values()),
            "tokens": limit,
            "end": end,
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
        """Yield the tokens of each step as ranks choose them, until done or ``cancelled``.

        Ranks are at most one request ahead of the reader: they sleep while nobody reads, and one
        message starts many steps.
        """
        shared = self._pool.empty({"stop": (np.dtype(np.int64), (1,))})
        left = asked["tokens"]
        while left and not cancelled.is_set():
            shared["stop"][0] = 0
            messages = self._pool.stream({**asked, "steps": AHEAD}, shared)
            try:
                for tokens in _tokens_in(messages, cancelled):
                    left -= 1
                    yield tokens
            finally:  # also when the generator is closed
                shared["stop"][0] = 1
                exhaust(messages)
            asked = {}


@dataclass
class _Writer:
    """Creates the pieces of one continuation."""

    number: int
    stream: TextOf | None
    until: StopTexts
    end: Sequence[int]
    is_done: bool = False

    def add(self, token: int, *, is_last: bool) -> Piece:
        """Return the piece of the next token."""
        ends = token in self.end
        text = "" if ends or self.stream is None else self.until.add(self.stream.add(token))
        finish = "stop" if ends or self.until.found else "length" if is_last else None
        self.is_done = finish is not None
        if self.is_done and not self.until.found:
            text += self.until.rest()
        return Piece(self.number, token, text, finish)


def _tokens_in(
    messages: Generator[Message, None, tuple[Message, object]], cancelled: threading.Event
) -> Generator[list[int], None, None]:
    """Yield the tokens of each step from the messages of the ranks, until ``cancelled``."""
    while not cancelled.is_set():
        try:
            message = next(messages)
        except StopIteration as end:
            yield from end.value[0]["tokens"]
            return
        yield from message["tokens"]


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """Return prompts as a list, even a single prompt."""
    if isinstance(prompts, str):
        return [prompts]
    items = list(prompts)
    if items and all(isinstance(item, int | np.integer) for item in items):
        return [items]  # type: ignore[list-item]
    return items or [[]]  # type: ignore[return-value]
