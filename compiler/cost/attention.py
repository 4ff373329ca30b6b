"""Attention operators as kernels: a query attends to the keys that it sees."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tensoropt.compiler.cost.kernel import Kernel
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.layout.sizes import mean_of
from tensoropt.compiler.sharding.rule.heads import heads_of
from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["attention_of", "seen_share"]

# Places of the keys of earlier tokens, and the attribute that makes the operator causal.
_PAST = {
    "Attention": 4,
    "com.microsoft.GroupQueryAttention": 3,
    "com.microsoft.MultiHeadAttention": 6,
}
_CAUSAL = {"Attention": "is_causal", "com.microsoft.MultiHeadAttention": "unidirectional"}


@dataclass(frozen=True)
class _Sizes:
    """Sizes of an attention operator, of one sequence.

    Rules count the work with ``keys`` of the cache and of the new tokens together. A query sees
    ``seen`` keys on average.
    """

    queries: int
    keys: int
    group: int
    head_size: int
    seen: float


def attention_of(info: OpInfo, strategy: Strategy, mesh: Mesh) -> Kernel | None:
    """Return the kernel of an attention operator on one rank, ``None`` for other operators."""
    if info.name not in _PAST:
        return None
    own, result = _sizes_of(info), info.results[0]
    if own is None or result is None:
        return None
    local = strategy.results[0].local_shape(result.sizes, mesh)
    heads = mean_of(local) / ((mean_of(local[-2:-1]) or 1) * own.head_size)
    pairs = max(heads / own.group, 1.0)
    sizes = (pairs, own.group, own.seen, float(own.head_size))
    return Kernel("decoding" if own.queries == 1 else "prefill", sizes, own.seen / own.keys)


def seen_share(info: OpInfo) -> dict[int, float]:
    """Return the share of each cache that an attention operator with a window reads."""
    window, past = _window(info), _PAST.get(info.name)
    if past is None or window is None:
        return {}
    own = _sizes_of(info)
    if own is None:
        return {}
    held = mean_of(info.sizes(past)[-2:-1]) if info.operand(past) is not None else 0
    share = min(1.0, (window + own.queries - 1) / max(held, 1))
    return {past: share, past + 1: share}


@lru_cache(maxsize=1 << 12)
def _sizes_of(info: OpInfo) -> _Sizes | None:
    """Return the sizes of an attention operator, ``None`` if a rank is unknown."""
    query, key = info.operand(0), info.operand(1)
    if query is None or info.results[0] is None:
        return None
    queries, new = _tokens(query), _tokens(query if key is None else key)
    past = info.operand(_PAST[info.name])
    held = 0 if past is None else mean_of(past.sizes[-2:-1])
    keys = new + held
    # A cache that is updated in place has room for the new tokens too.
    filled = max(new, held) if info.in_place else keys
    heads = heads_of(info)
    width = info.result_shape()[-1] or 1
    packed = len(info.result_shape()) == 3
    size = max(width // heads.queries, 1) if packed else width
    return _Sizes(queries, keys, heads.each, size, _count_seen(info, queries, filled))


def _tokens(tensor: TensorInfo) -> int:
    """Return the tokens of `b h s d`, `b s (h d)` or `b s h 3 d`."""
    row = 2 if tensor.rank == 4 else 1
    return mean_of(tensor.sizes[row : row + 1]) or 1


def _window(info: OpInfo) -> int | None:
    """Return the keys that a query sees at most, ``None`` without a limit."""
    names = {"com.microsoft.GroupQueryAttention": "local_window_size"}
    window = int(info.attribute(names.get(info.name, "left_window_size"), -1))
    return None if window < 0 else max(window, 1)


def _count_seen(info: OpInfo, queries: int, keys: int) -> float:
    """Return the mean number of keys that a query sees.

    The query at place ``i``, from 1, sees ``past + i`` keys if the operator is causal, at most its
    window.
    """
    name = _CAUSAL.get(info.name)
    if name is not None and not info.attribute(name, 0):
        return float(keys)
    past, window = max(keys - queries, 0), _window(info) or keys
    growing = min(max(window - past, 0), queries)
    total = growing * past + growing * (growing + 1) / 2 + (queries - growing) * window
    return max(total / queries, 1.0)
