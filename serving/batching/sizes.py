"""Whether requests may share a run of a plan, and how many samples a run takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.runtime.plan.dims import terms
from tensoropt.serving.protocol.tensors import TensorSpec

__all__ = ["Batching", "batching_of"]


@dataclass(frozen=True)
class Batching:
    """Runs of up to ``size`` samples; ``is_fixed`` ones have exactly so many."""

    size: int
    is_fixed: bool

    def padded(self, samples: int) -> int:
        """Return how many samples a run has that is for ``samples``."""
        return self.size if self.is_fixed else samples


def batching_of(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], most: int
) -> Batching | None:
    """Return how requests share runs, None where a request is a run of its own.

    Dimension 0 is that of samples if all inputs and outputs have it, of one size or one name, and
    no other dimension has that name. A size is kept to; under a name a run has at most ``most``.
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
    return None if first in used or terms(first) != [first] else Batching(most, is_fixed=False)
