"""A plan's decoder for text generation: its caches, token ids and scores."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path

from tensoropt.runtime.plan.dims import bound, dim_flags, sizes_in_words, terms
from tensoropt.runtime.plan.entries import TextEntry
from tensoropt.runtime.plan.plan import Plan, Tensor
from tensoropt.runtime.support.errors import UserError

__all__ = [
    "IDS",
    "MASK",
    "POSITIONS",
    "Cache",
    "Decoder",
    "Padding",
    "check_proposals",
    "check_reader",
    "check_steps",
    "decoder_of",
]

IDS, MASK, POSITIONS = "input_ids", "attention_mask", "position_ids"
"""Names that exporters give to the inputs other than caches."""

_BY_LENGTH = "GroupQueryAttention"

_RANK = 4  # of a cache: b h s d; a leading dimension of 2 if keys and values are in one tensor


class Padding(Enum):
    """The side of a row's tokens that has the padding."""

    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True)
class Cache:
    """A cache: each step's input ``past`` is the previous output ``present``; it grows in ``dim``.

    ``in_place``: the output is written into the input's buffer, which has room for more tokens.
    """

    past: Tensor
    present: Tensor
    dim: int
    in_place: bool

    @property
    def row_dim(self) -> int:
        """The dimension of sequences."""
        return len(self.past.shape) - _RANK

    def shape(self, batch: int, tokens: int, dims: Mapping[str, int]) -> tuple[int, ...]:
        """Return the global shape for ``tokens`` of ``batch`` sequences.

        ``dims`` are sizes of symbolic dimensions; `decoder_of` has found all of them.
        """
        return tuple(map(int, self._sized(batch, tokens, dims)))

    def open_sizes(self, batch: int, tokens: int, dims: Mapping[str, int]) -> list[str]:
        """Return the names of sizes that are missing in ``dims``."""
        return [size for size in self._sized(batch, tokens, dims) if isinstance(size, str)]

    def _sized(self, batch: int, tokens: int, dims: Mapping[str, int]) -> list[int | str]:
        shape = self.past.shape
        sizes = {**dims, str(shape[self.row_dim]): batch, str(shape[self.dim]): tokens}
        return [bound(size, sizes) if isinstance(size, str) else size for size in shape]


@dataclass(frozen=True)
class Decoder:
    """A plan's decoder; ``inputs`` are its inputs except caches, by name."""

    plan: Plan
    inputs: Mapping[str, Tensor]
    caches: tuple[Cache, ...]
    scores: Tensor

    @property
    def length(self) -> int | None:
        """Number of tokens per sequence of a step, None for any number."""
        size = self.inputs[IDS].shape[1]
        return size if isinstance(size, int) else None

    @property
    def batch(self) -> int | None:
        """Largest number of sequences of a step, None for any number."""
        size = self.inputs[IDS].shape[0]
        sizes = self.allowed(0)
        return size if isinstance(size, int) else None if sizes is None else sizes[-1]

    def rows(self, sequences: int) -> int:
        """Return ``sequences``, which are at most `batch`, rounded up to an allowed number."""
        size, sizes = self.inputs[IDS].shape[0], self.allowed(0)
        if sizes is not None:
            return next(count for count in sizes if count >= sequences)
        return size if isinstance(size, int) else sequences

    def allowed(self, dim: int) -> range | None:
        """Return the sizes that the plan allows for a dimension of the token ids, None for any."""
        return self.inputs[IDS].allowed.get(str(self.inputs[IDS].shape[dim]))

    @property
    def context(self) -> int | None:
        """Maximum number of tokens of a text, None if unknown.

        It is the smaller of the model's context and the plan's limit on the size of caches.
        """
        pasts = [cache.past.allowed.get(str(cache.past.shape[cache.dim])) for cache in self.caches]
        known = [self.entry["context"], *(sizes[-1] for sizes in pasts if sizes is not None)]
        return min((size for size in known if size is not None), default=None)

    def step_size(self, left: int, most: int | None = None) -> int:
        """Return the tokens per sequence that the next step reads, of ``left``; 0 if none fit.

        It is at most ``most``, unless the plan allows only more.
        """
        if self.length is not None:
            return self.length if self.length <= left else 0
        sizes = self.allowed(1)
        if sizes is None:
            parts = math.lcm(*(tensor.layout.pieces(1) for tensor in self.inputs.values()))
            sizes = range(parts, left + 1, parts)
        fitting = sizes[: bisect_right(sizes, left)]
        if most is not None:
            fitting = fitting[: max(1, bisect_right(fitting, most))]
        return fitting[-1] if fitting else 0

    @cached_property
    def padding(self) -> Padding | None:
        """The side of a cache with padding if sequences differ in length, None if they must not.

        GroupQueryAttention interprets the mask as a length, so its padding follows the tokens, in a
        cache with room for them. A cache that grows by a token in every step ends with a token, so
        padding comes first.
        """
        if MASK not in self.inputs:
            return None
        if all(node["op"] != _BY_LENGTH for node in self.plan.document["strategies"]):
            return Padding.LEFT
        return Padding.RIGHT if all(cache.in_place for cache in self.caches) else None

    @property
    def scores_all(self) -> bool:
        """True if a step scores each of its tokens, not the last one alone."""
        return self.scores.shape[1] != 1 or self.length == 1

    def can_verify(self, tokens: int) -> bool:
        """Return True if a step can read up to ``tokens`` tokens, and caches can drop the last.

        Only caches that are updated in place can: the next step overwrites the dropped tokens.
        """
        is_read = all(self.step_size(size) == size for size in range(1, tokens + 1))
        return is_read and self.padding is Padding.RIGHT and self.scores_all

    @property
    def can_pack(self) -> bool:
        """True if a step may have any rows and tokens, and no rank has only some of them."""
        split = [
            tensor.layout.pieces(dim) > 1
            for tensor in (*self.inputs.values(), self.scores)
            for dim in (0, 1)
        ]
        split += [
            cache.past.layout.pieces(dim) > 1
            for cache in self.caches
            for dim in (cache.row_dim, cache.dim)
        ]
        is_any = all(size is None for size in (self.batch, self.length, self.allowed(1)))
        return is_any and not any(split) and self.padding is Padding.RIGHT

    def slots(self, most: int) -> int:
        """Return how many sequences may be in the batch at a time: at most ``most``."""
        return 1 if self.padding is None else min(most, self.batch or most)

    @property
    def entry(self) -> TextEntry:
        """The longest context and the end tokens, from the files next to the model."""
        unknown: TextEntry = {"context": None, "end": []}
        return self.plan.document.get("text", unknown)


def decoder_of(plan: Plan, dims: Mapping[str, int] | None = None) -> Decoder:
    """Return the decoder of a plan; ``dims`` are sizes of symbolic dimensions.

    Raises `UserError` if the plan is not a decoder's, or has an input of unknown meaning.
    """
    inputs = {tensor.name: tensor for tensor in plan.inputs}
    outputs = {tensor.name: tensor for tensor in plan.outputs}
    caches = tuple(_caches(plan, inputs, outputs))
    if not caches:
        raise UserError(
            f"{plan.folder}: has no caches of keys and values, expected the plan of a decoder that "
            "was exported with them (past_key_values.* in, present.* out)"
        )
    pasts, presents = ({getattr(c, side).name for c in caches} for side in ("past", "present"))
    others = {name: tensor for name, tensor in inputs.items() if name not in pasts}
    scores = [tensor for name, tensor in outputs.items() if name not in presents]
    decoder = Decoder(plan, others, caches, _scores(plan.folder, scores))
    _check_inputs(decoder)
    _check_sizes(decoder, dims or {})
    return decoder


def check_steps(decoder: Decoder) -> None:
    """Raise `UserError` unless steps of a decoder can take single tokens."""
    folder = decoder.plan.folder
    if decoder.length not in (None, 1):
        raise UserError(
            f"{folder}: a step takes exactly {decoder.length} tokens, expected 1 or a symbolic "
            "size, or a separate plan for prompts (--prefill-plan)"
        )
    sizes = decoder.allowed(1)
    if sizes is not None and (sizes[0] > 1 or sizes.step > 1):
        raise UserError(
            f"{folder}: a step takes {decoder.inputs[IDS].shape[1]} {sizes_in_words(sizes)}, "
            "expected any number of tokens from 1, or a separate plan for prompts (--prefill-plan)"
        )
    if decoder.scores.layout.pieces(1) > 1:
        raise UserError(
            f"{folder}: output '{decoder.scores.name}' is split by tokens, expected whole rows"
        )


def check_proposals(decoder: Decoder, most: int) -> None:
    """Raise `UserError` unless a step can verify ``most`` proposed tokens."""
    if most and not decoder.can_verify(1 + most):
        raise UserError(
            f"{decoder.plan.folder}: cannot verify {most} proposed tokens, expected caches of "
            "GroupQueryAttention that are updated in place, and steps of any number of tokens up "
            f"to {1 + most}, or --speculate 0"
        )


def check_reader(reader: Decoder, decoder: Decoder) -> None:
    """Raise `UserError` unless ``decoder`` can continue with the caches of ``reader``."""
    plan, other = reader.plan, decoder.plan
    for own in (plan, other):
        if own.staged is not None:
            raise UserError(
                f"{own.folder}: is in stages, which read prompts by the same plan, expected no "
                "separate plan for prompts (--prefill-plan)"
            )
    if plan.model_sha256 != other.model_sha256:
        raise UserError(
            f"{plan.folder}: is of another model, expected {other.model_name}, the model of "
            f"{other.folder}, got: {plan.model_name}"
        )
    if plan.ranks != other.ranks:
        raise UserError(
            f"{plan.folder}: expected {other.ranks} ranks, as {other.folder} has, got: {plan.ranks}"
        )
    same = reader.batch == decoder.batch and reader.allowed(0) == decoder.allowed(0)
    if reader.batch is not None and not same:
        raise UserError(
            f"{plan.folder}: expected any number of sequences, or the number of {other.folder} "
            f"({decoder.batch or 'any'}), got: {reader.batch}"
        )


def _caches(plan: Plan, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> list[Cache]:
    found = []
    for entry in plan.document.get("caches", []):
        past, present = inputs[entry["past"]], outputs[entry["present"]]
        if past.layout != present.layout:
            raise UserError(
                f"{plan.folder}: '{present.name}' replaces '{past.name}', expected the same layout"
            )
        dim = entry["dim"]
        if dim is None or not isinstance(past.shape[dim], str):
            size = past.shape[dim or 0]
            raise UserError(
                f"{plan.folder}: cache '{past.name}' cannot grow, expected a symbolic dimension of "
                f"tokens, not fixed by --dim, got: {size}"
            )
        found.append(Cache(past, present, dim, entry["in_place"]))
    return found


def _scores(folder: Path, found: list[Tensor]) -> Tensor:
    scores = next((t for t in found if t.name == "logits"), found[0] if len(found) == 1 else None)
    if scores is None or len(scores.shape) != 3 or scores.layout.is_partial:
        raise UserError(
            f"{folder}: expected an output 'logits' of batch, sequence and vocabulary, got: "
            f"{', '.join(tensor.name for tensor in found) or 'none'}"
        )
    return scores


def _check_inputs(decoder: Decoder) -> None:
    folder = decoder.plan.folder
    if IDS not in decoder.inputs or len(decoder.inputs[IDS].shape) != 2:
        raise UserError(f"{folder}: expected an input '{IDS}' of batch and sequence")
    for name in decoder.inputs:
        if name not in (IDS, MASK, POSITIONS):
            raise UserError(
                f"{folder}: input '{name}' is unknown to text generation, expected {IDS}, "
                f"{MASK}, {POSITIONS} and caches"
            )


def _check_sizes(decoder: Decoder, dims: Mapping[str, int]) -> None:
    """Raise `UserError` with all sizes of caches that are missing, apart from batch and tokens."""
    sizes = [size for cache in decoder.caches for size in cache.open_sizes(1, 1, dims)]
    missing = dict.fromkeys(name for size in sizes for name in terms(size))
    if missing:
        flags = dim_flags(missing, "SIZE")
        raise UserError(f"{decoder.plan.folder}: caches have open sizes, expected {flags}")
