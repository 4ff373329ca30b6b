"""The flags of ``tensoropt-run --generate``, which continues texts."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from tensoropt.runtime.plan.dims import parse_ranges
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.kinds import integer, number
from tensoropt.runtime.support.options import flag_of, option_names, options_in
from tensoropt.runtime.support.places import INPUT
from tensoropt.runtime.support.rank_options import SessionOptions
from tensoropt.runtime.support.status_line import clear_line, show_line
from tensoropt.runtime.text.limits import MAX_TOKENS, SPECULATE

if TYPE_CHECKING:
    from tensoropt.runtime.text.session import How, Prompt, TextSession

__all__ = ["add_text_flags", "check_text_flags", "generate"]

_OWN = ("max_tokens", "temperature", "top_k", "top_p", "stop", "tokenizer", "token_ids",
    "prefill_plan", "speculate")  # fmt: skip
_UNDECODED = re.compile("[\udc80-\udcff]")
_SHARED = ("plans", "format", "seed", *option_names(SessionOptions))


def add_text_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of text generation."""
    add = parser.add_argument_group("text").add_argument
    add("--generate", action="append", metavar="PROMPT",
        help="continue a text; - reads it from stdin (repeatable)")  # fmt: skip
    add("--max-tokens", type=integer(1), default=MAX_TOKENS, metavar="N",
        help=f"most new tokens (default {MAX_TOKENS})")  # fmt: skip
    add("--temperature", type=number(0.0), default=0.0, metavar="T",
        help="0 takes the likeliest token, above 0 samples (default 0)")  # fmt: skip
    add("--top-k", type=integer(1), metavar="K", help="sample from the K likeliest tokens")
    add("--top-p", type=number(0.0, 1.0, is_above=True), metavar="P",
        help="sample from the fewest tokens with a total probability of P")  # fmt: skip
    add("--stop", action="append", default=[], metavar="TEXT",
        help="end before this text (repeatable)")  # fmt: skip
    add("--prefill-plan", type=INPUT, metavar="PLAN",
        help="separate plan of the model for the prompts")  # fmt: skip
    add("--speculate", type=integer(0), default=SPECULATE, metavar="N",
        help="propose up to N next tokens and verify them in one step (%(default)s)")  # fmt: skip
    add("--tokenizer", type=INPUT, metavar="FILE", help="tokenizer.json (default: the plan's)")
    add("--token-ids", action="store_true", help="read and print tokens instead of text: 5,17,2")


def check_text_flags(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Raise `UserError` for a text flag without ``--generate``, and for other flags with it."""
    given = [name for name, value in vars(arguments).items() if value != parser.get_default(name)]
    for name in given:
        if arguments.generate is None and name in _OWN:
            raise UserError(f"{flag_of(name)}: expected --generate")
        if arguments.generate is not None and name not in ("generate", *_OWN, *_SHARED):
            raise UserError(f"{flag_of(name)}: not with --generate")
    if arguments.generate is not None and len(arguments.plans) != 1:
        raise UserError(f"--generate: expected one plan, got: {len(arguments.plans)}")


def generate(arguments: argparse.Namespace) -> int:
    """Continue the prompts, and return the exit status. A single prompt's text is streamed."""
    from tensoropt.runtime.text.session import TextSession

    clear_line()  # a prompt may be typed
    prompts = [_prompt(text, is_ids=arguments.token_ids) for text in arguments.generate]
    dims = parse_ranges(arguments.dims)
    options: dict[str, Any] = {**options_in(arguments, SessionOptions), "dims": dims}
    show_line(f"loading {arguments.plans[0]}")
    with TextSession(
        arguments.plans[0],
        prefill=arguments.prefill_plan,
        tokenizer=arguments.tokenizer,
        speculate=arguments.speculate,
        **options,
    ) as session:
        show_line("generating")
        if arguments.format != "json" and len(prompts) == 1:
            _print_stream(session, prompts[0], arguments)
            return 0
        found = session.generate(prompts, **_how(arguments))
        clear_line()
        if arguments.format == "json":
            print(json.dumps([asdict(text) for text in found]))
        else:
            for index, text in enumerate(found):
                shown = ",".join(map(str, text.tokens)) if arguments.token_ids else text.text
                print(f"{index}: {shown}")
    return 0


def _prompt(text: str, *, is_ids: bool) -> Prompt:
    text = _decoded("--generate", sys.stdin.read() if text == "-" else text)
    if not is_ids:
        return text
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UserError(f"--token-ids: expected tokens such as 5,17,2, got: '{text}'") from None


def _decoded(flag: str, text: str) -> str:
    """Return a text from outside; the locale may lack its characters. Raises `UserError`."""
    if text.isascii() or not _UNDECODED.search(text):
        return text
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError:
        raise UserError(f"{flag}: expected text in UTF-8, got other bytes") from None


def _how(arguments: argparse.Namespace) -> How:
    names = ("max_tokens", "temperature", "top_k", "top_p", "seed")
    stop = [_decoded("--stop", text) for text in arguments.stop]
    return cast("How", {"stop": stop, **{name: getattr(arguments, name) for name in names}})


def _print_stream(session: TextSession, prompt: Prompt, arguments: argparse.Namespace) -> None:
    before = ""
    for piece in session.stream(prompt, **_how(arguments)):
        clear_line()
        sys.stdout.write(f"{before}{piece.token}" if arguments.token_ids else piece.text)
        sys.stdout.flush()
        before = ","
    sys.stdout.write("\n")
