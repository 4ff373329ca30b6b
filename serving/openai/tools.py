"""Tools that an answer may call: fields of a request, and grammars of calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from tensoropt.runtime.text.grammar import json_rule
from tensoropt.serving.openai.given import Given

__all__ = ["CallForm", "NamedTool", "Tool", "ToolChoice", "call_grammar", "find_form"]

Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]

_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


class Function(Given):
    """A function, with the JSON schema of its arguments; the grammar is always strict."""

    name: Name
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: dict(_NO_PARAMETERS))
    strict: bool = True


class Tool(Given):
    """A tool, which must be a function."""

    type: Literal["function"]
    function: Function


class NamedFunction(Given):
    """The function of a choice."""

    name: Name


class NamedTool(Given):
    """The choice of one function."""

    type: Literal["function"]
    function: NamedFunction


ToolChoice = Literal["none", "auto", "required"] | NamedTool


@dataclass(frozen=True)
class CallForm:
    """The form of calls: JSON of a name and ``arguments``, between ``begin`` and ``end``.

    Without ``begin``, a text either is calls or has none.
    """

    begin: str
    end: str
    arguments: str

    def opening(self, name: str) -> str:
        """Return the text between `begin` and the arguments."""
        return f'{{"name": "{name}", "{self.arguments}": '


_TAGGED = CallForm("<tool_call>\n", "\n</tool_call>", "arguments")
_PARAMETERS = CallForm("", "", "parameters")
_PLAIN = CallForm("", "", "arguments")


def find_form(template: str) -> tuple[CallForm, bool]:
    """Return the form of calls by a chat template; True if the model knows it.

    Templates of Qwen, Hermes and others name the tags of calls; templates of Llama name the
    parameters.
    """
    if "<tool_call>" in template:
        return _TAGGED, True
    if '"parameters"' in template:
        return _PARAMETERS, True
    return _PLAIN, False


def call_grammar(
    tools: Sequence[Tool], form: CallForm, *, is_required: bool, has_several: bool
) -> str:
    """Return the grammar of an answer that calls tools; without ``is_required`` it may be text."""
    calls = [f"call_{n}" for n in range(len(tools))]
    rules = [f"call: {' | '.join(calls)}"]
    for rule, tool in zip(calls, tools, strict=True):
        opening = _quoted(form.opening(tool.function.name))
        rules.append(f"{rule}: {opening} {rule}_json {_quoted('}' + form.end)}")
        rules.append(f"{rule}_json: {json_rule(tool.function.parameters)}")
    begin = f"{_quoted(form.begin)} " if form.begin else ""
    more = f' ("\\n" {begin}call)*' if has_several else ""
    if is_required:
        start = f"start: {begin}call{more}"
    elif not form.begin:
        start = f"start: call{more} | PROSE\nPROSE: /([^{{](.|\\n)*)?/"
    else:
        times = "*" if has_several else "?"
        start = f"start: (before call){times} PROSE\nbefore[lazy]: PROSE {_quoted(form.begin)}"
        start += "\nPROSE: /(.|\\n)*/"
    return "\n".join([start, *rules])


def _quoted(text: str) -> str:
    return json.dumps(text)
