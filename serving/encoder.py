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
from tensoropt.runtime.text.tokens import Vocabulary, find_tokenizer
from tensoropt.serving.protocol.tensors import TensorSpec

__all__ = ["Encoder", "find_encoder"]

_INPUTS = (IDS, MASK, "token_type_ids", POSITIONS)
_OUTPUTS = ("last_hidden_state", "token_embeddings")
_TOKENS_RANK = 3  # samples, tokens, width


@dataclass(frozen=True)
class Encoder:
    """Converts texts to the ``inputs`` of an encoder, and its ``output`` to embeddings.

    ``tokenizer`` is a file tokenizer.json. ``pooling`` is the mean of a
    text's tokens ("mean"), or its first token ("cls").
    """

    tokenizer: Path
    inputs: tuple[TensorSpec, ...]
    output: TensorSpec
    pooling: str

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(self.tokenizer)

    def tokens_of(self, text: str | Sequence[int]) -> list[int]:
        """Return the tokens of a text; raises `UserError`."""
        tokens = self._vocabulary.tokens(text) if isinstance(text, str) else list(text)
        if not tokens:
            raise UserError("input: is empty, expected at least one token")
        return tokens

    def length(self, longest: int) -> int:
        """Return the number of tokens, with padding, of texts with up to ``longest`` tokens.

        Raises `UserError` if the plan has no such number.
        """
        ids = next(spec for spec in self.inputs if spec.name == IDS)
        size = ids.shape[1]
        allowed = ids.allowed.get(str(size), range(longest, longest + 1))
        sizes = [size] if isinstance(size, int) else allowed
        found = next((n for n in sizes if n >= longest), None)
        if found is None:
            raise UserError(f"input: expected at most {sizes[-1]} tokens, got: {longest}")
        return found

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
        """Return the embedding of a text of ``count`` tokens, with length 1."""
        rows: Array = output[0, : 1 if self.pooling == "cls" else count].astype(np.float32)
        found: Array = rows.mean(axis=0)
        norm = float(np.linalg.norm(found))
        return found / norm if norm else found


def find_encoder(
    plan: Plan, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], pooling: str
) -> Encoder | None:
    """Return the encoder of a plan that takes tokens and returns a vector for each, or None."""
    tokenizer = find_tokenizer(plan, None)
    names = {spec.name for spec in inputs}
    vectors = [spec for spec in outputs if len(spec.shape) == _TOKENS_RANK]
    output = next((spec for spec in vectors if spec.name in _OUTPUTS), None)
    if output is None and len(vectors) == 1:
        output = vectors[0]
    if tokenizer is None or output is None or IDS not in names or not names <= {*_INPUTS}:
        return None
    return Encoder(tokenizer, tuple(inputs), output, pooling)
