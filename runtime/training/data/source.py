"""What training reads its samples by, whatever they come from.

All samples stand in one endless row, epoch after epoch. So a position in it, a number, says which
samples follow, whoever reads them, and any sequence of positions without gaps has every sample of
an epoch exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError

__all__ = ["Batch", "Facts", "Parts", "Samples", "Source", "hull", "joined"]

Batch = dict[str, Array]
"""Arrays by input, samples first."""

Parts = Mapping[str, tuple[slice, ...]]
"""Which part of a batch is wanted, by input: all slices have a start and a stop."""


class Source(Protocol):
    """Samples by their position in the endless row."""

    @property
    def facts(self) -> Facts:
        """What a job that is started again can be held to."""

    def read(self, position: int, parts: Parts) -> Batch:
        """Return ``parts`` of the batch that begins at sample ``position``.

        As far as the format allows, nothing else is read. Raises `UserError` where data are damaged
        or are no longer what they were.
        """

    def ids(self, position: int, count: int) -> Array:
        """Return the numbers, int64, of the ``count`` samples from ``position`` on, in order.

        The samples of an epoch have the numbers from 0 on, in the order of the source.
        """


class Samples(Protocol):
    """Samples by their number: what an order makes a source of.

    ``counts`` are those of its units, of which one is best read by and by. A seed mixes the
    samples of those units that begin within ``window`` samples, of one unit where it is None.
    """

    @property
    def facts(self) -> Facts: ...

    @property
    def counts(self) -> Sequence[int]: ...

    @property
    def window(self) -> int | None: ...

    def take(self, ids: Array, parts: Parts) -> Batch:
        """Return ``parts`` of the batch of the samples with these numbers, at least one.

        Raises `UserError` as `Source.read` does.
        """


@dataclass(frozen=True)
class Facts:
    """What kind of source it is, its samples (None: endless), and those of each of its files.

    ``groups`` is the number of row groups, where an order is drawn of these.
    """

    kind: str
    samples: int | None
    files: tuple[tuple[str, int], ...] = ()
    groups: int | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Facts:
        """Return the facts that `values` gave, also after a way through JSON."""
        files = tuple((str(name), int(samples)) for name, samples in values["files"])
        return cls(values["kind"], values["samples"], files, values.get("groups"))

    def values(self) -> dict[str, Any]:
        return asdict(self)

    def check(self, place: str, before: Facts) -> None:
        """Raise `UserError` unless ``place`` is what it was when the job began."""
        pairs = [(self._summary(), before._summary())]
        pairs += zip(self._listed(), before._listed(), strict=False)
        pairs += [(_count(self.samples), _count(before.samples))]
        pairs += [(f"{self.groups} row groups", f"{before.groups} row groups")]
        for now, then in pairs:
            if now != then:
                raise UserError(f"{place}: has {now}, expected {then} as when the job began")

    def _summary(self) -> str:
        return f"{len(self.files)} files of {self.kind}" if self.files else f"a {self.kind} source"

    def _listed(self) -> list[str]:
        return [f"{_count(samples)} in {name}" for name, samples in self.files]


def _count(samples: int | None) -> str:
    return "samples without end" if samples is None else f"{samples} samples"


def joined(pieces: Sequence[tuple[slice | Array, Array]]) -> Array:
    """Return the array whose rows are ``pieces``: where they go, and what."""
    if len(pieces) == 1:
        return pieces[0][1]
    arrays = [array for _, array in pieces]
    whole = np.empty((sum(map(len, arrays)), *arrays[0].shape[1:]), np.result_type(*arrays))
    for where, array in pieces:
        whole[where] = array
    return whole


def hull(parts: Parts) -> tuple[int, int]:
    """Return the first sample of a batch that any of ``parts`` has, and the one after the last."""
    rows: Sequence[slice] = [part[0] for part in parts.values()]
    return min(r.start for r in rows), max(r.stop for r in rows)
