"""Write the operators and types with CUDA kernels in the installed onnxruntime-gpu.

    python bench/kernels/cuda_kernels.py > dialects/cuda_kernels.txt

The library of the CUDA provider must load, so its dependencies must be installed. A line is an
operator, the versions of it that a kernel implements, and the types of each type parameter. Kernels
that differ in one parameter share a line. Versions before opset 20 are omitted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

_OPSET = 20
_OPEN = 2**31 - 1
_DOMAINS = {"": "", "com.microsoft": "com.microsoft."}

Types = tuple[tuple[str, tuple[str, ...]], ...]
"""The types of each type parameter."""


def kernels() -> dict[tuple[str, int, int], set[Types]]:
    """Return, by operator and versions, the types of each kernel."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    found: dict[tuple[str, int, int], set[Types]] = defaultdict(set)
    for held in state.get_all_opkernel_def():
        first, last = held.version_range
        is_old = not held.domain and last < _OPSET
        if held.provider != "CUDAExecutionProvider" or held.domain not in _DOMAINS or is_old:
            continue
        key = f"{_DOMAINS[held.domain]}{held.op_name}", first, last
        found[key].add(tuple(sorted((p, _names(t)) for p, t in held.type_constraints.items())))
    return found


def _names(types: list[str]) -> tuple[str, ...]:
    return tuple(sorted(text[7:-1] for text in types if text.startswith("tensor(")))


def merged(kinds: set[Types]) -> set[Types]:
    """Return the same types in fewer entries: two that differ in one parameter are merged."""
    for one, other in combinations(sorted(kinds), 2):
        a, b = dict(one), dict(other)
        apart = [name for name in a if a[name] != b.get(name)]
        if a.keys() == b.keys() and len(apart) == 1:
            both = {**a, apart[0]: tuple(sorted({*a[apart[0]], *b[apart[0]]}))}
            return merged(kinds - {one, other} | {tuple(sorted(both.items()))})
    return kinds


def lines() -> Iterator[str]:
    for (name, first, last), kinds in sorted(kernels().items()):
        for kind in sorted(merged(kinds)):
            types = [f"{parameter}={','.join(held)}" for parameter, held in kind]
            yield " ".join([name, f"{first}-{'' if last == _OPEN else last}", *types])


def main() -> None:
    import onnxruntime

    version = onnxruntime.__version__
    print(f"# CUDA kernels of onnxruntime-gpu {version}: bench/kernels/cuda_kernels.py")
    print(*lines(), sep="\n")


if __name__ == "__main__":
    main()
