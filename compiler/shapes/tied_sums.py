"""Sums of dimensions that an input has under other names than the inputs that have the terms.

Exporters name the length of a mask `past_seq_len + seq_len` next to caches of `past_sequence_len`
and tokens of `sequence_len`. Shapes tell which sizes belong together: no other sum fits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, combinations

from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import arguments, function
from tensoropt.dialects.topt import keys
from tensoropt.runtime.plan.dims import bound, has_number, terms

__all__ = ["free_sums", "tie_sums"]

# Sizes of the trials: no two sums of them are equal, nor equal to sizes that models have.
_TRIALS = (23, 37, 61, 97, 151)
_CONTROL = 211
_MOST = 24  # sums that are tried


def free_sums(module: ir.Module, ranges: Collection[str]) -> list[str]:
    """Return the sums among the dimensions of inputs with terms that nothing else determines."""
    names = _names(module)
    alone = {name for name in names if terms(name) == [name]}.union(ranges)
    sums = [name for name in names if len(terms(name)) > 1 and not has_number(name)]
    return [name for name in sums if alone.isdisjoint(terms(name))]


def tie_sums(
    module: ir.Module, ranges: Collection[str], fits: Callable[[Mapping[str, int]], bool]
) -> None:
    """Rename free sums of the inputs of ``module`` to the sums of dimensions that alone fit.

    ``fits`` returns whether shapes fit at some sizes by name. A sum keeps its name if shapes fit
    with any size, or with several sums.
    """
    for name in free_sums(module, ranges):
        plain = [dim for dim in _names(module) if terms(dim) == [dim]][: len(_TRIALS)]
        sizes = dict(zip(plain, _TRIALS, strict=False))
        if fits({**sizes, name: _CONTROL}):
            continue
        count = len(terms(name))
        for sums in (combinations(plain, count), _with_sizes(module, plain, count)):
            names = list(map(" + ".join, sums))[:_MOST]
            fitting = [text for text in names if fits({**sizes, name: int(bound(text, sizes))})]
            if len(fitting) == 1:
                _rename(module, name, fitting[0])
            if fitting:
                break


def _names(module: ir.Module) -> list[str]:
    dims = (keys.DIMS.get(attributes, []) for _, attributes in arguments(function(module)))
    return [name for name in dict.fromkeys(chain.from_iterable(dims)) if name]


def _with_sizes(module: ir.Module, names: Sequence[str], count: int) -> Iterator[tuple[str, ...]]:
    """Yield sums of ``count`` terms with a known size of an input first."""
    sizes = {
        kind.get_dim_size(dim)
        for value, attributes in arguments(function(module))
        if not keys.PARAM.on(attributes) and isinstance(kind := value.type, ir.RankedTensorType)
        for dim in range(kind.rank)
        if not kind.is_dynamic_dim(dim)
    }
    for dims in combinations(names, count - 1):
        yield from ((str(size), *dims) for size in sorted(sizes) if size)


def _rename(module: ir.Module, old: str, new: str) -> None:
    main = function(module)
    arg_attrs = []
    for _, attributes in arguments(main):
        names = [new if name == old else name for name in keys.DIMS.get(attributes, [])]
        entries = {item.name: item.attr for item in attributes}
        arg_attrs.append(ir.DictAttr.get({**entries, **(keys.DIMS.item(names) if names else {})}))
    main.attributes["arg_attrs"] = ir.ArrayAttr.get(arg_attrs)
