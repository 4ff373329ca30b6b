"""Chains of elementwise arithmetic as one kernel: numbers next to float64, and times."""

from __future__ import annotations

from gpu.failure import RunError
from gpu.fused_rank import CHAINS
from gpu.ranks import on_ranks
from gpu.setting import Part, Setting, table

__all__ = ["fused"]

_TOLERANCE = {"bfloat16": 1.6e-2, "float16": 2e-3, "float32": 2e-6}
"""Largest difference from float64, as a part of the largest number."""
_SMALL, _LARGE = (3, 129), (8192, 14336)


def fused(setting: Setting) -> Part:
    """Compare chains with float64, and time large ones fused and as nodes of ONNX Runtime."""
    is_timed = not (setting.host or setting.is_quick)
    shape = _LARGE if is_timed else _SMALL
    dtypes = ["float32"] if setting.provider == "cpu" else [*_TOLERANCE]
    rows, failures = list[list[object]](), list[str]()
    for name in CHAINS:
        for dtype in dtypes:
            setting.say(f"fused arithmetic: {name}, {dtype}")
            request = {"chain": name, "dtype": dtype, "shape": shape, "is_timed": is_timed}
            try:
                result = on_ranks("gpu.fused_rank:measure", 1, provider=setting.provider, **request)
            except RunError as error:
                failures.append(f"{name}, {dtype}: {error}")
                continue
            rows.append([name, dtype, *_cells(result, is_timed=is_timed)])
            if result["difference"] > _TOLERANCE[dtype]:
                failures.append(f"{name}, {dtype}: differs by {result['difference']:.2g}")
    head = ["chain", "type", "nodes", "fused", "largest difference", "ms", "fused, ms", "TB/s"]
    return Part(table(head, rows), failures)


def _cells(result: dict[str, float], *, is_timed: bool) -> list[object]:
    cells = [result["nodes"], result["fused_nodes"], f"{result['difference']:.2g}"]
    if not is_timed:
        return [*cells, "-", "-", "-"]
    rate = result["bytes"] / result["fused_s"] / 1e12
    return [
        *cells,
        f"{1e3 * result['plain_s']:.3f}",
        f"{1e3 * result['fused_s']:.3f}",
        f"{rate:.2f}",
    ]
