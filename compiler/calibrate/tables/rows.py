"""Rows of measured tables: kernels by their sizes, and collectives by bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import ml_dtypes  # noqa: F401  (registers bfloat16 and float8 with numpy)
import numpy as np
import numpy.typing as npt

from tensoropt.compiler.calibrate.samples import CollectiveSample
from tensoropt.compiler.cost.device import Device

__all__ = ["Floats", "KernelRows", "Tables", "product_rows"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class KernelRows:
    """Kernels of one family and type.

    ``sizes`` has a column per size of the family. ``flops`` and ``bytes`` are the work of each row,
    ``time_s`` is its measured time.
    """

    sizes: Floats
    flops: Floats
    bytes: Floats
    time_s: Floats

    def __len__(self) -> int:
        return len(self.time_s)

    def pick(self, chosen: npt.NDArray[np.bool_]) -> KernelRows:
        """Return the chosen rows."""
        return KernelRows(
            self.sizes[chosen], self.flops[chosen], self.bytes[chosen], self.time_s[chosen]
        )

    def roofline_s(self, dtype: str, device: Device) -> Floats:
        """Return the roofline of each row, launch included, at the peak of its type."""
        flops_s = self.flops / device.peak_flop_per_s(dtype)
        memory_s = self.bytes / device.memory_bandwidth_bytes_per_s
        found: Floats = device.launch_overhead_s + np.maximum(flops_s, memory_s)
        return found


def product_rows(sizes: Floats, dtype: str, time_s: Floats) -> KernelRows:
    """Return products by their rows, columns and depth, with their work."""
    rows, columns, depth = sizes.T
    item = np.dtype(dtype).itemsize
    # A product of 8 bits returns 16.
    moved = item * (rows * depth + depth * columns) + max(item, 2) * rows * columns
    return KernelRows(sizes, 2.0 * rows * columns * depth, moved, time_s)


@dataclass(frozen=True)
class Tables:
    """Measurements of one kind of device, and their ``source`` in words.

    ``kernels`` are by (family, NumPy type).
    """

    source: str
    kernels: Mapping[tuple[str, str], KernelRows] = field(default_factory=dict)
    collectives: Sequence[CollectiveSample] = ()
