"""`mark-caches`: mark the results of a decoder that are its caches of keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.shapes.caches import find_caches, in_place_pairs
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import carried, function
from tensoropt.dialects.topt import keys
from tensoropt.passes.base import Pass

__all__ = ["MarkCachesPass"]


@dataclass(frozen=True)
class MarkCachesPass(Pass):
    """Marks each result that is a cache with the argument that it becomes in the next step.

    Pairs are found by their names, `past...` and `present...`. Both have one type and equal sizes,
    except for the dimension in which the cache grows. The search gives both the same layout.
    An operator such as `GroupQueryAttention` can write the next cache into the memory of the
    previous cache. Then `topt.updates` marks the result as well, and the two share a buffer.
    Adds `topt.cache` and `topt.updates` to results. Refuses nothing.
    """

    name: ClassVar[str] = "mark-caches"
    summary: ClassVar[str] = "Mark the results that are caches of keys and values."

    def run(self, module: ir.Module) -> None:
        pasts = {cache.present: cache.past for cache in find_caches(module)[0]}
        if pasts:
            in_place = in_place_pairs(module, pasts)
            with module.context:
                _mark(function(module), pasts, in_place)


def _mark(main: ir.Operation, pasts: dict[str, str], in_place: dict[str, str]) -> None:
    marked = []
    for own in carried(main, "res_attrs"):
        attributes = {item.name: item.attr for item in own}
        name = keys.NAME.get(own, "")
        if name in pasts:
            attributes.update(keys.CACHE.item(pasts[name]))
        if name in in_place:
            attributes.update(keys.UPDATES.item(in_place[name]))
        marked.append(ir.DictAttr.get(attributes))
    main.attributes["res_attrs"] = ir.ArrayAttr.get(marked)
