"""Conversion of prompts and chats to tokens, and their limits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.text.chat import Chat, ChatTemplate, Tools, Variables, find_template
from tensoropt.runtime.text.decoder import Decoder
from tensoropt.runtime.text.limits import MAX_TOKENS, MOST_TOKENS
from tensoropt.runtime.text.tokens import Vocabulary

__all__ = ["Prompt", "Prompts", "list_prompts"]

Prompt = str | Sequence[int]
"""Text, or tokens."""


def list_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """Return prompts as a list, even a single prompt."""
    if isinstance(prompts, str):
        return [prompts]
    items = list(prompts)
    if items and all(isinstance(item, int | np.integer) for item in items):
        return [items]  # type: ignore[list-item]
    return items or [[]]  # type: ignore[return-value]


class Prompts:
    """Tokens of prompts for a decoder, with at most ``context`` tokens.

    Without a ``vocabulary``, prompts are tokens.
    """

    def __init__(
        self, decoder: Decoder, vocabulary: Vocabulary | None, context: int | None
    ) -> None:
        self._decoder, self.vocabulary, self.context = decoder, vocabulary, context
        self._plan = decoder.plan
        self._template: ChatTemplate | None = None

    def close(self) -> None:
        """End the process of the chat template."""
        if self._template is not None:
            self._template.close()

    def room(self, tokens: Sequence[int]) -> int:
        """Return the default limit of new tokens after these: the rest of the context."""
        context = self.context
        return MAX_TOKENS if context is None else max(1, context - len(tokens))

    @property
    def template(self) -> ChatTemplate | None:
        """The chat template of the model, if it has one. Raises `UserError`."""
        if self._template is None:
            self._template = find_template(self._plan)
        return self._template

    def tokens_of_chat(
        self, messages: Chat, tools: Tools = (), variables: Variables | None = None
    ) -> list[int]:
        """Return the tokens of a chat; raises `UserError` if it cannot be continued."""
        template = self.template
        if template is None:
            raise UserError(
                f"{self._plan.folder}: has no chat template, expected the plan of a model with "
                "chat_template.jinja or tokenizer_config.json next to it, or a prompt"
            )
        if self.vocabulary is None:
            raise UserError(
                f"{self._plan.folder}: has no tokenizer.json, expected --tokenizer FILE"
            )
        text = template.text_of(messages, tools, variables)
        self._check_beginning(self.vocabulary, text)
        tokens = self.vocabulary.tokens(text, is_begun=True)
        self._check(tokens)
        return tokens

    def tokens_of(self, prompt: Prompt) -> list[int]:
        """Return the tokens of a prompt; raises `UserError` if it cannot be continued."""
        if isinstance(prompt, str):
            if self.vocabulary is None:
                raise UserError(
                    f"{self._plan.folder}: has no tokenizer.json, expected --tokenizer FILE, or "
                    "tokens for a prompt"
                )
            self._check_beginning(self.vocabulary, prompt)
            prompt = self.vocabulary.tokens(prompt) if prompt else []
        self._check(prompt)
        return [int(token) for token in prompt]

    def _check_beginning(self, vocabulary: Vocabulary, text: str) -> None:
        if vocabulary.exceeds(text, self.context or MOST_TOKENS):
            raise self._too_long(f"more, in {len(text)} characters")

    def _too_long(self, found: str) -> UserError:
        context = self.context
        if context is None:
            return UserError(
                f"prompt: expected fewer than {MOST_TOKENS} tokens, as neither the plan nor the "
                f"session has a context, got: {found}"
            )
        sources = {self._decoder.context: "plan", self._decoder.entry["context"]: "model"}
        source = sources.get(context, "session")
        return UserError(
            f"prompt: expected fewer tokens than the {source}'s context of {context}, got: {found}"
        )

    def _check(self, tokens: Sequence[int]) -> None:
        if not len(tokens):
            raise UserError("prompt: is empty, expected at least one token")
        if len(tokens) >= (self.context or MOST_TOKENS):
            raise self._too_long(str(len(tokens)))
        self.check_tokens("prompt", tokens)

    def check_tokens(self, name: str, tokens: Sequence[int]) -> None:
        """Raise `UserError` for a token that the model does not have; ``name`` is their place."""
        size = self._decoder.scores.shape[2]
        for token in tokens:
            is_whole = isinstance(token, int | np.integer)
            if not is_whole or token < 0 or (isinstance(size, int) and token >= size):
                raise UserError(f"{name}: expected tokens from 0 to {size} - 1, got: {token}")
