"""OpenAI's chat completions API: `/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from fastapi import APIRouter, Request, Response
from pydantic import Field, model_validator

from tensoropt.runtime.text.sampling import MOST_LIKELY
from tensoropt.runtime.text.session import Piece
from tensoropt.serving.http.body import Bodies, Body
from tensoropt.serving.openai.answers import Answer, Choice
from tensoropt.serving.openai.asked import Asked
from tensoropt.serving.openai.calls import CallReader
from tensoropt.serving.openai.logprobs import Spell, chat_logprobs
from tensoropt.serving.openai.messages import Message
from tensoropt.serving.openai.responding import check_texts, find_model, respond
from tensoropt.serving.openai.tools import (
    CallForm,
    NamedTool,
    Tool,
    ToolChoice,
    call_grammar,
    find_form,
)
from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.text_model import TextModel

__all__ = ["chat_routes"]


_MOST_MESSAGES = 8192
"""Limit on the messages of a chat: each takes time on the event loop."""

_MOST_TOOLS = 128
_MOST_VARIABLES = 64

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class AskedChat(Asked):
    """A request for the answer in a chat.

    A field that is not implemented takes only the value that changes nothing. Labels of a request,
    such as ``metadata``, take any value.
    """

    messages: list[Message] = Field(min_length=1, max_length=_MOST_MESSAGES)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=MOST_LIKELY)
    modalities: list[Literal["text"]] | None = None
    tools: list[Tool] = Field([], max_length=_MOST_TOOLS)
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool = True
    functions: list[Any] = Field([], max_length=0)
    function_call: Literal["none", "auto"] = "none"
    store: Literal[False] = False
    metadata: dict[str, str] | None = None
    reasoning_effort: ReasoningEffort | None = None
    chat_template_kwargs: dict[str, Any] = Field({}, max_length=_MOST_VARIABLES)
    verbosity: Literal["medium"] = "medium"
    service_tier: Literal["auto", "default"] = "auto"
    safety_identifier: str = ""
    prompt_cache_key: str = ""
    prompt_cache_retention: str = ""
    # Clients of vLLM send its defaults, which change nothing here.
    echo: Literal[False] = False
    add_generation_prompt: Literal[True] = True
    continue_final_message: Literal[False] = False
    add_special_tokens: Literal[False] = False
    include_reasoning: Literal[True] = True

    @model_validator(mode="after")
    def has_logprobs(self) -> Self:
        """Refuse the number of likeliest tokens without probabilities, as OpenAI does."""
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs: expected logprobs to be true")
        return self

    @model_validator(mode="after")
    def has_known_tools(self) -> Self:
        """Refuse a choice of a tool that the request lacks, and two formats."""
        choice = self.tool_choice
        if not self.tools and choice not in (None, "none", "auto"):
            raise ValueError("tool_choice: expected tools")
        if isinstance(choice, NamedTool) and not self.callable_tools():
            raise ValueError("tool_choice: expected a function of tools")
        if self.callable_tools() and self.grammar is not None:
            raise ValueError("tools: not with a format of the answer")
        if self.callable_tools() and self.min_tokens:
            raise ValueError("min_tokens: not with tools, as calls end an answer")
        return self

    def template_variables(self, model: TextModel) -> dict[str, Any]:
        """Return further variables of the model's chat template; raises `RefusedError`.

        An effort of "none" ends the thinking of models that can be told to.
        """
        effort, variables = self.reasoning_effort, self.chat_template_kwargs
        if effort is None:
            return variables
        if model.has_template_variable("reasoning_effort"):
            return {"reasoning_effort": effort, **variables}
        if effort == "none":
            can = model.has_template_variable("enable_thinking")
            return {**({"enable_thinking": False} if can else {}), **variables}
        raise RefusedError(
            Reason.INVALID,
            f"reasoning_effort: expected none, as the model's chat template has no such variable, "
            f"got: {effort}",
        )

    def callable_tools(self) -> list[Tool]:
        """Return the tools that the answer may call."""
        if self.tool_choice == "none":
            return []
        if not isinstance(self.tool_choice, NamedTool):
            return self.tools
        name = self.tool_choice.function.name
        return [tool for tool in self.tools if tool.function.name == name]

    def options(self, max_tokens: int) -> dict[str, Any]:
        """Return the keyword arguments of `TextSession.stream`."""
        logprobs = self.top_logprobs if self.logprobs else None
        return {**super().options(max_tokens), "logprobs": logprobs}


class ChatChoice(Choice):
    """An answer in a chat; its calls of tools are in ``form``, if it may have any."""

    def __init__(self, spell: Spell | None, form: CallForm | None) -> None:
        self._spell = spell
        self._is_begun = False
        self._reader = None if form is None else CallReader(form)

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        finish = pieces[-1].finish
        text, calls = self._read("".join(piece.text for piece in pieces), finish)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            own = [{n: value for n, value in call.items() if n != "index"} for call in calls]
            message = {**message, "content": text or None, "tool_calls": own}
        return {"message": message, **self._end(pieces)}

    def part(self, piece: Piece) -> dict[str, Any]:
        role = {} if self._is_begun else {"role": "assistant"}
        self._is_begun = True
        text, calls = self._read(piece.text, piece.finish)
        called = {"tool_calls": calls} if calls else {}
        return {"delta": {**role, "content": text, **called}, **self._end([piece])}

    def _read(self, text: str, finish: str | None) -> tuple[str, list[dict[str, Any]]]:
        """Return the prose and the calls of a part of the text."""
        if self._reader is None:
            return text, []
        prose, calls = self._reader.add(text)
        more, cut = self._reader.rest() if finish is not None else ("", [])
        return prose + more, [*calls, *cut]

    def _end(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        finish = pieces[-1].finish
        if finish == "stop" and self._reader is not None and self._reader.count:
            finish = "tool_calls"
        logprobs = self._spell and chat_logprobs(pieces, self._spell)
        return {"logprobs": logprobs, "finish_reason": finish}


class ChatAnswer(Answer):
    """The answers in a chat, in the protocol's form."""

    prefix, whole_kind, part_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(
        self,
        model: TextModel,
        tokens: list[int],
        asked: AskedChat,
        calls: tuple[str, CallForm] | None = None,
    ) -> None:
        limit = asked.max_completion_tokens or asked.max_tokens or model.room(tokens)
        asked.check_limits(limit)
        options = asked.options(limit)
        self._form = None
        if calls is not None:
            options["grammar"], self._form = calls
        super().__init__(
            model,
            [tokens],
            options,
            count=asked.n,
            has_usage=asked.has_usage,
            has_running_usage=asked.has_running_usage,
        )
        self._spell = model.spell_token if asked.logprobs else None

    def choice(self, prompt: int) -> ChatChoice:
        return ChatChoice(self._spell, self._form)


def _calls(model: TextModel, asked: AskedChat) -> tuple[str, CallForm] | None:
    """Return the grammar of an answer that may call tools, and the form of calls."""
    tools = asked.callable_tools()
    if not tools:
        return None
    form, is_known = find_form(model.chat_template or "")
    is_required = asked.tool_choice not in (None, "auto")
    if not (is_known or is_required):
        raise RefusedError(
            Reason.INVALID,
            "tool_choice: expected 'required', 'none' or a function, as the model's chat template "
            "shows no calls, got: 'auto'",
        )
    has_several = asked.parallel_tool_calls and not isinstance(asked.tool_choice, NamedTool)
    return call_grammar(tools, form, is_required=is_required, has_several=has_several), form


def chat_routes(models: Mapping[str, TextModel], bodies: Bodies, timeout_s: float) -> APIRouter:
    """Return the route; limits are as for `completion_routes`."""
    router = APIRouter(prefix="/v1/chat")

    async def answer(body: Body) -> Response:
        asked = await body.parse(AskedChat.parse)
        model = find_model(models, asked.model)
        with model.refusals():
            check_texts(model, 1, asked.n)
            messages = [message.plain() for message in asked.messages]
            tools = [] if asked.tool_choice == "none" else asked.tools
            plain = [tool.model_dump(exclude={"function": {"strict"}}) for tool in tools]
            variables = asked.template_variables(model)
            tokens = await model.tokens_of_chat(messages, plain, variables)
            calls = _calls(model, asked)
            await model.check_grammar(asked.grammar if calls is None else calls[0])
        return await ChatAnswer(model, tokens, asked, calls).response(is_streamed=asked.stream)

    @router.post("/completions")
    async def complete(request: Request) -> Response:
        return await respond(request, bodies, timeout_s, answer)

    return router
