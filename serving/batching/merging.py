"""Samples of several requests in one run, and their outputs apart again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tensoropt.runtime.support.dtypes import Array

__all__ = ["Empty", "Tensors", "merged", "parts"]

Tensors = Mapping[str, Array]
Empty = Callable[[Mapping[str, Sequence[int]]], Tensors]
"""Makes arrays for inputs, by name and shape, where ranks can read them."""


def merged(requests: Sequence[Tensors], samples: int, empty: Empty) -> Tensors:
    """Return the inputs of all ``requests`` one after another, ``samples`` in all, in ``empty``.

    What is missing at the end is the last sample again: it is valid wherever that one is, as zeros
    need not be, and where values are quantised by their range it leaves that as it is.
    """
    if len(requests) == 1 and _samples(requests[0]) == samples:
        return requests[0]
    shapes = {name: (samples, *array.shape[1:]) for name, array in requests[0].items()}
    whole = empty(shapes)
    for name, array in whole.items():
        _fill(array, [request[name] for request in requests])
    return whole


def _samples(request: Tensors) -> int:
    return len(next(iter(request.values())))


def _fill(whole: Array, arrays: Sequence[Array]) -> None:
    filled = sum(map(len, arrays))
    np.concatenate(arrays, out=whole[:filled])
    whole[filled:] = whole[filled - 1]


def parts(outputs: Tensors, sizes: Sequence[int]) -> Iterator[dict[str, Array]]:
    """Yield the outputs of each request, of ``sizes`` samples, and nothing of what was added."""
    start = 0
    for size in sizes:
        yield {name: array[start : start + size] for name, array in outputs.items()}
        start += size
