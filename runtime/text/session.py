"""`TextSession`: text generation on a decoder's ranks, which are started once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Unpack

from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.pool.pool import GRACE_S, Pool, check_unchanged, start
from tensoropt.runtime.support.closing import Closing
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.messages import Message
from tensoropt.runtime.support.options import OptionError, option_names, shows_options
from tensoropt.runtime.support.rank_options import SessionArguments, SessionOptions
from tensoropt.runtime.text.chat import Chat, Tools, Variables
from tensoropt.runtime.text.decoder import check_proposals, check_reader, check_steps, decoder_of
from tensoropt.runtime.text.engine import Deliver, Engine, Piece, Request, Stream, Writer
from tensoropt.runtime.text.grammar_checking import GrammarChecker
from tensoropt.runtime.text.limits import MOST_TOKENS, SLOTS, SPECULATE, STEP_TOKENS, Ending
from tensoropt.runtime.text.prompts import Prompt, Prompts, list_prompts
from tensoropt.runtime.text.sampling import Sampling, SamplingArguments
from tensoropt.runtime.text.stopping import StopTexts
from tensoropt.runtime.text.tokens import Vocabulary, find_tokenizer

__all__ = ["Continuation", "How", "Piece", "Prompt", "TextSession"]


class How(SamplingArguments, total=False):
    """Options of a continuation, see `TextSession.stream`."""

    max_tokens: int
    min_tokens: int
    stop: Sequence[str]
    stop_tokens: Sequence[int]
    ignores_end: bool
    grammar: str | None


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
    reads the prompts and passes on its caches. The other arguments are arguments of `Session`;
    ``stall_s`` limits each step. Caches stay on the ranks.

    Texts of all threads run together, at most ``slots`` at a time; further texts wait. A text has
    at most ``context`` tokens; None sets the model's limit. Together these bound the memory of
    caches. Free slots keep the caches of texts that have ended, so that a text with the same
    beginning copies them instead of reading its tokens. Between two steps of the batch at most
    ``step_tokens`` tokens of prompts are read, which bounds the delay of other texts; None sets no
    limit. Up to ``speculate`` tokens are proposed from the text so far and verified in one step,
    with the same result. With ``grammars`` the ranks prepare for them at their start; otherwise the
    first grammar delays other texts, by a second for a large vocabulary. Raises `UserError` if the
    plan has no caches, or cannot verify proposals.
    """

    @shows_options(SessionOptions, SessionArguments)
    def __init__(
        self,
        plan: Path | str,
        *,
        prefill: Path | str | None = None,
        tokenizer: Path | str | None = None,
        slots: int = SLOTS,
        context: int | None = None,
        step_tokens: int | None = STEP_TOKENS,
        speculate: int = SPECULATE,
        grammars: bool = False,
        **options: Unpack[SessionArguments],
    ) -> None:
        own = SessionOptions(**options)
        for name, size in {"slots": slots, "context": context, "step-tokens": step_tokens}.items():
            if size is not None and size < 1:
                raise UserError(f"{name}: expected at least 1, got: {size}")
        if speculate < 0:
            raise UserError(f"speculate: expected at least 0, got: {speculate}")
        if own.cuda_graphs:
            raise OptionError("{cuda_graphs}: not for texts, as their steps differ in size")
        self.plan = Plan.load(plan)
        self._decoder = decoder_of(self.plan, self.plan.settle(own.dims))
        check_steps(self._decoder)
        check_proposals(self._decoder, speculate)
        known = (size for size in (self._decoder.context, context) if size is not None)
        self._context = min(known, default=None)
        asked: dict[str, Any] = {
            "slots": slots,
            "step_tokens": step_tokens,
            "speculate": speculate,
        }
        self._prefill: Plan | None = None
        if prefill is not None:
            other = Plan.load(prefill)  # its own sizes may differ from those of the plan
            reader = decoder_of(other, other.settle_open(own.dims))
            check_reader(reader, self._decoder)
            self._prefill = reader.plan
            asked["prefill"] = str(reader.plan.folder.absolute())
            asked["prefill_sha256"] = reader.plan.sha256
        path = self._tokenizer = find_tokenizer(self.plan, tokenizer)
        self._vocabulary = None if path is None else Vocabulary(path)
        asked["tokenizer"] = None if path is None else str(path.absolute())
        # Others have no grammars, see `check_grammar`.
        can = path is not None and bool(self._decoder.entry["end"])
        asked["reads_tokenizer"] = grammars and can
        self._grammars: GrammarChecker | None = None
        self._prompts = Prompts(self._decoder, self._vocabulary, self._context)
        self._pool: Pool = start(self.plan, "text", own, **asked)
        self._engine = Engine(self._pool)
        self.slots = self._decoder.slots(slots)

    @property
    def context(self) -> int | None:
        """Maximum number of tokens of a text, None if unknown."""
        return self._context

    @property
    def running(self) -> int:
        """Number of texts that the ranks continue."""
        return self._engine.running

    @property
    def waiting(self) -> int:
        """Number of texts that wait for a slot."""
        return self._engine.waiting

    @property
    def copied(self) -> int:
        """Number of tokens of prompts that ranks copied from caches instead of reading them."""
        return self._engine.copied

    @property
    def proposed(self) -> int:
        """Number of tokens that ranks have proposed."""
        return self._engine.proposed

    @property
    def accepted(self) -> int:
        """Number of proposed tokens that became tokens of texts."""
        return self._engine.accepted

    @property
    def cache_use(self) -> float | None:
        """Fraction of the tokens that caches may have, None without a context."""
        return None if self._context is None else self._engine.tokens / (self.slots * self._context)

    @property
    def is_alive(self) -> bool:
        """True if all ranks are running."""
        return self._pool.is_alive

    @property
    def silent_s(self) -> float:
        """Seconds since the ranks last returned tokens; 0 without a text."""
        return self._pool.silent_s

    def check_open(self) -> None:
        """Raise `UserError` if the session is closed."""
        self._pool.check_open()

    def close(self, grace_s: float = GRACE_S) -> None:
        """Drop all texts, and end the ranks after their step or ``grace_s`` seconds. Idempotent."""
        self._engine.close(UserError(f"{self.plan.folder}: the session is closed"))
        self._pool.close(grace_s)
        self._prompts.close()
        if self._grammars is not None:
            self._grammars.close()

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
        many = list_prompts(prompts)
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

    def stream(self, prompts: Prompt | Sequence[Prompt], **how: Unpack[How]) -> Stream:
        """Return an iterator over the tokens of all continuations, while ranks generate them.

        The fields of `Sampling` are options: tokens are sampled unless ``temperature`` is 0. A text
        ends before any text of ``stop``, after any of ``stop_tokens`` or of the model's end tokens,
        unless ``ignores_end``, or after ``max_tokens`` tokens. Of the first ``min_tokens`` tokens
        none ends it, and stops count in the text after them. Tokens keep to a ``grammar`` in the
        language of llguidance, such as ``start: %json {"type": "object"}``, which ends the text.
        Close the iterator, in any thread, to drop the texts after the current step; ranks continue
        them even if nobody reads the pieces.

        Raises `UserError` immediately for a prompt that is empty or exceeds the model's context.
        The iterator raises it if a text fails, such as with scores that are not finite.
        """
        tokens = [self.tokens_of(prompt) for prompt in list_prompts(prompts)]
        if (grammar := how.get("grammar")) is not None:
            self.check_grammar(grammar)
        return Stream(self._engine, self._texts(tokens, **how))

    def submit(
        self, prompts: Sequence[Sequence[int]], deliver: Deliver, **how: Unpack[How]
    ) -> Request:
        """Start to continue prompts that `tokens_of` has made; ``deliver`` gets the pieces.

        `check_grammar` has checked a grammar. ``deliver`` is called in another thread and must not
        wait. Takes the options of `stream`.
        """
        return self._engine.submit(self._texts(prompts, **how), deliver)

    def cancel(self, request: Request) -> None:
        """Drop the texts of a request after the current step."""
        self._engine.cancel(request)

    def chat(self, messages: Chat, **how: Unpack[How]) -> Continuation:
        """Return the model's answer to messages, each with a ``role`` and its ``content``.

        The model's chat template renders the messages. Takes the options of `stream`. Raises
        `UserError` if the plan has no template, or the template refuses the messages.
        """
        (answer,) = self.generate(self.tokens_of_chat(messages), **how)
        return answer

    def room(self, tokens: Sequence[int]) -> int:
        """Return the default limit of new tokens after these: the rest of the context."""
        return self._prompts.room(tokens)

    @property
    def chat_template(self) -> str | None:
        """The text of the model's chat template, if it has one. Raises `UserError`."""
        template = self._prompts.template
        return None if template is None else template.source

    def has_template_variable(self, name: str) -> bool:
        """Return True if the model's chat template names a variable. Raises `UserError`."""
        template = self._prompts.template
        return template is not None and template.has(name)

    def tokens_of_chat(
        self, messages: Chat, tools: Tools = (), variables: Variables | None = None
    ) -> list[int]:
        """Return the tokens of a chat; raises `UserError` if it cannot be continued.

        ``variables`` are further ones of the chat template, such as ``enable_thinking``.
        """
        return self._prompts.tokens_of_chat(messages, tools, variables)

    def tokens_of(self, prompt: Prompt) -> list[int]:
        """Return the tokens of a prompt; raises `UserError` if it cannot be continued."""
        return self._prompts.tokens_of(prompt)

    def check_grammar(self, grammar: str) -> None:
        """Raise `UserError` unless texts can keep to a grammar. It takes a second at most."""
        if self._tokenizer is None:
            raise UserError("grammar: expected a tokenizer")
        if not self._decoder.entry["end"]:
            raise UserError(
                "grammar: expected a model with an end token in its configuration, got none"
            )
        if self._grammars is None:
            size = int(self._decoder.scores.shape[2])
            self._grammars = GrammarChecker(self._tokenizer, size, self._decoder.entry["end"])
        self._grammars.check(grammar)

    def text_of(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, or their numbers without a tokenizer."""
        if self._vocabulary is None:
            return "".join(f" {token}" for token in tokens)
        return self._vocabulary.text_of(tokens)

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes of the text of one token, which may be a part of a character."""
        if self._vocabulary is None:
            return self.text_of([token]).encode()
        return self._vocabulary.bytes_of(token)

    def split(self, tokens: Sequence[int], text: str | None = None) -> list[str]:
        """Return the part of each token in a text, by default the text of the tokens.

        The parts together are the text.
        """
        if self._vocabulary is None:
            return [self.text_of([token]) for token in tokens]
        return self._vocabulary.split(tokens, self.text_of(tokens) if text is None else text)

    def _texts(
        self, prompts: Sequence[Sequence[int]], **how: Unpack[How]
    ) -> list[tuple[Message, Writer]]:
        """Return the texts of a request, for the engine. Raises `UserError`."""
        options: dict[str, Any] = {**how}
        names = [name for name in option_names(Ending) if name in options]
        ending = Ending(**{name: options.pop(name) for name in names})
        chosen = Sampling(**options)
        if ending.stop and self._vocabulary is None:
            raise UserError("stop: expected a tokenizer to find stop texts")
        if chosen.prompt_logprobs is not None and not self._decoder.scores_all:
            raise UserError(
                "prompt_logprobs: the model scores the last token of a step alone, expected scores "
                "of all tokens"
            )
        self._prompts.check_tokens("biases", [token for token, _ in chosen.biases])
        own = [] if ending.ignores_end else self._decoder.entry["end"]
        end, texts = [*own, *ending.stop_tokens], []
        for number, prompt in enumerate(prompts):
            limit = min(ending.max_tokens, (self._context or MOST_TOKENS) - len(prompt))
            stream = None if self._vocabulary is None else self._vocabulary.stream()
            message = {
                "prompt": prompt,
                "room": len(prompt) + limit,
                "end": end,
                "least": ending.min_tokens,
                "number": number,
                "sampling": asdict(chosen),
                "grammar": ending.grammar,
            }
            until, size = StopTexts(ending.stop), len(prompt)
            least = ending.min_tokens
            writer = Writer(number, limit, stream, until, end, tokens=size, least=least)
            texts.append((message, writer))
        return texts
