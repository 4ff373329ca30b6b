"""The routes of OpenAI's API."""

from __future__ import annotations

from fastapi import APIRouter

from tensoropt.serving.http.body import Bodies
from tensoropt.serving.openai.chats import chat_routes
from tensoropt.serving.openai.completions import completion_routes
from tensoropt.serving.openai.embeddings import embedding_routes
from tensoropt.serving.openai.listing import listing_routes
from tensoropt.serving.service import Service

__all__ = ["openai_routes"]


def openai_routes(service: Service, bodies: Bodies, timeout_s: float) -> list[APIRouter]:
    """Return the routes for the models of texts and the encoders.

    An answer, or the first piece of a stream, is due within ``timeout_s``.
    """
    routes = [listing_routes(service), embedding_routes(service, bodies, timeout_s)]
    if service.texts:
        own = service.texts, bodies, timeout_s
        routes += [completion_routes(*own), chat_routes(*own)]
    return routes
