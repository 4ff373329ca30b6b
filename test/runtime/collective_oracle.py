"""What collectives give, in numpy, from the inputs of all ranks, which every rank can make."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np

SHAPE = (12, 12, 12)  # divides by groups of 1, 2, 3 and 4
DTYPES = ["float32", "float16", "bfloat16", "float64", "int32", "int64", "bool", "int8", "uint8"]
REDUCE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def dtype_of(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def data(dtype: str, rank: int, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    """Small integers, whose sums every type holds exactly; int8 and uint8 sums wrap."""
    random = np.random.default_rng([rank, len(dtype)])
    if dtype == "bool":
        return random.integers(0, 4, shape) == 0
    low, high = (100, 120) if dtype == "int8" else (100, 250) if dtype == "uint8" else (-20, 20)
    return random.integers(low, high, shape).astype(dtype_of(dtype))


def reduced(parts: list[np.ndarray], reduction: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        return functools.reduce(REDUCE[reduction], parts)  # ufunc.reduce would widen


LOADS = ("equal", "to one", "to oneself", "none")


def rows_sent(load: str, place: int, ranks: int) -> list[int]:
    """The rows that a place sends to each, all of `SHAPE` or none."""
    if load == "equal":
        return [SHAPE[0] // ranks] * ranks
    target = {"to one": ranks - 1, "to oneself": place, "none": -1}[load]
    return [SHAPE[0] if to == target else 0 for to in range(ranks)]


def oracle(op: str, attributes: dict, parts: list[np.ndarray], place: int) -> np.ndarray:
    """The result at position ``place`` of a group whose inputs are ``parts``, in group order."""
    if op == "AllReduce":
        return reduced(parts, attributes["reduction"])
    if op == "Broadcast":
        return parts[attributes["group"].index(attributes["root"])]
    if op == "CollectivePermute":
        return parts[attributes["sources"][place]]
    if op == "AllGather":
        return np.concatenate(parts, attributes["dim"])
    if op == "AllToAllRows":
        ranks = len(parts)
        ends = [np.cumsum(rows_sent(attributes["load"], rank, ranks)) for rank in range(ranks)]
        cut = [np.split(part[: own[-1]], own[:-1]) for part, own in zip(parts, ends, strict=True)]
        return np.concatenate([pieces[place] for pieces in cut])
    if op == "ReduceScatter":
        whole = reduced(parts, attributes["reduction"])
        return np.split(whole, len(parts), attributes["dim"])[place]
    pieces = [np.split(part, len(parts), attributes["split_dim"])[place] for part in parts]
    return np.concatenate(pieces, attributes["concat_dim"])
