"""The requests of a server, independent of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tensoropt.runtime.support.errors import did_you_mean, one_line
from tensoropt.runtime.support.version import __version__
from tensoropt.serving.encoder import Encoder
from tensoropt.serving.metrics import Metrics
from tensoropt.serving.model import VERSION, Model
from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.protocol.requests import Answer, Infer
from tensoropt.serving.protocol.tensors import TensorSpec
from tensoropt.serving.statistics import describe_statistics
from tensoropt.serving.text_model import TextModel

__all__ = ["EXTENSIONS", "Service"]

Read = Callable[[], Awaitable[Infer]]
Wanted = Callable[[Coroutine[Any, Any, Answer]], Awaitable[Answer]]
"""Awaits an answer, and cancels it when the client disconnects."""

EXTENSIONS = ("binary_tensor_data", "model_repository", "statistics")


class Service:
    """The models of a server, by name; ``is_ending`` is set once it refuses new requests.

    ``texts`` are the text models, which have a protocol of their own.
    """

    def __init__(
        self,
        models: dict[str, Model],
        metrics: Metrics,
        timeout_s: float,
        texts: dict[str, TextModel] | None = None,
    ) -> None:
        self.models, self.metrics = models, metrics
        self.texts = texts or {}
        self.is_ending = False
        self._timeout_s = timeout_s

    @property
    def is_ready(self) -> bool:
        """True if all models can answer."""
        return not self.is_ending and all(model.is_ready for model in self.all_models)

    @property
    def all_models(self) -> list[Model | TextModel]:
        """The tensor models and the text models."""
        return [*self.models.values(), *self.texts.values()]

    @property
    def encoders(self) -> dict[str, Encoder]:
        """The encoders among the models, by the model's name."""
        found = ((name, model.encoder) for name, model in self.models.items())
        return {name: encoder for name, encoder in found if encoder is not None}

    def replace(self, model: Model | TextModel) -> Model | TextModel:
        """Replace the model of the same name and kind by ``model``, and return the old model.

        ``texts`` is changed in place, because the routes for texts share it.
        """
        old: Model | TextModel
        if isinstance(model, TextModel):
            old, self.texts[model.name] = self.texts[model.name], model
        else:
            old, self.models[model.name] = self.models[model.name], model
        return old

    def is_model_ready(self, name: str, version: str) -> bool:
        """Return True if a model can answer; raises `RefusedError` for an unknown model."""
        return self.find(name, version).is_ready and not self.is_ending

    def find(self, name: str, version: str) -> Model | TextModel:
        """Return a model; an empty version means the only version. Raises `RefusedError`."""
        model = self.models.get(name) or self.texts.get(name)
        if model is None:
            near = did_you_mean(name, [*self.models, *self.texts])
            raise RefusedError(Reason.UNKNOWN, f"model '{name:.80}': not served here{near}")
        if version not in ("", VERSION):
            raise RefusedError(
                Reason.UNKNOWN, f"model '{name}': expected version {VERSION}, got: '{version:.20}'"
            )
        return model

    def model(self, name: str, version: str) -> Model:
        """Return a model that takes tensors; raises `RefusedError`."""
        model = self.find(name, version)
        if isinstance(model, TextModel):
            raise RefusedError(
                Reason.INVALID,
                f"model '{name}': takes texts, expected a request to /v1/completions",
            )
        return model

    def index(self, *, ready_only: bool = False) -> list[dict[str, str]]:
        """Return the name, version and state of each model."""
        entries = [self._indexed(model.name) for model in self.all_models]
        return [entry for entry in entries if entry["state"] == "READY" or not ready_only]

    def _indexed(self, name: str) -> dict[str, str]:
        is_ready = self.is_model_ready(name, VERSION)
        why = "the server is ending" if self.is_ending else "ranks are being started"
        state, reason = ("READY", "") if is_ready else ("UNAVAILABLE", why)
        return {"name": name, "version": VERSION, "state": state, "reason": reason}

    def statistics(self, name: str, version: str) -> dict[str, Any]:
        """Return statistics of one model, or of all for an empty name; raises `RefusedError`."""
        if name:
            self.find(name, version)
        names = [name] if name else [model.name for model in self.all_models]
        sums = self.metrics.sums(names)
        return {"model_stats": [describe_statistics(name, VERSION, sums[name]) for name in names]}

    def metadata(self) -> dict[str, Any]:
        """Return the name, version and extensions of the server."""
        return {"name": "tensoropt", "version": __version__, "extensions": [*EXTENSIONS]}

    def model_metadata(self, name: str, version: str) -> dict[str, Any]:
        """Return a model's inputs and outputs; raises `RefusedError` for an unknown model."""
        model = self.find(name, version)
        head = {"name": name, "versions": [VERSION], "platform": "tensoropt_plan"}
        if isinstance(model, TextModel):  # its tensors are internal to the server and its ranks
            return {**head, "inputs": [], "outputs": []}
        varies = model.batching is not None
        return {
            **head,
            "inputs": [_described(spec, varies) for spec in model.inputs],
            "outputs": [_described(spec, varies) for spec in model.outputs],
        }

    async def infer(
        self, name: str, version: str, read: Read, protocol: str, wanted: Wanted | None = None
    ) -> Answer:
        """Return a model's outputs for the request that ``read`` returns; raises `RefusedError`.

        ``wanted`` awaits the answer instead, if the protocol must detect that a client disconnects.
        """
        model = self.model(name, version)
        with self.metrics.request(name, protocol):
            # Before the body is read: these requests would be refused later anyway.
            if self.is_ending:
                raise RefusedError(Reason.UNAVAILABLE, "the server is ending")
            model.check_room()
            request = await read()
            answered = self._answered(name, version, request)
            try:
                return await (answered if wanted is None else wanted(answered))
            except asyncio.CancelledError:
                if not self.is_ending:
                    raise
                why = "the server ended before the answer was ready (--grace)"
                raise RefusedError(Reason.UNAVAILABLE, why) from None

    async def _answered(self, name: str, version: str, request: Infer) -> Answer:
        try:
            async with asyncio.timeout(self._timeout_s):
                # Another model may have replaced the first one while the request was read.
                return await self.model(name, version).infer(request)
        except TimeoutError:
            raise RefusedError(
                Reason.LATE, f"no answer within {self._timeout_s:g} s (--timeout)"
            ) from None
        except RefusedError:
            raise
        except Exception as error:
            raise RefusedError(Reason.FAILED, one_line(error)) from error


def _described(spec: TensorSpec, varies: bool) -> dict[str, Any]:
    sizes = [-1 if isinstance(size, str) else size for size in spec.shape]
    return {
        "name": spec.name,
        "datatype": spec.datatype,
        "shape": [-1, *sizes[1:]] if varies else sizes,
    }
