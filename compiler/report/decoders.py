"""What a person must know of a decoder: which caches are none, and what text needs besides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from tensoropt.compiler.exporter.plan.decoder_files import head_size
from tensoropt.compiler.shapes.caches import find_caches, open_heads
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.plan.dims import dim_flags

__all__ = ["decoder_notes"]

_NUMBER = re.compile(r"\d+")


def decoder_notes(module: ir.Module, model: Path | None) -> Iterator[str]:
    """Yield a line for each reason for which inputs called like caches are none, and one on heads
    of an open size.

    ``model`` is the file of the ``module``, beside which its configuration may lie. An input that
    only happens to be called `past...`, where nothing is a cache or a key, is not spoken of.
    """
    caches, refused = find_caches(module)
    if caches or any("key" in name for name, _ in refused):
        for _, alike in groupby(refused, key=lambda row: _NUMBER.sub("", row[1])):
            yield _refused(list(alike))
    heads = open_heads(module)
    if heads:
        yield _open_heads(heads, None if model is None else head_size(model))


def _refused(rows: Sequence[tuple[str, str]]) -> str:
    (name, reason), more = rows[0], len(rows) - 1
    others = f" (and {more} more like it)" if more else ""
    return f"note: '{name}'{others} is not kept as a cache: {reason}"


def _open_heads(names: Sequence[str], known: tuple[str, int] | None) -> str:
    what = ", ".join(f"'{name}'" for name in names)
    size, source = ("SIZE", "") if known is None else (str(known[1]), f", as {known[0]} says")
    return (
        f"note: {what} is how long a head is, without which no text can be made: "
        f"expected {dim_flags(names, size)}{source}"
    )
