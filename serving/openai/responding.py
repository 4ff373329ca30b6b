"""Responses to requests of OpenAI's API: limits of time, streams, and clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from fastapi import Request, Response

from tensoropt.runtime.support.errors import did_you_mean
from tensoropt.serving.http.body import Bodies, Body
from tensoropt.serving.http.disconnect import unless_disconnected
from tensoropt.serving.http.errors import error_response
from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.text_model import TextModel

__all__ = ["check_texts", "find_model", "respond"]

_Found = TypeVar("_Found")


async def respond(
    request: Request,
    bodies: Bodies,
    timeout_s: float,
    answer: Callable[[Body], Coroutine[Any, Any, Response]],
) -> Response:
    """Return the response to a request, or the protocol's error.

    ``answer`` returns the response to a body. It must be ready within ``timeout_s``: the whole
    text, or the first piece of a stream.
    """
    try:
        with bodies.open(request) as body:
            await body.read()
            async with asyncio.timeout(timeout_s):
                return await unless_disconnected(request, answer(body))
    except RefusedError as error:
        return error_response(error)
    except TimeoutError:
        late = RefusedError(Reason.LATE, f"no answer within {timeout_s:g} s (--timeout)")
        return error_response(late)


def find_model(models: Mapping[str, _Found], name: str, kind: str = "a text model") -> _Found:
    """Return the model ``name`` of a kind; raises `RefusedError`."""
    if name not in models:
        near = did_you_mean(name, models)
        raise RefusedError(Reason.UNKNOWN, f"model '{name:.80}': not {kind} here{near}")
    return models[name]


def check_texts(model: TextModel, prompts: int, tries: int) -> None:
    """Raise `RefusedError` if a request has too many texts: prompts, each ``tries`` times."""
    most = model.limits.max_prompts
    if prompts * tries > most:
        raise RefusedError(
            Reason.INVALID,
            f"n: expected at most {most} texts (--max-prompts), got: {prompts} x {tries}",
        )
