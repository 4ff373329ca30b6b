"""Tables of the AIConfigurator package (ai-dynamo/aiconfigurator, Apache-2.0).

A folder of its ``systems/data`` belongs to one GPU and has ``FAMILY/FRAMEWORK/VERSION`` and
``comm/nccl/VERSION`` with files in Parquet. Kernels ran in TensorRT-LLM's PyTorch flow: products in
cuBLAS as in ONNX Runtime, attention and mixtures of experts in kernels of its own. Collectives ran
in NCCL, with 16 bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tensoropt.compiler.calibrate.samples import CollectiveSample
from tensoropt.compiler.calibrate.tables.rows import Floats, KernelRows, Tables, product_rows
from tensoropt.compiler.support.errors import UserError

if TYPE_CHECKING:
    from pandas import DataFrame

Kernels = dict[tuple[str, str], KernelRows]

__all__ = ["is_aiconfigurator", "read_aiconfigurator"]

_TYPE = "bfloat16"
_TYPES = {"bfloat16": "bfloat16", "fp8": "float8_e4m3fn"}
_KINDS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
_COLUMNS = ("nccl_dtype", "op_name", "num_gpus", "message_size", "latency")
_ITEM_BYTES = 2


def is_aiconfigurator(folder: Path) -> bool:
    """Return whether a folder has the tables of a GPU."""
    return (folder / "gemm").is_dir() or (folder / "comm").is_dir()


def read_aiconfigurator(folder: Path) -> Tables:
    """Return the tables of a GPU's folder, of the newest version of each library with rows.

    Raises :class:`UserError` if the folder has none, or if Parquet cannot be read.
    """
    kernels: dict[tuple[str, str], KernelRows] = {}
    libraries = []
    for path, read in _READERS.items():
        for found in _newest_first(folder / path.parent, path.name):
            rows = read(_read(found))
            if rows:
                libraries.append(f"TensorRT-LLM {found.parent.name}")
                kernels |= rows
                break
    samples: list[CollectiveSample] = []
    for nccl in _newest_first(folder / "comm" / "nccl", "nccl_perf.parquet")[:1]:
        frame = _read(nccl)
        libraries.append(f"NCCL {nccl.parent.name}")
        columns = (frame[name] for name in _COLUMNS)
        samples = [own for row in zip(*columns, strict=True) for own in _collective(*row)]
    if not kernels and not samples:
        raise UserError(
            f"--from-tables {folder}: expected gemm/trtllm/VERSION/gemm_perf.parquet or "
            "comm/nccl/VERSION/nccl_perf.parquet, got: neither"
        )
    names = ", ".join(dict.fromkeys(libraries))
    return Tables(f"AIConfigurator's tables of {folder.name}: {names}", kernels, samples)


def _products(frame: DataFrame) -> Kernels:
    found = {}
    for theirs, ours in _TYPES.items():
        own = frame[frame.gemm_dtype == theirs]
        if len(own):
            sizes = own[["m", "n", "k"]].to_numpy(np.float64)
            found["products", ours] = product_rows(sizes, ours, _time_s(own))
    return found


def _prefill(frame: DataFrame) -> Kernels:
    """Return causal attention of whole prompts: a query sees half of the keys on average."""
    return _attention("prefill", frame, "isl", lambda tokens: (tokens, (tokens + 1) / 2))


def _decoding(frame: DataFrame) -> Kernels:
    """Return attention of one query per sequence; ``step`` counts the earlier keys."""
    return _attention("decoding", frame, "step", lambda past: (np.ones_like(past), past + 1))


def _attention(
    family: str, frame: DataFrame, column: str, counts: Callable[[Floats], tuple[Floats, Floats]]
) -> Kernels:
    """Return attention in 16 bits without a window, by the queries and the keys that they see."""
    is_ours = (frame.attn_dtype == _TYPE) & (frame.kv_cache_dtype == _TYPE)
    if "window_size" in frame:
        is_ours &= frame.window_size == 0
    own = frame[is_ours]
    if not len(own):
        return {}
    names = ("batch_size", "num_heads", "num_key_value_heads", "head_dim", column)
    batch, heads, key_heads, size, tokens = (own[name].to_numpy(np.float64) for name in names)
    key_heads = np.where(key_heads > 0, key_heads, heads)
    queries, seen = counts(tokens)
    sizes = np.stack([batch * key_heads, heads / key_heads, seen, size], axis=1)
    flops = 4.0 * batch * heads * queries * seen * size
    keys = tokens if family == "prefill" else seen
    moved = 2.0 * _ITEM_BYTES * batch * size * (key_heads * keys + heads * queries)
    return {(family, _TYPE): KernelRows(sizes, flops, moved, _time_s(own))}


def _experts(frame: DataFrame) -> Kernels:
    """Return mixtures in 16 bits with three layers, over which tokens are spread evenly."""
    is_ours = (frame.moe_dtype == _TYPE) & ~frame.kernel_source.str.contains("nongated")
    even = frame[is_ours & (frame.distribution == "balanced")]
    # Older tables have no even distribution; the least uneven one follows.
    own = even if len(even) else frame[is_ours & (frame.distribution == "power_law_1.01")]
    if not len(own):
        return {}
    names = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size")
    tokens, width, features, chosen, experts, pieces = (
        own[name].to_numpy(np.float64) for name in names
    )
    features, mine = features / pieces, experts / own.moe_ep_size.to_numpy(np.float64)
    share = chosen / experts
    sizes = np.stack([tokens * share, width, features, mine], axis=1)
    weights = 3.0 * width * features
    reached = mine * (1.0 - (1.0 - share) ** tokens)
    flops = 2.0 * tokens * share * mine * weights
    moved = _ITEM_BYTES * (reached * weights + 2.0 * tokens * width)
    return {("experts", _TYPE): KernelRows(sizes, flops, moved, _time_s(own))}


_READERS: dict[Path, Callable[[DataFrame], Kernels]] = {
    Path("gemm/trtllm/gemm_perf.parquet"): _products,
    Path("attention/trtllm/context_attention_perf.parquet"): _prefill,
    Path("attention/trtllm/generation_attention_perf.parquet"): _decoding,
    Path("moe/trtllm/moe_perf.parquet"): _experts,
}


def _time_s(frame: DataFrame) -> Floats:
    found: Floats = frame.latency.to_numpy(np.float64) * 1e-3
    return found


def _collective(
    dtype: str, name: str, ranks: int, elements: int, time_ms: float
) -> list[CollectiveSample]:
    """Return the sample of a row in 16 bits; a gather counts the elements of its whole output."""
    if dtype != "half" or name not in _KINDS:
        return []
    kind = _KINDS[name]
    size = int(elements) * _ITEM_BYTES // (int(ranks) if kind == "all_gather" else 1)
    return [CollectiveSample(kind, int(ranks), size, float(time_ms) * 1e-3)] if size else []


def _newest_first(folder: Path, name: str) -> list[Path]:
    found = folder.glob(f"*/{name}")
    return sorted(found, key=lambda path: _version(path.parent.name), reverse=True)


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def _read(path: Path) -> DataFrame:
    try:
        import pandas

        return pandas.read_parquet(path)
    except ImportError as error:
        raise UserError(
            f"--from-tables {path}: expected pandas and pyarrow, which read it "
            f"(pip install tensoropt[arrow,pandas]), got: {error}"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"--from-tables {path}: expected a Parquet file, got: {error}") from None
