"""Messages of a chat in OpenAI's form, and in the form for chat templates."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from tensoropt.serving.openai.given import Given

__all__ = ["Message"]

_MOST_CALLS = 1024


class Part(Given):
    """A part of a message, which must be text."""

    type: Literal["text"]
    text: str


def _joined(content: str | list[Part]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


class CalledFunction(Given):
    """A function that an earlier answer called, with its arguments as JSON."""

    name: str
    arguments: str = ""


class Call(Given):
    """A call of an earlier answer."""

    id: str = ""
    type: Literal["function"] = "function"
    function: CalledFunction

    def plain(self) -> dict[str, Any]:
        """Return the call in the form that templates take: with arguments as an object."""
        try:
            arguments: Any = json.loads(self.function.arguments)
        except (ValueError, RecursionError):
            arguments = self.function.arguments
        function = {"name": self.function.name, "arguments": arguments}
        return {"id": self.id, "type": self.type, "function": function}


class Message(Given):
    """A message of a chat; the model's template defines the roles.

    An assistant's message may be sent back with its other fields, if they are empty. Templates
    for vLLM read its reasoning by either of two names, or leave it out.
    """

    role: str
    content: Annotated[str | list[Part], AfterValidator(_joined)] = ""
    name: str | None = None
    tool_calls: list[Call] = Field([], max_length=_MOST_CALLS)
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    annotations: list[Any] = Field([], max_length=0)

    @model_validator(mode="after")
    def has_content(self) -> Self:
        """Refuse a message without content, unless it has calls."""
        if "content" not in self.model_fields_set and not self.tool_calls:
            raise ValueError("content: expected a text, as the message has no tool_calls")
        return self

    def plain(self) -> dict[str, Any]:
        """Return the message in the form that templates take."""
        found: dict[str, Any] = {"role": self.role, "content": str(self.content)}
        if self.tool_calls:
            found["tool_calls"] = [call.plain() for call in self.tool_calls]
        reasoning = self.reasoning_content if self.reasoning is None else self.reasoning
        names = "reasoning_content", "reasoning"
        more = {"name": self.name, "tool_call_id": self.tool_call_id}
        more |= dict.fromkeys(names, reasoning)
        return {**found, **{name: value for name, value in more.items() if value is not None}}
