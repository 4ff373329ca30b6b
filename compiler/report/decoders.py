"""Notes on decoders: inputs that only look like caches, small caches, and open head sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from tensoropt.compiler.exporter.plan.decoder_files import head_size
from tensoropt.compiler.shapes.caches import find_caches, open_heads, too_small
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.plan.dims import dim_flags

__all__ = ["decoder_notes"]

_NUMBER = re.compile(r"\d+")


def decoder_notes(module: ir.Module, model: Path | None) -> Iterator[str]:
    """Yield a line per reason why inputs named like caches are not caches, one on caches that are
    too small to be updated in place, and one on head sizes that are open.

    ``model`` is the file of ``module``; its folder may have a configuration with the head size.
    Inputs named `past...` yield no line if the model has no cache and none of them is a key.
    """
    caches, refused = find_caches(module)
    if caches or any("key" in name for name, _ in refused):
        for _, rows in groupby(refused, key=lambda row: _NUMBER.sub("", row[1])):
            yield _refused(list(rows))
    small = too_small(module)
    if small:
        cache, before, after = small[0]
        others = f" (and {len(small) - 1} more like it)" if len(small) > 1 else ""
        yield (
            f"note: '{cache.past}'{others} is copied in every step, as it has {before} tokens and "
            f"'{cache.present}' {after}: with {after} for both, it is updated in place"
        )
    heads = open_heads(module)
    if heads:
        yield _open_heads(heads, None if model is None else head_size(model))


def _refused(rows: Sequence[tuple[str, str]]) -> str:
    (name, reason), more = rows[0], len(rows) - 1
    others = f" (and {more} more like it)" if more else ""
    return f"note: '{name}'{others} is not kept as a cache: {reason}"


def _open_heads(names: Sequence[str], known: tuple[str, int] | None) -> str:
    listed = ", ".join(f"'{name}'" for name in names)
    size, source = ("SIZE", "") if known is None else (str(known[1]), f", as {known[0]} says")
    return (
        f"note: {listed} is the size of a head, which text generation needs: "
        f"expected {dim_flags(names, size)}{source}"
    )
