"""Rows of measured tables: matrix products by size, and collectives by bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.calibrate.samples import CollectiveSample

__all__ = ["Floats", "ProductRows", "Tables"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ProductRows:
    """Products of one type: ``sizes`` has rows, columns and depth of each, ``time_s`` its time."""

    sizes: Floats
    time_s: Floats

    def __len__(self) -> int:
        return len(self.time_s)

    def pick(self, chosen: npt.NDArray[np.bool_]) -> ProductRows:
        """Return the chosen rows."""
        return ProductRows(self.sizes[chosen], self.time_s[chosen])


@dataclass(frozen=True)
class Tables:
    """Measurements of one kind of device, by NumPy type, and their ``source`` in words."""

    source: str
    products: Mapping[str, ProductRows] = field(default_factory=dict)
    collectives: Sequence[CollectiveSample] = ()
