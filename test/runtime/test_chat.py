"""Chat templates: what models' own ones count on, and what none of them may do."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.files import sha256_of
from tensoropt.runtime.text.chat import ChatTemplate, find_template

CHATML = """\
{%- for message in messages %}
    {%- if message.role not in ["system", "user", "assistant"] %}
        {{- raise_exception("no such role: " + message.role) }}
    {%- endif %}
    {{- "<|im_start|>" + message["role"] + "\\n" + message.content | trim + "<|im_end|>\\n" }}
{%- endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
"""
TALK = [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": "<é> & so"}]


def rendered(source: str, messages: Any = TALK, **tokens: str) -> str:
    template = ChatTemplate(source, tokens)
    try:
        return template.text_of(messages)
    finally:
        template.close()


def test_a_chat() -> None:
    assert rendered(CHATML) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n<é> & so<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages | length }}", "<s>2"),
        ("{{ messages[1] | tojson }}", '{"role": "user", "content": "<é> & so"}'),
        ("{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}x{% endfor %}", "x"),
        ("a{% generation %}{{ messages[1].role }}{% endgeneration %}b", "auserb"),
        ("{{ strftime_now('%Y') | length }}{{ tools is defined }}", "4False"),
        ("{{ undefined }}|{{ messages[1].content.split(' ')[0] }}", "|<é>"),
    ],
)
def test_what_templates_count_on(source: str, text: str) -> None:
    assert rendered(source, bos_token="<s>") == text


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{% for", "TemplateSyntaxError"),
        ("{{ raise_exception('roles must alternate') }}", "TemplateError: roles must alternate"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "SecurityError"),
        ("{% include '/etc/passwd' %}", "no loader"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "2 s"),
        ("{{ 'a' * 9999999999 }}", "MemoryError"),
        ("{{ '%9999999999d' % 1 }}", "Error"),
        ("{% for a in range(99999) %}{{ 'a' * 99 }}{% endfor %}", "at most 4194304 characters"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}", "chat template: "),
    ],
)
def test_what_they_may_not_do(source: str, why: str) -> None:
    template = ChatTemplate("{% if messages %}" + source + "{% endif %}", {})
    with pytest.raises(UserError, match=r"^chat template: ") as caught:
        template.text_of(TALK)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
    if "SyntaxError" not in why and "(((" not in source:
        assert template.text_of([]) == ""  # it goes on, or was started again
    template.close()


def test_further_variables() -> None:
    source = "{% if thinks %}so: {% endif %}{{ messages[0].role }}{{ bos_token }}"
    template = ChatTemplate(source, {})
    try:
        assert template.text_of(TALK, variables={"thinks": True}) == "so: system"
        assert template.text_of(TALK, variables={"thinks": False}) == "system"
        names = "thinks", "think", "bos_token"
        assert [template.has(name) for name in names] == [True, False, True]
        for name in ("think", "messages", "bos_token", "add_generation_prompt", "a.b", ""):
            with pytest.raises(UserError, match=r"^chat_template_kwargs: expected further vari"):
                template.text_of(TALK, variables={name: 1})
        with pytest.raises(UserError, match="messages: expected at most 4194304 characters, got"):
            template.text_of(TALK, variables={"thinks": "a" * (1 << 22)})
    finally:
        template.close()


def test_they_leave_nothing_open() -> None:
    before = open_files()
    template = ChatTemplate("x", {})
    assert template.text_of(TALK) == "x"
    template.close()
    template.close()
    assert template.text_of(TALK) == "x"
    template.close()
    assert open_files() == before


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json"])
def test_a_file_that_was_replaced_is_no_template(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"chat_template": "x"}')
    plan = SimpleNamespace(folder=tmp_path, files={name: "0" * 64})
    with pytest.raises(UserError, match=name):
        find_template(plan)  # type: ignore[arg-type]


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def found(folder: Path, **contents: object) -> ChatTemplate | None:
    for name, content in contents.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name.replace("__", ".")).write_text(text)
    files = {path.name: sha256_of(path) for path in folder.iterdir()}
    return find_template(SimpleNamespace(folder=folder, files=files))  # type: ignore[arg-type]


def test_where_templates_are_found(tmp_path: Path) -> None:
    assert found(tmp_path) is None
    assert found(tmp_path, tokenizer_config__json={"bos_token": "<s>"}) is None
    config: dict[str, Any] = {"bos_token": {"content": "<b>"}, "eos_token": None}
    config["chat_template"] = "{{ bos_token }}{{ eos_token }}one"
    assert text_found(tmp_path, tokenizer_config__json=config) == "<b>one"
    named = [{"name": "rag", "template": "x"}, {"name": "default", "template": "two"}]
    config["chat_template"] = named
    assert text_found(tmp_path, tokenizer_config__json=config) == "two"
    assert text_found(tmp_path, chat_template__jinja="{{ bos_token }}three") == "<b>three"
    with pytest.raises(UserError, match=r"tokenizer_config.json: expected JSON"):
        found(tmp_path, tokenizer_config__json="{")


def text_found(folder: Path, **files: object) -> str:
    template = found(folder, **files)
    assert template is not None
    text = template.text_of(TALK)
    template.close()
    return text
