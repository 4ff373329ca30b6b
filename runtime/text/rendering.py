"""The process that renders chat templates: `python -m tensoropt.runtime.text.rendering FD`.

A template is untrusted code that came with a model. Jinja's sandbox restricts it to its variables,
but does not bound its time and memory, so it runs in a separate process with limits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime
from functools import cache, partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, NoReturn

from tensoropt.runtime.support.messages import Message, receive
from tensoropt.runtime.text.confined import answer_confined

if TYPE_CHECKING:
    from jinja2 import Template, nodes
    from jinja2.parser import Parser

__all__ = ["LONGEST", "RENDER_S", "main"]

LONGEST = 1 << 22
"""Most characters of a rendered chat."""

RENDER_S = 2.0
"""CPU seconds per chat, after which the kernel kills the process."""

_MEMORY = 1 << 29  # bytes of the process


def main(descriptor: int) -> None:
    """Receive a template, then render it for each message until the connection is closed."""
    connection = Connection(descriptor)
    source = receive(connection)["template"]
    make = cache(_compiler())
    answer_confined(
        connection,
        lambda variables: _render(make(source), variables),
        limit_s=RENDER_S,
        memory_bytes=_MEMORY,
    )


def _render(template: Template, variables: Message) -> Message:
    """Return the rendered text, or an error once it is too long."""
    parts, length = [], 0
    for part in template.generate(variables):
        parts.append(part)
        length += len(part)
        if length > LONGEST:
            return {"error": f"expected at most {LONGEST} characters, got: more"}
    return {"text": "".join(parts)}


def _compiler() -> Callable[[str], Template]:
    """Return a compiler of templates, with the extensions that models' templates use."""
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}``: marks a model's answers for training, and is ignored here."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string


def _refuse(why: object) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(str(why))


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except EOFError:
        sys.exit(0)
