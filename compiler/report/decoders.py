"""Notes on decoders: inputs that only look like caches, small caches, and open head sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
        # Reasons that differ only in numbers, such as the number of a layer, share a line.
        for _, rows in groupby(refused, key=lambda row: _NUMBER.sub("", row[1])):
            (name, reason), *rest = rows
            others = f" (and {len(rest)} more like it)" if rest else ""
            yield f"note: '{name}'{others} is not kept as a cache: {reason}"
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
        known = None if model is None else head_size(model)
        size, source = ("SIZE", "") if known is None else (str(known[1]), f", as {known[0]} says")
        listed = ", ".join(f"'{name}'" for name in heads)
        yield (
            f"note: {listed} is the size of a head, which text generation needs: "
            f"expected {dim_flags(heads, size)}{source}"
        )
