"""Merging of several requests into one run, and splitting of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tensoropt.runtime.support.dtypes import Array

__all__ = ["Empty", "Tensors", "merge", "split_outputs"]

Tensors = Mapping[str, Array]
Empty = Callable[[Mapping[str, Sequence[int]]], Tensors]
"""Allocates input arrays in memory that ranks can read, from shapes by name."""


def merge(requests: Sequence[Tensors], samples: int, empty: Empty) -> Tensors:
    """Concatenate the inputs of all ``requests`` in arrays of ``empty``, of ``samples`` samples.

    Padding repeats the last sample. Unlike zeros, it is always valid, and it does not change the
    range by which values are quantized.
    """
    if len(requests) == 1 and len(next(iter(requests[0].values()))) == samples:
        return requests[0]
    shapes = {name: (samples, *array.shape[1:]) for name, array in requests[0].items()}
    whole = empty(shapes)
    for name, array in whole.items():
        given = [request[name] for request in requests]
        filled = sum(map(len, given))
        np.concatenate(given, out=array[:filled])
        array[filled:] = array[filled - 1]
    return whole


def split_outputs(outputs: Tensors, sizes: Sequence[int]) -> Iterator[dict[str, Array]]:
    """Yield the outputs of each request, of ``sizes`` samples, without the padding."""
    start = 0
    for size in sizes:
        yield {name: array[start : start + size] for name, array in outputs.items()}
        start += size
