"""OpenAI's embeddings API: `/v1/embeddings`."""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError, one_line
from tensoropt.runtime.text.isolation import TextFailedError
from tensoropt.runtime.text.prompts import list_prompts
from tensoropt.serving.converting import convert
from tensoropt.serving.encoder import Encoder
from tensoropt.serving.http.body import Bodies, Body
from tensoropt.serving.openai.given import Given
from tensoropt.serving.openai.responding import find_model, respond
from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.protocol.requests import Infer
from tensoropt.serving.protocol.tensors import Requested
from tensoropt.serving.service import Service

__all__ = ["embedding_routes"]

_MOST_TEXTS = 2048  # of a request, as OpenAI has it
_TOGETHER = 8  # texts of a request that are queued at a time, if runs have one sample
_Texts = Annotated[list[str], Field(min_length=1, max_length=_MOST_TEXTS)]
_Tokens = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
_TokenLists = Annotated[list[_Tokens], Field(min_length=1, max_length=_MOST_TEXTS)]


class AskedEmbeddings(Given):
    """A request for embeddings."""

    model: str
    input: str | _Tokens | _Texts | _TokenLists
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    user: str | None = None


def embedding_routes(service: Service, bodies: Bodies, timeout_s: float) -> APIRouter:
    """Return the route; limits are as for `completion_routes`."""
    router = APIRouter(prefix="/v1")

    async def answer(body: Body) -> Response:
        asked = await body.parse(AskedEmbeddings.parse)
        encoder = find_model(service.encoders, asked.model, "an encoder")
        texts = [await convert(encoder.tokens_of, text) for text in list_prompts(asked.input)]
        vectors = await _run(service, asked.model, encoder, texts)
        return _described(asked, vectors, sum(map(len, texts)))

    @router.post("/embeddings")
    async def embed(request: Request) -> Response:
        return await respond(request, bodies, timeout_s, answer)

    return router


async def _run(
    service: Service, name: str, encoder: Encoder, texts: list[list[int]]
) -> list[Array]:
    """Return the embedding of each text, by its tokens. Texts share runs with other requests."""
    wanted = (Requested(encoder.output.name),)
    length = encoder.length(max(map(len, texts)))

    async def run(tokens: list[int]) -> Array:
        async def read() -> Infer:
            try:
                return Infer(encoder.arrays_of(tokens, length), wanted)
            except UserError as error:
                raise RefusedError(Reason.INVALID, one_line(error)) from None

        outputs = (await service.infer(name, "", read, "openai")).outputs
        try:
            return encoder.embed(outputs[0][1], len(tokens))
        except TextFailedError as error:
            raise RefusedError(Reason.FAILED, one_line(error)) from None

    batching = service.models[name].batching
    size = _TOGETHER if batching is None else batching.size
    found: list[Array] = []
    for start in range(0, len(texts), size):
        found += await asyncio.gather(*(run(tokens) for tokens in texts[start : start + size]))
    return found


def _described(asked: AskedEmbeddings, vectors: list[Array], tokens: int) -> Response:
    width = len(vectors[0])
    if asked.dimensions not in (None, width):
        raise RefusedError(Reason.INVALID, f"dimensions: expected {width}, got: {asked.dimensions}")
    data = [
        {"object": "embedding", "index": n, "embedding": _encoded(vector, asked.encoding_format)}
        for n, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return JSONResponse({"object": "list", "data": data, "model": asked.model, "usage": usage})


def _encoded(vector: Array, encoding: str) -> Any:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()
