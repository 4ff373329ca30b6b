"""Rendering of chats as text, with the chat template of a model."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tensoropt.runtime.plan.files import check_files
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import UserError, cause_of, one_line
from tensoropt.runtime.support.messages import Message
from tensoropt.runtime.text.confined import Confined
from tensoropt.runtime.text.rendering import LONGEST, RENDER_S

__all__ = ["Chat", "ChatTemplate", "Tools", "Variables", "find_template"]

_TEMPLATE, _CONFIG = "chat_template.jinja", "tokenizer_config.json"
_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")
_FIXED = {"messages", "tools", "add_generation_prompt", *_TOKENS}

Chat = Sequence[Mapping[str, Any]]
"""Messages, each with a ``role`` and its ``content``."""

Tools = Sequence[Mapping[str, Any]]
"""Tools in the form of OpenAI's API, which templates take."""

Variables = Mapping[str, Any]
"""Further variables of a template, such as ``enable_thinking``."""


def find_template(plan: Plan) -> ChatTemplate | None:
    """Return the chat template of a plan, or None. Raises `UserError`."""
    config = _config(plan)
    source = config.get("chat_template")
    if isinstance(source, list):  # several templates, by name
        templates = {e.get("name"): e.get("template") for e in source if isinstance(e, dict)}
        source = templates.get("default")
    if _TEMPLATE in plan.files:
        check_files(plan.folder, {_TEMPLATE: plan.files[_TEMPLATE]})
        source = (plan.folder / _TEMPLATE).read_text(encoding="utf-8")
    if not isinstance(source, str):
        return None
    if importlib.util.find_spec("jinja2") is None:
        raise UserError("chat needs the package jinja2, expected pip install tensoropt[text]")
    return ChatTemplate(source, {name: _content(config.get(name)) for name in _TOKENS})


def _config(plan: Plan) -> dict[str, Any]:
    if _CONFIG not in plan.files:
        return {}
    check_files(plan.folder, {_CONFIG: plan.files[_CONFIG]})
    path = plan.folder / _CONFIG
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: expected JSON, got: {cause_of(error)}") from None
    return values if isinstance(values, dict) else {}


def _content(token: object) -> str:
    """Return the text of a token, which may be a string or an object with properties."""
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else ""


class ChatTemplate:
    """Renders chats by a Jinja template, in a separate process. Thread-safe.

    ``tokens`` are the texts of special tokens, by their names in templates.
    """

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        self.source, self._tokens = source, dict(tokens)
        module = "tensoropt.runtime.text.rendering"
        self._renderer = Confined(module, "chat template", RENDER_S, {"template": source})

    def has(self, name: str) -> bool:
        """Return True if the template names a variable."""
        return name.isidentifier() and re.search(rf"\b{name}\b", self.source) is not None

    def text_of(self, messages: Chat, tools: Tools = (), variables: Variables | None = None) -> str:
        """Return a chat as the model's input text, up to the beginning of the answer.

        Raises `UserError` if the template refuses the chat, lacks one of the ``variables``, or
        exceeds its time or memory limit.
        """
        more = dict(variables or {})
        for name in more:
            if name in _FIXED or not self.has(name):
                raise UserError(
                    "chat_template_kwargs: expected further variables of the model's chat "
                    f"template, got: '{name:.40}'"
                )
        texts = (value for m in messages for value in m.values() if isinstance(value, str))
        size = sum(map(len, texts)) + len(json.dumps([*tools, more]))
        if size > LONGEST:  # the rendered text would be longer
            raise UserError(f"messages: expected at most {LONGEST} characters, got: {size}")
        given = {"messages": [*messages], **({"tools": [*tools]} if tools else {})}
        asked: Message = {**more, **self._tokens, **given, "add_generation_prompt": True}
        answer = self._renderer.ask(asked)
        if "error" in answer:
            raise UserError(f"chat template: {one_line(answer['error'])}")
        return str(answer["text"])

    def close(self) -> None:
        """End the process; it starts again when needed."""
        self._renderer.close()
