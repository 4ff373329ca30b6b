"""Rounding that ONNX Runtime's rewrites of a graph may add to a model with quantised values.

Around DequantizeLinear and QuantizeLinear it replaces operators on floats by operators on integers.
Results then differ by more than the rounding of floats, see docs/checking.md.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.runtime.session.wire import nodes_of
from tensoropt.runtime.support.rank_options import EXACT, FAST, MODEL

if TYPE_CHECKING:
    from onnxruntime import SessionOptions

__all__ = ["limit_rounding", "rounding_in_use", "use_rounding"]

# Products with weights of 4 or 8 bits in float32 (1): by default activations are rounded to 8 bits.
_FLOAT_PRODUCTS = ("session.qdq_matmulnbits_accuracy_level", "1")
# Processors without VNNI add pairs of products of 8 bits in 16 bits, which overflow. This makes
# weights unsigned, for which MLAS has kernels that do not. It has no effect on other processors.
_WIDE_SUMS = ("session.x64quantprecision", "1")
_NO_INTEGERS = ("session.disable_quant_qdq", "1")
_STEP_REMOVER = "DoubleQDQPairsRemover"
_DISABLED = "optimization.disable_specified_optimizers"

_chosen = [MODEL]


def use_rounding(rounding: str) -> None:
    """Limit the rounding in all sessions that are opened later."""
    _chosen[:] = [rounding]


def rounding_in_use() -> str:
    """Return the limit of :func:`use_rounding`."""
    return _chosen[0]


def limit_rounding(
    options: SessionOptions,
    graph: Path | str | bytes,
    rounding: str | None = None,
    *,
    disabled: Sequence[str] = (),
) -> None:
    """Set the ``options`` of a session of ``graph`` to at most this rounding, or that in use.

    ``disabled`` are optimizers of ONNX Runtime that the session does not need for other reasons:
    the option that disables optimizers can be set only once.
    """
    rounding, settings, disabled = rounding or rounding_in_use(), [], [*disabled]
    if rounding == EXACT:
        settings = [_FLOAT_PRODUCTS, _WIDE_SUMS, _NO_INTEGERS]
        disabled.append(_STEP_REMOVER)
    elif rounding != FAST:
        settings = [_FLOAT_PRODUCTS, *([_WIDE_SUMS] if _has_zero_points(graph) else [])]
    if disabled:
        settings.append((_DISABLED, ";".join(disabled)))
    for name, value in settings:
        options.add_session_config_entry(name, value)


def _has_zero_points(graph: Path | str | bytes) -> bool:
    """Return whether every DequantizeLinear has a zero point.

    ONNX Runtime 1.32 makes weights unsigned by a scalar zero point where they have none, and fails
    in the run if there is a scale per channel.
    """
    if isinstance(graph, bytes):
        return _all_have_zero_points(graph)
    with (
        Path(graph).open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        return _all_have_zero_points(data)


def _all_have_zero_points(model: bytes | mmap.mmap) -> bool:
    if model.find(b"DequantizeLinear") < 0:
        return True
    nodes = [node for node in nodes_of(model) if node.operator == "DequantizeLinear"]
    return all(len([name for name in node.reads if name]) > 2 for node in nodes)
