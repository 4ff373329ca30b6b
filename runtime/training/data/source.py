"""The interface through which training reads samples from any kind of data.

All samples form one endless sequence, epoch by epoch. So a position in it, an integer, determines
the following samples for any reader, and a range of positions without gaps has each sample of an
epoch exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError

__all__ = ["Batch", "Facts", "Parts", "Samples", "Source", "hull", "join_rows"]

Batch = dict[str, Array]
"""Arrays by input, samples first."""

Parts = Mapping[str, tuple[slice, ...]]
"""The requested slices of a batch, by input: all slices have a start and a stop."""


class Source(Protocol):
    """Samples by their position in the endless sequence."""

    @property
    def facts(self) -> Facts:
        """Facts that must not change when a job is restarted."""

    def read(self, position: int, parts: Parts) -> Batch:
        """Return ``parts`` of the batch that begins at sample ``position``.

        Reads no other data, as far as the format allows. Raises `UserError` if data are damaged or
        have changed.
        """

    def ids(self, position: int, count: int) -> Array:
        """Return the numbers, int64, of ``count`` samples from ``position`` on, in order.

        The samples of an epoch are numbered from 0, in the order of the source.
        """


class Samples(Protocol):
    """Samples by their number; an order makes them a source.

    ``counts`` are the sizes of units that are best read sequentially, one at a time. A shuffled
    order mixes the samples of units that begin within the same ``window`` samples (None: the
    samples of one unit).
    """

    @property
    def facts(self) -> Facts: ...

    @property
    def counts(self) -> Sequence[int]: ...

    @property
    def window(self) -> int | None: ...

    def take(self, ids: Array, parts: Parts) -> Batch:
        """Return ``parts`` of the batch with the samples ``ids``, at least one.

        Raises `UserError` as `Source.read` does.
        """


@dataclass(frozen=True)
class Facts:
    """The kind of a source, its number of samples (None: endless), and the number in each file.

    ``groups`` is the number of row groups, if the order is drawn over row groups.
    """

    kind: str
    samples: int | None
    files: tuple[tuple[str, int], ...] = ()
    groups: int | None = None

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Facts:
        """Return the facts from the result of `values`, directly or through JSON."""
        files = tuple((str(name), int(samples)) for name, samples in values["files"])
        return cls(values["kind"], values["samples"], files, values.get("groups"))

    def values(self) -> dict[str, Any]:
        return asdict(self)

    def check(self, place: str, before: Facts) -> None:
        """Raise `UserError` if the source ``place`` has changed since the job began."""
        pairs = [(self._summary(), before._summary())]
        pairs += zip(self._file_lines(), before._file_lines(), strict=False)
        pairs += [(_count(self.samples), _count(before.samples))]
        pairs += [(f"{self.groups} row groups", f"{before.groups} row groups")]
        for now, then in pairs:
            if now != then:
                raise UserError(f"{place}: has {now}, expected {then} as when the job began")

    def _summary(self) -> str:
        return f"{len(self.files)} files of {self.kind}" if self.files else f"a {self.kind} source"

    def _file_lines(self) -> list[str]:
        return [f"{_count(samples)} in {name}" for name, samples in self.files]


def _count(samples: int | None) -> str:
    return "samples without end" if samples is None else f"{samples} samples"


def join_rows(pieces: Sequence[tuple[slice | Array, Array]]) -> Array:
    """Return the array assembled from ``pieces``, pairs of the destination rows and an array."""
    if len(pieces) == 1:
        return pieces[0][1]
    arrays = [array for _, array in pieces]
    whole = np.empty((sum(map(len, arrays)), *arrays[0].shape[1:]), np.result_type(*arrays))
    for where, array in pieces:
        whole[where] = array
    return whole


def hull(parts: Parts) -> tuple[int, int]:
    """Return the range of a batch's samples over all ``parts``: the first, and the last plus 1."""
    rows: Sequence[slice] = [part[0] for part in parts.values()]
    return min(r.start for r in rows), max(r.stop for r in rows)
