"""Options of ranks, in every command and in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TypedDict

from tensoropt.runtime.support.kinds import (
    LIBRARIES,
    SECONDS,
    SIZES,
    SWITCH,
    choice,
    integer,
)
from tensoropt.runtime.support.options import Options, option

__all__ = [
    "EXACT",
    "FAST",
    "MODEL",
    "GivenSizes",
    "InferenceArguments",
    "InferenceOptions",
    "RankArguments",
    "RankOptions",
    "SessionArguments",
    "SessionOptions",
]


GivenSizes = int | str | tuple[int, int] | range
"""A size of a dimension, or a range of sizes: (first, last), a range or the text of a flag."""

EXACT, MODEL, FAST = "exact", "model", "fast"
"""Limits of the rounding that ONNX Runtime may add to models with quantised values."""


@dataclass(frozen=True, kw_only=True)
class RankOptions(Options):
    """Options of all ranks.

    Ranks without progress for ``stall_s`` seconds are ended: no rank of a job has reached another
    collective, message, or begin or end of a run of a graph; or a run of a session, or a step of a
    text, has not ended. None sets no limit. ``dims`` has the sizes of symbolic dimensions; the
    sizes of the plan may be repeated.
    """

    provider: str = option(
        "cpu", choice("cpu", "cuda"), "cuda: one GPU per rank (default %(default)s)"
    )
    threads: int | None = option(
        None, integer(1, 1024), "threads per rank (default: cores / ranks)", "T"
    )
    share_gpus: bool = option(False, SWITCH, "allow more ranks than GPUs, for tests")
    cuda_graphs: bool = option(False, SWITCH, "run a step as one CUDA graph if possible")
    stall_s: float | None = option(
        None, SECONDS, "end all ranks if no rank makes progress for S seconds", "S"
    )
    dims: Mapping[str, GivenSizes] = option(
        dict,
        SIZES,
        "size of a symbolic dimension, or the plan's range; x:0 is unnamed dimension 0 of x "
        "(repeatable)",
        "NAME=SIZE",
    )


@dataclass(frozen=True, kw_only=True)
class InferenceOptions(RankOptions):
    """Options of ranks that run models.

    The user of a plan names the libraries ``custom_ops``, as a plan must not make a machine load
    code. ``rounding`` is "exact", "model" or "fast".
    """

    custom_ops: Sequence[str | PathLike[str]] = option(
        (), LIBRARIES, "library of custom operators of the plans (repeatable)", "LIB.so"
    )
    rounding: str = option(
        MODEL,
        choice(EXACT, MODEL, FAST),
        "of models with quantised values; exact: compute in floats between them, model: in "
        "integers of 8 bits where the model rounds to 8 bits, fast: as ONNX Runtime does by "
        "default, also with activations rounded to 8 bits and sums that overflow "
        "(default %(default)s)",
    )


@dataclass(frozen=True, kw_only=True)
class SessionOptions(InferenceOptions):
    """Options of ranks that answer requests; they start within ``start_timeout_s`` seconds.

    None sets the limit ``stall_s``.
    """

    start_timeout_s: float | None = option(
        None, SECONDS, "end ranks that are not ready after S seconds", "S"
    )


class RankArguments(TypedDict, total=False):
    """`RankOptions` as keyword arguments."""

    provider: str
    threads: int | None
    share_gpus: bool
    cuda_graphs: bool
    stall_s: float | None
    dims: Mapping[str, GivenSizes]


class InferenceArguments(RankArguments, total=False):
    """`InferenceOptions` as keyword arguments."""

    custom_ops: Sequence[str | PathLike[str]]
    rounding: str


class SessionArguments(InferenceArguments, total=False):
    """`SessionOptions` as keyword arguments."""

    start_timeout_s: float | None
