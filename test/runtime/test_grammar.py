"""Texts that keep to grammars, of random models on two ranks."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from letters import LETTERS, letters_plan

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.text import grammar
from tensoropt.runtime.text.grammar import json_rule
from tensoropt.runtime.text.session import TextSession

pytest.importorskip("llguidance", reason="pip install tensoropt[text]")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TextSession]:
    with TextSession(letters_plan(tmp_path_factory.mktemp("letters")), threads=1) as found:
        yield found


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


WORD = {"type": "string", "maxLength": 12}
SCHEMAS: list[dict[str, Any]] = [
    _object(a={"type": "integer"}, b=WORD),
    _object(kind={"enum": ["x", "yes", "no"]}, on={"type": "boolean"}, none={"type": "null"}),
    {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 4},
    _object(inner=_object(list={"type": "array", "items": WORD, "maxItems": 3})),
    _object(code={"type": "string", "pattern": "^[a-f]{2}-[0-9]{3}$"}),
    {"anyOf": [_object(left=WORD), _object(right={"type": "integer", "minimum": 3})]},
    {
        "$ref": "#/$defs/node",
        "$defs": {"node": _object(next={"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]})},
    },
]


@pytest.mark.parametrize("temperature", [0.0, 1.0, 2.0])
def test_texts_parse_with_their_schema(session: TextSession, temperature: float) -> None:
    """Texts of all schemas run together; each is JSON unless it reaches its limit."""
    streams = [
        session.stream(
            ["ab", "7", "{"],
            grammar=f"start: {json_rule(schema)}",
            max_tokens=300,
            temperature=temperature,
            seed=seed,
        )
        for seed, schema in enumerate(SCHEMAS)
    ]
    complete = 0
    for schema, stream in zip(SCHEMAS, streams, strict=True):
        texts: dict[int, str] = {}
        for piece in stream:
            texts[piece.number] = texts.get(piece.number, "") + piece.text
            if piece.finish == "stop":
                jsonschema.validate(json.loads(texts[piece.number]), schema)
                complete += 1
    assert complete >= len(SCHEMAS)  # a greedy text may repeat itself up to its limit


def _random_schema(chosen: random.Random, depth: int = 3) -> dict[str, Any]:
    kinds = ["integer", "boolean", "null", "enum", "string"] + ["array", "object"] * (depth > 0)
    kind = chosen.choice(kinds)
    if kind == "enum":
        return {"enum": [chosen.choice("abc") * n for n in range(1, 3)]}
    if kind == "string":
        return {"type": "string", "maxLength": chosen.randrange(1, 9)}
    if kind == "array":
        items = _random_schema(chosen, depth - 1)
        return {"type": "array", "items": items, "maxItems": chosen.randrange(1, 4)}
    if kind == "object":
        names = chosen.sample("abcdefgh", chosen.randrange(1, 4))
        found = _object(**{name: _random_schema(chosen, depth - 1) for name in names})
        return {**found, "required": [name for name in names if chosen.random() < 0.6]}
    return {"type": kind}


def test_random_schemas(session: TextSession) -> None:
    chosen, complete = random.Random(5), 0
    for _ in range(30):
        schema = _random_schema(chosen)
        how: Any = {"temperature": 1.5, "seed": chosen.randrange(1 << 30), "max_tokens": 250}
        (found,) = session.generate("ab", grammar=f"start: {json_rule(schema)}", **how)
        if found.finish == "stop":
            jsonschema.validate(json.loads(found.text), schema)
            complete += 1
    assert complete >= 25


def test_a_regular_expression(session: TextSession) -> None:
    (found,) = session.generate("ab", grammar=r"start: /(yes|no)[0-9]{3}/", max_tokens=20)
    assert found.finish == "stop"
    assert found.text[-3:].isdecimal()
    assert found.text[:-3] in ("yes", "no")


def test_penalties_keep_to_the_grammar(session: TextSession) -> None:
    how: Any = {
        "biases": [(LETTERS.index("x"), 100.0)],
        "presence_penalty": 2.0,
        "max_tokens": 9,
        "logprobs": 0,
    }
    pieces = [*session.stream("ab", grammar="start: /[ab]{4}/", **how)]
    assert {piece.text for piece in pieces[:4]} <= {"a", "b"}
    assert (len(pieces), pieces[-1].text, pieces[-1].finish) == (5, "", "stop")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("start: (", "grammar: "),
        ("start: %json " + json.dumps({"$ref": "#/none"}), "Pointer '/none' does not exist"),
        ("start: %json " + json.dumps({"$ref": "http://localhost/a"}), "grammar: "),
        ("start: %json " + json.dumps({"type": "string", "format": "none"}), "none"),
        ("start: %json " + json.dumps({"oneOf": [{"type": "integer"}] * 2}), "oneOf"),
        (
            'start: %json {"type": "integer", "minimum": 1e30}',
            "grammar: minimum, maximum: expected numbers of less than 2^63 in size",
        ),
        ('start: %json {"type": "number", "minimum": 1e300}', "less than 2^63 in size"),
        (
            'start: %json {"type": "string", "maxLength": 1000000000000}',
            "regex parse error: decimal literal invalid",
        ),
        ("start: /(/", "regex parse error: unclosed group"),
        ("start: /\u2028/", "grammar: no token of the model can begin the text"),
        ("start: " + "(" * 100_000, "grammar: "),
        ("start: %json " + '{"items":' * 3_000 + "{}" + "}" * 3_000, "grammar: "),
        ("start: /" + "(" * 20_000 + "a" + ")" * 20_000 + "/", "grammar: "),
        ("start: /(((((a{1,999}){1,999}){1,999}){1,999}){1,999})b/", ""),
        ("start: /(a|b)*a(a|b){900}/", ""),
        ("start: a\n" + "".join(f"a{n}: a{n + 1} a{n + 1}\n" for n in range(5_000)), "grammar: "),
        ("start: " + "a" * (1 << 19), "grammar: expected at most 262144 characters, got: 524295"),
    ],
)
def test_hostile_grammars(session: TextSession, source: str, why: str) -> None:
    """Each is refused in one line, or continued within limits; other texts go on."""
    other = session.stream("ab", max_tokens=30)
    begun = time.monotonic()
    try:
        session.generate("ab", grammar=source, max_tokens=20)
        assert not why
    except UserError as error:
        assert why in str(error)
        assert "\n" not in str(error)
    assert time.monotonic() - begun < 30
    assert len([*other]) > 0
    assert session.is_alive


def test_a_grammar_of_letters_that_the_model_lacks(session: TextSession) -> None:
    """The text fails, and others of its request do; a further request is answered."""
    with pytest.raises(UserError, match="grammar: no token of the model can continue the text"):
        session.generate("ab", grammar='start: "a\\u00e9" "b"', max_tokens=9)
    assert session.generate("ab", grammar='start: "abc"', max_tokens=9)[0].text == "abc"
    assert "\u00e9" not in LETTERS


def test_a_grammar_that_cannot_end(session: TextSession) -> None:
    with pytest.raises(UserError, match="grammar: not with ignores_end"):
        session.generate("ab", grammar='start: "abc"', ignores_end=True)


def test_without_the_library(session: TextSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"expected pip install tensoropt\[text\]"):
        session.check_grammar("start: /a/")


def test_a_model_without_an_end(tmp_path: Path) -> None:
    plan = letters_plan(tmp_path, ranks=1)
    with TextSession(plan, threads=1) as session:
        session._decoder.entry["end"].clear()
        with pytest.raises(UserError, match="expected a model with an end token"):
            session.check_grammar("start: /a/")
