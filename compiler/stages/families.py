"""Families of schedules, generated for the costs of the chunks.

A stage that is free runs a backward pass if one is ready, else a forward pass if its limits allow
it, else the gradients of weights that backward passes left out. If such gradients can fill bubbles
later, forward passes lead: they run before the backward passes of up to a micro-batch per stage
before theirs, so that work for all stages arrives early. Families differ in the places of their
chunks, in these limits, and in whether gradients of weights are tasks of their own:

- GPipe (Huang et al., 2019) runs all forward passes first.
- 1F1B (PipeDream-Flush, Narayanan et al., 2021) keeps one micro-batch for each stage that follows,
  and its own. Interleaved (Megatron-LM, 2021) does so with several chunks per stage.
- ZB-H1 and ZB-H2 (Qi et al., 2023) fill bubbles with gradients of weights, in the memory of 1F1B or
  in twice the memory.
- ZB-V, V-Half and V-Min (Qi et al., 2024) place the second half of the chunks in the opposite
  order. They take the memory of 1F1B, half, and a third of it; the latter two repeat a pattern, as
  V-Two-Thirds does in between.
  ZB-V2 is to ZB-V as ZB-H2 to ZB-H1: with twice the memory, unequal passes leave smaller bubbles.

ZB-H2 and ZB-V2 also fill the memory of stages with micro-batches.

If parallel branches have stages of their own, limits are those of a chain that has the length of
the longest path. A stage has the limits of the place with the same distance to the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tensoropt.compiler.stages.orders import Orders
from tensoropt.compiler.stages.patterns import Moments, repeat
from tensoropt.runtime.stages.execution import ChunkCost
from tensoropt.runtime.stages.schedule import Reads, chain

__all__ = ["BY_STAGES", "FAMILIES", "STREAM", "Evenness", "Family", "fitting", "generate"]

Evenness = Literal["chunks", "ends", "stages", "ends of stages"]
"""The times that a cut makes about equal: of the chunks, or the ends of chunks that each are a
stage. A stage begins after the forward pass of the chunks before. The backward pass through these
follows after its last backward pass, and gradients of weights fill that time. The last two are for
stages of two chunks. They take the first chunks from a cut by "chunks" or by "ends",
and choose the second chunks so that stages end together."""

BY_STAGES: tuple[Evenness, ...] = ("stages", "ends of stages")


Limit = Callable[[int, int, int], int]
"""A number of chunks, by stage, stages and chunks per stage."""


def _unlimited(_stage: int, _stages: int, _chunks: int) -> int:
    return 1 << 60


def _none(_stage: int, _stages: int, _chunks: int) -> int:
    return 0


def _one_per_stage(_stage: int, stages: int, _chunks: int) -> int:
    return stages


def _line(stages: int, chunks: int) -> tuple[int, ...]:
    """Place the chunks round the stages, each turn in the same direction."""
    return tuple(range(stages)) * chunks


def _zigzag(stages: int, chunks: int) -> tuple[int, ...]:
    """Place the chunks along the stages and back again."""
    turns = (range(stages)[:: -1 if turn % 2 else 1] for turn in range(chunks))
    return tuple(stage for turn in turns for stage in turn)


@dataclass(frozen=True)
class Family:
    """A family of schedules.

    ``passes`` limits the micro-batches that have passed a chunk forward but not backward, summed
    over the chunks of a stage; ``kept`` limits those with activations. A forward pass
    may run before a backward pass of less than ``lead`` micro-batches before it. ``in_turns``
    lets passes run in groups of one micro-batch per stage, chunk by chunk. ``between`` makes the
    schedule repeat a pattern. If a schedule of a family that ``fills`` does not fit, there is one
    for the memory of the stages. There is a schedule for each kind of cut in ``evenness``.
    """

    passes: Limit = _unlimited
    kept: Limit = _unlimited
    chunks: int = 1
    place: Callable[[int, int], tuple[int, ...]] = _line
    splits_weights: bool = False
    lead: Limit = _none
    in_turns: bool = False
    between: Moments | None = None
    fills: bool = False
    evenness: Sequence[Evenness] = ("chunks",)

    @property
    def takes_branches(self) -> bool:
        """True if parallel branches of a program can be chunks side by side.

        A pattern and passes in turns are for chunks that follow each other.
        """
        return self.between is None and not self.in_turns

    def with_chunks(self, chunks: int) -> Family:
        """Return the family with another number of chunks per stage."""
        return replace(self, chunks=chunks)


FAMILIES: dict[str, Family] = {
    "gpipe": Family(lead=_unlimited),
    "1f1b": Family(passes=lambda stage, stages, _: stages - stage),
    "interleaved": Family(
        passes=lambda stage, stages, chunks: 2 * (stages - stage - 1) + (chunks - 1) * stages + 1,
        chunks=2,
        lead=_unlimited,
        in_turns=True,
        evenness=("stages",),
    ),
    "zb-h1": Family(
        passes=lambda stage, stages, _: stages - stage,
        kept=lambda _, stages, __: stages,
        splits_weights=True,
        lead=_one_per_stage,
        evenness=("chunks", "ends"),
    ),
    "zb-h2": Family(
        passes=lambda stage, stages, _: 2 * (stages - stage) - 1,
        kept=lambda _, stages, __: 2 * stages - 1,
        splits_weights=True,
        lead=_one_per_stage,
        fills=True,
        evenness=("chunks", "ends"),
    ),
    "zb-v": Family(
        kept=lambda _, stages, __: 2 * stages,
        chunks=2,
        place=_zigzag,
        splits_weights=True,
        lead=_one_per_stage,
        evenness=("chunks", "ends"),
    ),
    "zb-v2": Family(
        kept=lambda _, stages, __: 4 * stages,
        chunks=2,
        place=_zigzag,
        splits_weights=True,
        lead=_one_per_stage,
        fills=True,
        evenness=("chunks", "ends of stages", "ends"),
    ),
    "v-two-thirds": Family(chunks=2, place=_zigzag, splits_weights=True, between=(1, 3, 1, 3)),
    "v-half": Family(chunks=2, place=_zigzag, splits_weights=True, between=(1, 2, 1, 2)),
    "v-min": Family(chunks=2, place=_zigzag, splits_weights=True, between=(1, 1, 1, 1)),
}
"""The families by name."""

STREAM = "stream"
"""The schedule of inference: each input passes through the stages, in order."""


def fitting(families: Mapping[str, Family], stages: int, most_chunks: int) -> list[str]:
    """Return the families that have at most ``most_chunks`` on all stages together."""
    return [name for name, own in families.items() if stages * own.chunks <= most_chunks]


def generate(
    family: Family,
    stages: int,
    micro_batches: int,
    costs: Sequence[ChunkCost] | None = None,
    room_bytes: Sequence[float] | None = None,
    flow: tuple[tuple[int, ...], Reads] | None = None,
) -> Orders:
    """Return the orders of a family for chunks with ``costs``, of one second each by default.

    There are ``family.chunks`` chunks per stage, a chain, unless ``flow`` has the stage of each
    chunk and the chunks that it reads from. With ``room_bytes`` a stage keeps activations of that
    size, instead of ``family.kept`` chunks. Each stage has room for one micro-batch. ``O(n log n)``
    in the tasks.
    """
    places = family.place(stages, family.chunks)
    places, reads = flow or (places, chain(len(places)))
    if family.between is not None:
        return Orders.read(repeat(places, micro_batches, family.between))
    own = costs or [ChunkCost()] * len(places)
    by_stage = [(stage, stages, family.chunks) for stage in range(stages)]
    counts = _counts(places, own, family.chunks)
    if family.chunks == 1:
        by_stage = _depths(places, reads)
    if room_bytes is None:
        room = [float(family.kept(*each)) for each in by_stage]
        sizes = [(float(count), float(count)) for count in counts]
    else:
        room = [*room_bytes]
        sizes = [(float(max(c.kept_bytes, c.weights_bytes)), float(c.weights_bytes)) for c in own]
    passes, lead = ([limit(*each) for each in by_stage] for limit in (family.passes, family.lead))
    early, late = zip(*sizes, strict=True)
    return Orders.generate(
        places,
        micro_batches,
        reads,
        own,
        (passes, lead, room),
        (counts, early, late),
        splits_weights=family.splits_weights,
        in_turns=family.in_turns,
    )


def _depths(places: Sequence[int], reads: Reads) -> list[tuple[int, int, int]]:
    """Return the place of each stage in a chain, the length of the chain, and 1 chunk per stage.

    The chain has the length of the longest path, and the place of a stage is as far from its end as
    the stage is from the end of its longest path.
    """
    follow = [1] * len(places)
    for chunk in reversed(range(len(places))):
        for source in reads[chunk]:
            stages = follow[chunk] + (places[source] != places[chunk])
            follow[source] = max(follow[source], stages)
    most = [0] * (max(places) + 1)
    for place, own in zip(places, follow, strict=True):
        most[place] = max(most[place], own)
    return [(max(most) - own, max(most), 1) for own in most]


def _counts(places: Sequence[int], costs: Sequence[ChunkCost], chunks: int) -> list[int]:
    """Return 1 for each chunk that limits count, 0 for others; ``chunks`` of each stage count.

    A stage has more of them where branches fork or join. Then the longest ones count.
    """
    times_s = [own.forward_s + own.backward_s + own.weights_s for own in costs]
    found, left = [0] * len(places), Counter({place: chunks for place in places})
    for chunk in sorted(range(len(places)), key=lambda chunk: -times_s[chunk]):
        if left[places[chunk]]:
            left[places[chunk]] -= 1
            found[chunk] = 1
    return found
