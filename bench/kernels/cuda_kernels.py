"""Write down for which operators and types the installed onnxruntime-gpu has CUDA kernels.

    python bench/kernels/cuda_kernels.py > compiler/training/cuda_kernels.txt

The library of the CUDA provider must load, so its libraries must be there. A line is an operator,
the versions of it that a kernel is for, and the types that each type parameter of the operator may
have; kernels that differ in one parameter are one line. Versions before opset 20 are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

_OPSET = 20
_OPEN = 2**31 - 1
_DOMAINS = {"": "", "com.microsoft": "com.microsoft."}

Types = tuple[tuple[str, tuple[str, ...]], ...]
"""By type parameter, its types."""


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
    """Return the same with fewer entries: two that differ in one parameter become one."""
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

    print(
        f"# CUDA kernels of onnxruntime-gpu {onnxruntime.__version__}: bench/kernels/cuda_kernels.py"
    )
    print(*lines(), sep="\n")


if __name__ == "__main__":
    main()
