"""Batch sizes of a plan's runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.runtime.plan.dims import sizes_in_words, terms
from tensoropt.runtime.support.errors import UserError
from tensoropt.serving.protocol.tensors import TensorSpec

__all__ = ["Batching", "batching_of"]


_MOST = 8


@dataclass(frozen=True)
class Batching:
    """Runs of up to ``size`` samples, or of exactly ``size`` samples if ``is_fixed``.

    ``allowed`` has the numbers of samples that the plan allows, if it restricts them.
    """

    size: int
    is_fixed: bool
    allowed: range | None = None

    def padded(self, samples: int) -> int:
        """Return ``samples`` rounded up to a size that a run can have."""
        if self.allowed is not None:
            return next(size for size in self.allowed if size >= samples)
        return self.size if self.is_fixed else samples


def batching_of(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], most: int | None = None
) -> Batching | None:
    """Return the batching of requests, or None if each request needs its own run.

    Dimension 0 is the number of samples if all inputs and outputs have it, with the same size or
    name, and no other dimension has that name. A size is the size of every run. With a name, a run
    has at most ``most`` samples: by default 8, or the largest size that the plan allows. Raises
    `UserError` if the plan allows no size up to ``most``.
    """
    tensors = [*inputs, *outputs]
    if not inputs or any(not tensor.shape for tensor in tensors):
        return None
    firsts = {tensor.shape[0] for tensor in tensors}
    if len(firsts) != 1:
        return None
    (first,) = firsts
    if isinstance(first, int):
        return Batching(first, is_fixed=True) if first else None
    others = {size for tensor in tensors for size in tensor.shape[1:] if isinstance(size, str)}
    used = others.union(*map(terms, others))
    if first in used or terms(first) != [first]:
        return None
    allowed = inputs[0].allowed.get(first)
    if allowed is None:
        return Batching(_MOST if most is None else most, is_fixed=False)
    sizes = [size for size in allowed if size and (most is None or size <= most)]
    if not sizes:
        raise UserError(
            f"--max-batch: expected at least {allowed[0]} samples, as the plan has '{first}' "
            f"{sizes_in_words(allowed)}, got: {most}"
        )
    return Batching(sizes[-1], is_fixed=False, allowed=allowed)
