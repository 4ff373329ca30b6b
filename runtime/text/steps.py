"""Steps of a decoder on one rank: inputs of its session, and caches between runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tensoropt.runtime.device.provider import PlacedArray, Provider
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.pool.programs import Rank
from tensoropt.runtime.session.opening import open_session
from tensoropt.runtime.session.session import RankSession
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.text.decoder import IDS, MASK, Cache, Decoder, decoder_of
from tensoropt.runtime.text.feeding import Fed
from tensoropt.runtime.text.packing import COUNTS, can_count, pack_tokens
from tensoropt.runtime.text.scoring import SCORED, score_asked, score_in_float32

if TYPE_CHECKING:
    import onnx
    from mpi4py import MPI
    from onnxruntime import OrtValue

__all__ = ["SCORES_DTYPE", "Caches", "Steps", "open_steps"]

SCORES_DTYPE: np.dtype[np.generic] = np.dtype(np.float32)
"""Element type of scores, of any decoder."""


@dataclass
class Caches:
    """This rank's parts of the caches of some rows, by the name of the input.

    ``placed`` are arrays that are empty or updated in place, ``made`` the outputs of the last run.
    """

    rows: int
    placed: dict[str, PlacedArray] = field(default_factory=dict)
    made: dict[str, OrtValue] = field(default_factory=dict)


class Steps:
    """Runs a decoder's session on a rank; caches stay on the device between steps.

    ``mesh`` has the ranks of its stage, all ranks without stages. The rank has the ``caches`` of
    the stage, in the memory of its ``provider``, and the scores of the last token if it
    ``has_last``. A graph that ``packs`` reads the tokens of several texts in one row.
    """

    def __init__(
        self,
        session: RankSession,
        decoder: Decoder,
        provider: Provider,
        mesh: MPI.Comm,
        dims: Mapping[str, int],
    ) -> None:
        self.decoder, self._session, self.provider = decoder, session, provider
        self.mesh, self._dims = mesh, dims
        self.caches = [own for own in decoder.caches if own.past.name in session.inputs]
        self._pasts = {c.present.name: c.past.name for c in self.caches if not c.in_place}
        self._bound: Caches | None = None
        self._inputs = {name: decoder.inputs.get(name) for name in session.inputs}
        self._fed: dict[str, tuple[Array, PlacedArray]] = {}  # the last part, and where it is
        self._places: dict[tuple[int, int], tuple[slice, ...]] = {}
        self._shape: tuple[int, ...] = ()  # of the last run: rows, tokens, asked
        self._kept: PlacedArray | None = None  # the scores, if they alone are computed
        self._vocabulary, layout = int(decoder.scores.shape[2]), decoder.scores.layout
        self._asks, self.packs = SCORED in session.inputs, COUNTS in session.inputs
        # Of the prompt's tokens, the last part has the last token.
        self.has_last = decoder.scores.name in session.outputs and (
            mesh.rank in layout.sources() and layout.position(1, mesh.rank) == layout.pieces(1) - 1
        )

    def begin(self, rows: int, room: int) -> Caches:
        """Return empty caches; those that are updated in place get room for ``room`` tokens."""
        with self.provider.defer_waits():
            parts = {
                cache.past.name: self.zeros(cache, rows, room if cache.in_place else 0)
                for cache in self.caches
            }
        return Caches(rows, parts)

    def zeros(self, cache: Cache, rows: int, tokens: int) -> PlacedArray:
        """Return zeros for this rank's part of a cache."""
        local = cache.past.layout.local_shape(self.shape(cache, rows, tokens))
        return self.provider.zeros(local, dtype_of(cache.past.dtype))

    def shape(self, cache: Cache, rows: int, tokens: int) -> tuple[int, ...]:
        """Return the global shape of a cache."""
        return cache.shape(rows, tokens, self._dims)

    def run(self, fed: Fed, caches: Caches, asked: int = 1) -> None:
        """Take one step with whole inputs, which continues ``caches``.

        It scores the last ``asked`` tokens of each row, or as many tokens as the inputs select.
        """
        for name, array in fed.items():
            if name not in self._inputs:  # another stage reads it
                continue
            tensor = self._inputs[name]
            part = array if tensor is None else tensor.layout.part_of(array, self.mesh.rank)
            self._feed(name, part)
        shape = *fed[IDS].shape, asked
        if shape != self._shape:
            self._shape = shape
            self._ask(*shape)
        self._bind(caches)
        self._session.run()
        made = self._session.values(self._pasts) if self._pasts else {}
        for present, value in made.items():
            past = self._pasts[present]
            caches.made[past] = value
            caches.placed.pop(past, None)
            self._session.read_value(past, value)

    def place_of_scores(self, rows: int, asked: int) -> tuple[slice, slice]:
        """Return this rank's slices of rows and vocabulary of scores, without padding."""
        place = self._places.get((rows, asked))
        if place is None:
            layout = self.decoder.scores.layout
            shape = rows, asked * layout.pieces(1), self._vocabulary
            place = self._places[rows, asked] = layout.bounds(shape, self.mesh.rank)
        return place[0], place[2]

    def give_scores(self, into: Array) -> None:
        """Copy this rank's part of the scores that the last run was asked for, without padding."""
        if self._kept is not None and self._kept.shape == into.shape:
            self._kept.give(into)
            return
        if self._kept is not None:
            scores = self._kept.get()
        else:
            ((_, scores),) = self._session.results([self.decoder.scores.name])
        into[...] = scores[:, -self._shape[-1] :, : into.shape[2]]

    def part(self, cache: Cache, caches: Caches) -> PlacedArray:
        """Return this rank's part of a cache."""
        placed = caches.placed.get(cache.past.name)
        return self.provider.view(caches.made[cache.past.name]) if placed is None else placed

    def release(self) -> None:
        """Release the results of the last run, and its caches."""
        self._session.release()
        # On a device no output can be bound to an array without elements.
        self._bind(self.begin(self.decoder.rows(1), 1))

    def _bind(self, caches: Caches) -> None:
        """Bind the inputs and outputs of caches, unless the last run has bound them."""
        if caches is self._bound:
            return
        for cache in self.caches:
            name = cache.past.name
            if name in caches.made:
                self._session.read_value(name, caches.made[name])
                continue
            self._session.read(name, caches.placed[name])
            if cache.in_place:
                self._session.write(cache.present.name, caches.placed[name])
        self._bound = caches

    def _feed(self, name: str, part: Array) -> None:
        """Bind an input to a copy of ``part``; reuse the last array of the same shape and dtype.

        A part that nobody can write is copied once.
        """
        last, placed = self._fed.get(name, (None, None))
        if last is part and not part.flags.writeable:
            return
        if placed is None or (placed.shape, placed.dtype) != (part.shape, part.dtype):
            placed = self.provider.place(np.array(part, order="C"))
            self._session.read(name, placed)
        else:
            placed.put(part)
        self._fed[name] = part, placed

    def _ask(self, rows: int, tokens: int, asked: int) -> None:
        """Ask for the scores of the last of the tokens in each row, in a fixed array."""
        scores = self.decoder.scores
        if scores.name not in self._session.outputs:  # another stage has them
            return
        if not self._asks and tokens != asked:
            self._kept = None
            self._session.allocate(scores.name)
            return
        local = scores.layout.local_shape((rows, asked, self._vocabulary))
        if self._asks and not self.packs:
            places = np.arange(tokens - asked, tokens)
            self._feed(SCORED, np.broadcast_to(places[:, None], (local[0], asked, 1)))
        if self._kept is None or self._kept.shape != local:
            self._kept = self.provider.empty(local, SCORES_DTYPE)
            self._session.write(scores.name, self._kept)


def open_steps(rank: Rank, plan: Plan, other: Plan | None = None, *, packs: bool = False) -> Steps:
    """Return the steps of a plan, which pack tokens if ``packs``, and plan and ONNX Runtime can.

    ``other`` is a plan with common weights. A collective; raises `UserError` on all ranks.
    """
    dims = plan.settle_open(rank.job.dims)
    decoder = decoder_of(plan, dims)
    asks = decoder.length != 1 and decoder.scores.layout.pieces(1) == 1
    packs = packs and asks and decoder.can_pack and can_count(rank.provider)
    packs = packs and _all_pack(rank, plan, decoder)
    change = partial(_change, decoder=decoder, asks=asks, packs=packs)
    session, _, error = open_session(rank.job, plan, rank.comm, rank.provider, other, change)
    if session is None:
        raise UserError(error or "")
    mesh = rank.comm if plan.staged is None else rank.comm.Split(plan.stage(rank.comm.rank))
    return Steps(session, decoder, rank.provider, mesh, dims)


def _change(model: onnx.ModelProto, decoder: Decoder, *, asks: bool, packs: bool) -> bool:
    """Let a rank's graph score what is asked for and read packed tokens, as far as it can.

    Only the last stage has scores, in float32. Returns False if that changes nothing.
    """
    name = decoder.scores.name
    changes = [asks and score_asked(model, name), packs and _pack(model, decoder)]
    return any([*changes, score_in_float32(model, name)])


def _pack(model: onnx.ModelProto, decoder: Decoder) -> bool:
    return pack_tokens(model, MASK, [cache.past.name for cache in decoder.caches])


def _all_pack(rank: Rank, plan: Plan, decoder: Decoder) -> bool:
    """Return True if the graphs of all ranks can read packed tokens; a collective.

    Packed tokens need scores of only those that are asked for.
    """
    import onnx

    model = onnx.load(plan.inference_graph(rank.comm.rank), load_external_data=False)
    scored = any(value.name == decoder.scores.name for value in model.graph.output)
    can = (score_asked(model, decoder.scores.name) or not scored) and _pack(model, decoder)
    return all(rank.comm.allgather(can))
