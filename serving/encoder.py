"""Embeddings of texts by the plan of an encoder: its inputs, and the pooling of its output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.text.decoder import IDS, MASK, POSITIONS
from tensoropt.runtime.text.isolation import TextFailedError
from tensoropt.runtime.text.limits import MOST_EMBEDDED
from tensoropt.runtime.text.tokens import Vocabulary, find_tokenizer
from tensoropt.serving.protocol.tensors import TensorSpec

__all__ = ["Encoder", "find_encoder"]

_INPUTS = (IDS, MASK, "token_type_ids", POSITIONS)
_OUTPUTS = ("last_hidden_state", "token_embeddings")
_TOKENS_RANK = 3  # samples, tokens, width


@dataclass(frozen=True)
class Encoder:
    """Converts texts to the ``inputs`` of an encoder, and its ``output`` to embeddings.

    ``tokenizer`` is a file tokenizer.json. ``pooling`` is the mean of a text's tokens ("mean"), or
    its first token ("cls"). A text has at most ``context`` tokens.
    """

    tokenizer: Path
    inputs: tuple[TensorSpec, ...]
    output: TensorSpec
    pooling: str
    context: int = MOST_EMBEDDED

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(self.tokenizer)

    def tokens_of(self, text: str | Sequence[int]) -> list[int]:
        """Return the tokens of a text; raises `UserError`."""
        if isinstance(text, str):
            if self._vocabulary.exceeds(text, self.most):
                raise self._too_long(f"more, in {len(text)} characters")
            tokens = self._vocabulary.tokens(text)
        else:
            tokens = [*text]
        if not tokens:
            raise UserError("input: is empty, expected at least one token")
        if len(tokens) > self.most:
            raise self._too_long(str(len(tokens)))
        size = self._vocabulary.size
        for token in tokens:
            if not 0 <= token < size:
                raise UserError(f"input: expected tokens from 0 to {size} - 1, got: {token}")
        return tokens

    def _too_long(self, got: str) -> UserError:
        return UserError(f"input: expected at most {self.most} tokens, got: {got}")

    @cached_property
    def _sizes(self) -> range | None:
        """The numbers of tokens that the plan has, None for any."""
        ids = next(spec for spec in self.inputs if spec.name == IDS)
        size = ids.shape[1]
        return range(size, size + 1) if isinstance(size, int) else ids.allowed.get(str(size))

    @cached_property
    def most(self) -> int:
        """Most tokens of a text."""
        return self.context if self._sizes is None else min(self.context, self._sizes[-1])

    def length(self, longest: int) -> int:
        """Return the number of tokens, with padding, of texts with up to ``longest`` tokens."""
        return next((size for size in self._sizes or () if size >= longest), longest)

    def arrays_of(self, tokens: Sequence[int], length: int) -> dict[str, Array]:
        """Return the inputs of one text, padded to ``length``. Raises `UserError`."""
        count = len(tokens)
        if count < length and all(spec.name != MASK for spec in self.inputs):
            raise UserError(f"input: expected {length} tokens, as the model has no {MASK}")
        ids, mask = np.zeros((1, length), np.int64), np.zeros((1, length), np.int64)
        ids[0, :count], mask[0, :count] = tokens, 1
        positions = np.arange(length)[None]
        arrays = dict(zip(_INPUTS, (ids, mask, np.zeros_like(ids), positions), strict=True))
        return {spec.name: arrays[spec.name].astype(dtype_of(spec.dtype)) for spec in self.inputs}

    def embed(self, output: Array, count: int) -> Array:
        """Return the embedding of a text of ``count`` tokens, with length 1.

        Raises `TextFailedError` for vectors that are not finite.
        """
        rows: Array = output[0, : 1 if self.pooling == "cls" else count].astype(np.float64)
        if not np.isfinite(rows).all():
            raise TextFailedError(
                f"output '{self.output.name}': expected finite numbers, as of a model that does "
                "not overflow its element type, got others"
            )
        found: Array = rows.mean(axis=0)
        norm = float(np.linalg.norm(found))
        return (found / norm if norm else found).astype(np.float32)


def find_encoder(
    plan: Plan,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    pooling: str,
    context: int | None = None,
) -> Encoder | None:
    """Return the encoder of a plan that takes tokens and returns a vector for each, or None.

    Its texts have at most ``context`` tokens, and those of the model's configuration.
    """
    tokenizer = find_tokenizer(plan, None)
    names = {spec.name for spec in inputs}
    vectors = [spec for spec in outputs if len(spec.shape) == _TOKENS_RANK]
    output = next((spec for spec in vectors if spec.name in _OUTPUTS), None)
    if output is None and len(vectors) == 1:
        output = vectors[0]
    if tokenizer is None or output is None or IDS not in names or not names <= {*_INPUTS}:
        return None
    limits = (context, plan.document.get("text", {}).get("context"))
    most = min((limit for limit in limits if limit is not None), default=MOST_EMBEDDED)
    return Encoder(tokenizer, tuple(inputs), output, pooling, most)
