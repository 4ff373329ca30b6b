"""Formats of a text that a request asks for, as grammars."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from tensoropt.runtime.text.grammar import json_rule
from tensoropt.serving.openai.given import Given

__all__ = ["ResponseFormat", "StructuredOutputs"]

_MOST_CHOICES = 1024


class TextFormat(Given):
    """Any text."""

    type: Literal["text"]

    def grammar(self) -> None:
        """Return None: nothing restricts the text."""


class ObjectFormat(Given):
    """Any JSON object."""

    type: Literal["json_object"]

    def grammar(self) -> str:
        """Return the grammar of objects."""
        return f"start: {json_rule({'type': 'object'})}"


class NamedSchema(Given):
    """A JSON schema; its name and description are for people, and the grammar is always strict."""

    name: str = ""
    description: str = ""
    document: dict[str, Any] = Field(alias="schema")
    strict: bool = True


class SchemaFormat(Given):
    """JSON with a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema

    def grammar(self) -> str:
        """Return the grammar of the schema."""
        return f"start: {json_rule(self.json_schema.document)}"


ResponseFormat = Annotated[TextFormat | ObjectFormat | SchemaFormat, Field(discriminator="type")]


class StructuredOutputs(Given):
    """vLLM's own field: JSON with a schema, a regular expression, one of some texts, or Lark."""

    document: dict[str, Any] | None = Field(None, alias="json")
    regex: str | None = None
    choice: list[str] | None = Field(None, min_length=1, max_length=_MOST_CHOICES)
    lark: str | None = Field(None, alias="grammar")

    @model_validator(mode="after")
    def has_one(self) -> Self:
        """Refuse several formats, and none."""
        if len(self.model_fields_set) != 1:
            raise ValueError("expected one of json, regex, choice and grammar")
        if self.regex is not None and not re.fullmatch(_WHOLE, self.regex):
            raise ValueError("regex: ends with a backslash, expected a character after it")
        return self

    def grammar(self) -> str:
        """Return the grammar of the format."""
        if self.document is not None:
            return f"start: {json_rule(self.document)}"
        if self.choice is not None:
            return f"start: {' | '.join(map(json.dumps, self.choice))}"
        if self.regex is not None:
            return f"start: /{re.sub(_DELIMITER, _escaped, self.regex)}/"
        return self.lark or ""


_WHOLE = r"(?s:[^\\]|\\.)*+"
_DELIMITER = r"(?s:\\.)|/|\n"


def _escaped(found: re.Match[str]) -> str:
    return {"/": r"\x2F", "\n": r"\n"}.get(found[0].removeprefix("\\"), found[0])
