"""Responses to requests of OpenAI's API: limits of time, streams, and clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from fastapi import Request, Response

from tensoropt.runtime.support.errors import did_you_mean
from tensoropt.serving.http.body import Bodies, Body
from tensoropt.serving.http.disconnect import unless_disconnected
from tensoropt.serving.http.errors import error_response
from tensoropt.serving.openai.answers import Answer
from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.text_model import TextModel

__all__ = ["check_texts", "find_model", "respond"]


async def respond(
    request: Request,
    bodies: Bodies,
    timeout_s: float,
    read: Callable[[Body], Awaitable[tuple[Answer, bool]]],
) -> Response:
    """Return the response to a request, or the protocol's error.

    ``read`` returns the answer to a body, and True to stream it. The whole text, or the first
    piece of a stream, must be ready within ``timeout_s``.
    """
    try:
        with bodies.open(request) as body:
            await body.read()
            async with asyncio.timeout(timeout_s):
                return await unless_disconnected(request, _response(read(body)))
    except RefusedError as error:
        return error_response(error)
    except TimeoutError:
        late = RefusedError(Reason.LATE, f"no answer within {timeout_s:g} s (--timeout)")
        return error_response(late)


async def _response(read: Awaitable[tuple[Answer, bool]]) -> Response:
    answer, is_streamed = await read
    return await answer.streamed() if is_streamed else await answer.whole()


def find_model(models: Mapping[str, TextModel], name: str) -> TextModel:
    """Return the text model ``name``; raises `RefusedError`."""
    if name not in models:
        near = did_you_mean(name, models)
        raise RefusedError(Reason.UNKNOWN, f"model '{name:.80}': not a text model here{near}")
    return models[name]


def check_texts(model: TextModel, prompts: int, tries: int) -> None:
    """Raise `RefusedError` if a request has too many texts: prompts, each ``tries`` times."""
    most = model.limits.max_prompts
    if prompts * tries > most:
        raise RefusedError(
            Reason.INVALID,
            f"n: expected at most {most} texts (--max-prompts), got: {prompts} x {tries}",
        )
