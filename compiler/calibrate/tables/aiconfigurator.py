"""Tables of the AIConfigurator package (ai-dynamo/aiconfigurator, Apache-2.0).

A folder of its ``systems/data`` belongs to one GPU and has ``gemm/FRAMEWORK/VERSION`` and
``comm/nccl/VERSION`` with files in Parquet. Products ran in TensorRT-LLM's PyTorch flow, which
calls cuBLAS as ONNX Runtime does; collectives in NCCL, with 16 bits.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tensoropt.compiler.calibrate.samples import CollectiveSample
from tensoropt.compiler.calibrate.tables.rows import ProductRows, Tables
from tensoropt.compiler.support.errors import UserError

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["is_aiconfigurator", "read_aiconfigurator"]

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
    """Return the tables of a GPU's folder, of the newest version of each library.

    Raises :class:`UserError` if the folder has none, or if Parquet cannot be read.
    """
    products, libraries = {}, []
    gemm = _newest(folder / "gemm" / "trtllm", "gemm_perf.parquet")
    if gemm is not None:
        frame = _read(gemm)
        libraries.append(f"TensorRT-LLM {gemm.parent.name}")
        for theirs, ours in _TYPES.items():
            own = frame[frame.gemm_dtype == theirs]
            if len(own):
                sizes = own[["m", "n", "k"]].to_numpy(np.float64)
                products[ours] = ProductRows(sizes, own.latency.to_numpy(np.float64) * 1e-3)
    nccl = _newest(folder / "comm" / "nccl", "nccl_perf.parquet")
    samples = []
    if nccl is not None:
        frame = _read(nccl)
        libraries.append(f"NCCL {nccl.parent.name}")
        columns = (frame[name] for name in _COLUMNS)
        samples = [own for row in zip(*columns, strict=True) for own in _collective(*row)]
    if not products and not samples:
        raise UserError(
            f"--from-tables {folder}: expected gemm/trtllm/VERSION/gemm_perf.parquet or "
            "comm/nccl/VERSION/nccl_perf.parquet, got: neither"
        )
    source = f"AIConfigurator's tables of {folder.name}: {', '.join(libraries)}"
    return Tables(source, products, samples)


def _collective(
    dtype: str, name: str, ranks: int, elements: int, time_ms: float
) -> list[CollectiveSample]:
    """Return the sample of a row in 16 bits; a gather counts the elements of its whole output."""
    if dtype != "half" or name not in _KINDS:
        return []
    kind = _KINDS[name]
    size = int(elements) * _ITEM_BYTES // (int(ranks) if kind == "all_gather" else 1)
    return [CollectiveSample(kind, int(ranks), size, float(time_ms) * 1e-3)] if size else []


def _newest(folder: Path, name: str) -> Path | None:
    found = list(folder.glob(f"*/{name}"))
    return max(found, key=lambda path: _version(path.parent.name), default=None)


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
