"""Calls of tools: their grammars, and their places in texts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from letters import END, LETTERS, write_letters

from tensoropt.serving.openai.calls import CallReader
from tensoropt.serving.openai.tools import CallForm, Tool, call_grammar, find_form

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = [
    Tool.model_validate({"type": "function", "function": {"name": name, "parameters": NUMBER}})
    for name in ("add", "sub")
]
TAGGED, _ = find_form("<tool_call>")
PARAMETERS, _ = find_form('respond with {"name": ..., "parameters": ...}')


def _call(form: CallForm, name: str, arguments: str) -> str:
    return f"{form.begin}{form.opening(name)}{arguments}}}{form.end}"


A, B = '{"n": 1}', '{"n": 2, "more": {"text": "</tool_call>}"}}'


@pytest.mark.parametrize(
    ("form", "text", "prose", "calls"),
    [
        (TAGGED, "no call <tool", "no call <tool", []),
        (TAGGED, "So: " + _call(TAGGED, "add", A) + "\n", "So: ", [("add", A)]),
        (
            TAGGED,
            _call(TAGGED, "add", A) + "\n" + _call(TAGGED, "sub", B),
            "",
            [("add", A), ("sub", B)],
        ),
        (TAGGED, "So: " + _call(TAGGED, "add", A)[:-1], "So: ", [("add", A)]),
        (TAGGED, _call(TAGGED, "add", B)[:-14], "", [("add", B)]),
        (TAGGED, _call(TAGGED, "add", B)[:-20], "", [("add", B[:-6])]),
        (
            TAGGED,
            _call(TAGGED, "add", A) + "\n" + TAGGED.begin + TAGGED.opening("sub"),
            "",
            [("add", A), ("sub", "")],
        ),
        (TAGGED, TAGGED.begin + TAGGED.opening("add")[:-3], "", []),
        (TAGGED, TAGGED.begin + '{"na', "", []),
        (TAGGED, "a <tool_call>", "a ", []),
        (PARAMETERS, _call(PARAMETERS, "add", B)[:-9], "", [("add", B[:-8])]),
        (PARAMETERS, "{", "", []),
        (PARAMETERS, _call(PARAMETERS, "add", B), "", [("add", B)]),
        (PARAMETERS, f'So {{"name": {A}', f'So {{"name": {A}', []),
        (PARAMETERS, "", "", []),
    ],
)
def test_calls_are_found_however_the_text_comes(
    form: CallForm, text: str, prose: str, calls: list[tuple[str, str]]
) -> None:
    chosen = random.Random(0)
    for _ in range(20):
        reader, found, said, at = CallReader(form), list[Any](), "", 0
        while at < len(text):
            size = chosen.randrange(1, 9)
            more, made = reader.add(text[at : at + size])
            said, at = said + more, at + size
            found += made
        more, cut = reader.rest()
        found += cut
        assert said + more == prose
        own = [(call["function"]["name"], call["function"]["arguments"]) for call in found]
        assert own == calls
        assert [call["index"] for call in found] == list(range(len(calls)))


@pytest.mark.parametrize(
    ("form", "how", "texts", "refused"),
    [
        (
            TAGGED,
            {"is_required": False, "has_several": True},
            ["no call", "So " + _call(TAGGED, "add", A), _call(TAGGED, "sub", A) + " so"],
            ["So " + _call(TAGGED, "mul", A), _call(TAGGED, "add", '{"n": "a"}')],
        ),
        (
            TAGGED,
            {"is_required": True, "has_several": True},
            [_call(TAGGED, "add", A), f"{_call(TAGGED, 'add', A)}\n{_call(TAGGED, 'sub', A)}"],
            ["no call", "", "So " + _call(TAGGED, "add", A)],
        ),
        (
            TAGGED,
            {"is_required": True, "has_several": False},
            [_call(TAGGED, "add", A)],
            [f"{_call(TAGGED, 'add', A)}\n{_call(TAGGED, 'sub', A)}"],
        ),
        (
            PARAMETERS,
            {"is_required": False, "has_several": False},
            [_call(PARAMETERS, "add", A), "no {call}", ""],
            [_call(PARAMETERS, "mul", A), "{}"],
        ),
    ],
)
def test_grammars(
    tmp_path: Path, form: CallForm, how: dict[str, bool], texts: list[str], refused: list[str]
) -> None:
    pytest.importorskip("llguidance", reason="pip install tensoropt[text]")
    from tensoropt.runtime.text.grammar import Grammars

    write_letters(tmp_path / "tokenizer.json")
    grammars = Grammars(tmp_path / "tokenizer.json", END + 1, [END])
    grammar = call_grammar(TOOLS, form, **how)  # type: ignore[arg-type]
    for text in [*texts, *refused]:
        matcher, fits = grammars.matcher(grammar), True
        for token in [*map(LETTERS.index, text), END]:
            fits = fits and bool(matcher.allowed(END + 1)[token])
            matcher.take(token)
        assert fits is (text in texts), text


def test_a_template_shows_the_form_of_calls() -> None:
    assert find_form("{{ messages }}")[1] is False
    assert json.loads(_call(PARAMETERS, "add", A)) == {"name": "add", "parameters": {"n": 1}}
