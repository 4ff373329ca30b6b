"""Validation of a request against a model, before it is queued."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensoropt.runtime.plan.dims import bound, sizes_in_words
from tensoropt.runtime.support.dtypes import Array, name_of
from tensoropt.runtime.support.errors import did_you_mean
from tensoropt.serving.protocol.refusals import Reason, RefusedError
from tensoropt.serving.protocol.requests import Infer
from tensoropt.serving.protocol.tensors import DATATYPES, TensorSpec

__all__ = ["check_request"]


def check_request(
    request: Infer,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    *,
    has_samples: bool,
) -> None:
    """Raise `RefusedError` unless a model with these inputs and outputs can answer ``request``.

    ``has_samples``: dimension 0 is the number of samples, and may have any size.
    """
    _check_names("input", request.inputs, [spec.name for spec in inputs])
    dims: dict[str, int] = {}
    # Plain names first: they determine the sums and products of names.
    for spec in sorted(inputs, key=_has_arithmetic):
        if spec.name not in request.inputs:
            raise _invalid(f"input '{spec.name}' is missing")
        _check(spec, request.inputs[spec.name], dims, first=1 if has_samples else 0)
    names = [requested.name for requested in request.outputs or ()]
    _check_names("output", names, [spec.name for spec in outputs])


def _invalid(text: str) -> RefusedError:
    return RefusedError(Reason.INVALID, text)


def _check_names(what: str, given: Iterable[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise _invalid(f"{what} '{name}': the model has none{did_you_mean(name, known)}")


def _has_arithmetic(spec: TensorSpec) -> bool:
    return any(isinstance(size, str) and ("+" in size or "*" in size) for size in spec.shape)


def _check(spec: TensorSpec, array: Array, dims: dict[str, int], first: int) -> None:
    dtype = name_of(array.dtype)
    if dtype != spec.dtype:
        raise _invalid(
            f"input '{spec.name}': expected datatype {spec.datatype}, got: {DATATYPES[dtype]}"
        )
    if array.ndim != len(spec.shape):
        raise _misfit(spec, array)
    for wanted, found in list(zip(spec.shape, array.shape, strict=True))[first:]:
        if _size(wanted, found, dims) != found:
            raise _misfit(spec, array)
        sizes = spec.allowed.get(str(wanted))
        if sizes is not None and found not in sizes:
            raise _invalid(
                f"input '{spec.name}': expected dimension '{wanted}' {sizes_in_words(sizes)} as "
                f"the plan has it, got: {found}"
            )


def _size(wanted: int | str, found: int, dims: dict[str, int]) -> int | str:
    """Return the expected size; an unbound name is bound to ``found``."""
    if isinstance(wanted, int):
        return wanted
    size = bound(wanted, dims)
    return dims.setdefault(wanted, found) if isinstance(size, str) else size


def _misfit(spec: TensorSpec, array: Array) -> RefusedError:
    wanted = ", ".join(str(size) for size in spec.shape)
    return _invalid(f"input '{spec.name}': expected shape [{wanted}], got: {list(array.shape)}")
