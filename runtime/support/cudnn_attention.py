"""Forms of attention that the CUDA kernel takes, and the workspace that they need.

`tensoropt.Attention` and `tensoropt.AttentionGradient` run on GPUs through cuDNN's `sdpa` and
`sdpa_backward`. The rules are cuDNN's, version 9.28 with frontend 1.32. `make cudnn-check` makes
plans for real shapes, without a GPU, and compares both functions with them.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AttentionForm", "read_architectures", "refusal", "workspace_bytes"]

_FAMILIES = (8, 9, 10)
"""GPUs of 2020 to 2025: A100 is 80, H100 is 90, B200 is 100."""
_LARGEST_SIZE = 256
_LARGEST_GRADIENT_SIZE = {8: 128, 9: 256, 10: 128}
_LARGER_SIZES = {(True, 10, 192, 128), (True, 10, 256, 256)}
"""Sizes of key and value heads that some GPUs have a kernel of the gradient for."""
_SHORT = 128
"""Up to this number of keys, GPUs since B200 have an older kernel, unless scores are limited."""
_SLACK_BYTES = 256
"""Alignment within a workspace."""


@dataclass(frozen=True)
class AttentionForm:
    """The sizes and options of one attention, or of its gradient, on one rank.

    Query is ``[batch, heads, queries, size]``, key ``[batch, key_heads, keys, size]``, value
    ``[batch, key_heads, keys, value_size]``; ``dtype`` is their element type by its NumPy name.
    ``bias_sizes`` are the first three dimensions of the bias, ``None`` without one. ``offset`` says
    that the node is told the position of its first query, ``lengths`` that it is told the keys of
    each text, ``dropout`` that weights are dropped.
    """

    dtype: str
    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    size: int
    value_size: int
    causal: bool = False
    window: int = 0
    softcap: float = 0.0
    bias_sizes: tuple[int, int, int] | None = None
    trains_bias: bool = False
    lengths: bool = False
    offset: bool = False
    dropout: bool = False
    gradient: bool = False


def read_architectures(text: str) -> tuple[int, ...]:
    """Return the compute capabilities times ten of a list with commas; none of an empty text."""
    return tuple(map(int, text.split(","))) if text else ()


def refusal(form: AttentionForm, architecture: int) -> str | None:
    """Return why the kernel does not take a form; ``None`` if it does.

    ``architecture`` is the compute capability of the GPU times ten: 90 for H100. A step that trains
    needs both the form and its gradient.
    """
    return (
        _refusal_of_gpu(form.dtype, architecture)
        or _refusal_of_sizes(form, architecture // 10)
        or _refusal_of_masks(form)
        or _refusal_of_limit(form, architecture // 10)
        or _refusal_of_bias(form)
    )


def _refusal_of_gpu(dtype: str, architecture: int) -> str | None:
    if architecture // 10 not in _FAMILIES:
        return f"a GPU of compute capability {architecture / 10}"
    if dtype not in ("float16", "bfloat16"):
        return f"elements of type {dtype}"
    return None


def _refusal_of_sizes(form: AttentionForm, family: int) -> str | None:
    largest = _LARGEST_GRADIENT_SIZE[family] if form.gradient else _LARGEST_SIZE
    sizes = form.size, form.value_size
    has_kernel = all(size % 8 == 0 and size <= largest for size in sizes)
    if not has_kernel and (form.gradient, family, *sizes) not in _LARGER_SIZES:
        return f"heads of {sizes[0]} and {sizes[1]}, which are no multiples of 8 up to {largest}"
    if not form.key_heads or form.heads % form.key_heads:
        return f"{form.heads} query heads for {form.key_heads} key heads"
    if min(form.batch, form.heads, form.queries, form.keys) < 1:
        return "no elements"
    if form.gradient and form.queries == form.keys == 1:
        return "the gradient of one query and one key"
    return None


def _refusal_of_masks(form: AttentionForm) -> str | None:
    if form.dropout:
        return "dropout of weights"
    if form.window and not form.causal:
        return "a window without causality"
    if form.window and form.queries > form.keys:
        return "a window with more queries than keys"
    if form.offset and form.queries > form.keys:
        return "an offset with more queries than keys"
    if form.lengths and (form.offset or form.window):
        return "lengths of texts together with an offset or a window"
    return None


def _refusal_of_limit(form: AttentionForm, family: int) -> str | None:
    if not form.softcap:
        return None
    if form.lengths:
        return "a limit of scores by tanh together with lengths of texts"
    if form.gradient and family == 8:
        return "the gradient of a limit of scores by tanh"
    if form.trains_bias and family == 10:
        return "a limit of scores by tanh together with the gradient of a bias"
    return None


def _refusal_of_bias(form: AttentionForm) -> str | None:
    if form.bias_sizes is None:
        return None
    if form.trains_bias and form.bias_sizes[2] != form.queries:
        return "the gradient of a bias that is the same for all queries"
    if form.offset and form.causal:
        return "a bias together with an offset"
    return None


def workspace_bytes(form: AttentionForm, architecture: int) -> int:
    """Return the memory that the kernel takes for the time of a run, in bytes.

    The gradient adds up ``dq`` in float32, older kernels twice, and the sums of ``dy * y`` of each
    row. It computes the gradients of key and value for each query head first, if several share a
    key head. A gradient of the bias needs the gradients of all scores, in 16 bits, instead of
    ``dq``. The result is the workspace of cuDNN's plan, or up to 256 bytes more.
    """
    family = architecture // 10
    lengths = 8 * form.batch if form.lengths else 0
    if not form.gradient:
        return lengths + (_SLACK_BYTES if family == 9 and form.queries > 1 else 0)
    heads, keys = form.batch * form.heads, _read_keys(form)
    total = lengths + _SLACK_BYTES + 4 * heads * form.queries  # sums of dy * y
    if form.heads != form.key_heads:
        total += 2 * heads * keys * (form.size + form.value_size)
    if form.trains_bias:
        return total + 2 * heads * _rounded_up(form.queries, 64) * _rounded_up(keys, 64)
    if _is_separate(form, family):
        return total
    total += 4 * heads * form.queries * form.size
    if _is_older(form, family):
        total += 4 * heads * _rounded_up(form.queries, 8) * form.size
    return total


def _read_keys(form: AttentionForm) -> int:
    """Return the keys that any query reads, at most."""
    is_square = form.causal and not form.offset
    return min(form.keys, form.queries) if is_square else form.keys


def _is_older(form: AttentionForm, family: int) -> bool:
    """Return whether the gradient has a kernel of the first kind."""
    if family != 10:
        return family == 8
    is_short = not form.softcap and _read_keys(form) <= _SHORT
    return is_short or form.size == _LARGEST_SIZE


def _is_separate(form: AttentionForm, family: int) -> bool:
    """Return whether the gradient of ``q`` has a kernel of its own, which needs no sums."""
    is_plain = form.bias_sizes is None and form.heads == form.key_heads
    return family == 10 and form.size == _LARGEST_SIZE and is_plain


def _rounded_up(count: int, unit: int) -> int:
    return -(-count // unit) * unit
