"""The effect of caches of 8-bit integers on the scores of a decoder, which its file records."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.compiler.support.errors import UserError

if TYPE_CHECKING:
    import onnx

__all__ = ["Effect", "read_effect", "record_effect"]

_KEY = "tensoropt_int8_caches"
"""The entry of the model's metadata: the fields of `Effect` as JSON."""


@dataclass(frozen=True)
class Effect:
    """The effect of 8-bit caches on the scores of a text, of its last ``tokens``.

    ``same`` is the share of tokens with the same likeliest next token. ``divergence`` is the mean
    Kullback-Leibler divergence from the probabilities of the model, in nats. Perplexities are of
    the text, before and after.
    """

    tokens: int
    caches: int
    same: float
    divergence: float
    perplexity: float
    int8_perplexity: float

    def __str__(self) -> str:
        return (
            f"{self.caches} caches of 8 bits: of {self.tokens} tokens {self.same:.1%} have the "
            f"same likeliest next token, perplexity {self.int8_perplexity:.4g} instead of "
            f"{self.perplexity:.4g}, mean divergence {self.divergence:.2g} nats"
        )


def record_effect(proto: onnx.ModelProto, effect: Effect) -> None:
    """Write an effect into the metadata of a model."""
    proto.metadata_props.add(key=_KEY, value=json.dumps(asdict(effect)))


def read_effect(model: Path) -> Effect | None:
    """Return the effect that a model file records, None if it records none.

    Raises :class:`UserError` for an entry of another form.
    """
    from tensoropt.compiler.importer.model_file import read_proto

    found = [entry.value for entry in read_proto(model).metadata_props if entry.key == _KEY]
    if not found:
        return None
    try:
        return Effect(**json.loads(found[0]))
    except (TypeError, ValueError):
        raise UserError(
            f"{model}: metadata '{_KEY}': expected the effect that --int8-caches records, got: "
            f"{found[0]:.80}"
        ) from None
