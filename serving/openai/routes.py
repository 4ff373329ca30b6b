"""The routes of OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter

from tensoropt.serving.http.body import Bodies
from tensoropt.serving.openai.chats import chat_routes
from tensoropt.serving.openai.completions import completion_routes
from tensoropt.serving.openai.listing import listing_routes
from tensoropt.serving.text_model import TextModel

__all__ = ["openai_routes"]


def openai_routes(
    texts: Mapping[str, TextModel], bodies: Bodies, timeout_s: float
) -> list[APIRouter]:
    """Return the routes for models of texts; none without a model.

    An answer, or the first piece of a stream, is due within ``timeout_s``.
    """
    if not texts:
        return []
    own = texts, bodies, timeout_s
    return [completion_routes(*own), chat_routes(*own), listing_routes(texts)]
