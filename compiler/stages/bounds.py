"""Lower bounds on the time of a step in stages, over all of its cuts and schedules.

A pipeline of ``p`` stages and ``m`` micro-batches takes ``D`` seconds. Stage ``s`` begins when the
first micro-batch has passed all chunks before the first one of ``s``, which takes at least their
forward time ``F_s``. Then it has its own work for ``m`` micro-batches, and once per step ``o_s``:

    D >= F_s + m t_s + o_s,  and so  p D >= S + sum of F_s over all stages,

as the work of all stages is ``S``, the time of the step on one stage. ``F_s`` depends on the cut,
and has ``s`` transfers between chunks. Operations count with their least times over all strategies.
All that follows the beginning of stage ``s`` takes at most ``b_s`` for a micro-batch:

- With one chunk per stage it is the work of ``p - s`` stages, each of at most ``D / m``.
- With several, cuts are limited: stage ``s`` begins at most ``e`` chunks before a cut that is even
  by the least times. So of ``n`` chunks all but ``s - e`` follow, and ``b_s`` is that part of all.

At most ``b_s`` seconds follow only from some place on. The forward time until the first of these
places bounds ``F_s``. As ``D`` grows, ``b_s`` may grow and ``F_s`` fall. So the inequality fails
below some ``D``, which is the bound.

If gradients of weights are part of backward passes, the last task of stage ``s`` is a backward pass
through its first chunk, which passes through the chunks before follow. So ``F_s`` is their time in
all, forward and backward, if ``S`` leaves out the work that is done once per step.

Parallel branches pass at the same time. ``F_s`` is then the time of the longest path to stage ``s``
or to a later one, without transfers.

In a V a micro-batch comes to a stage a second time. For stage ``s`` that takes at least ``G_s``;
until then it can only run forward passes through its first chunk. If each takes ``f_s``,
``D >= G_s + m (t_s - f_s) + o_s``, which is more than above if few micro-batches pass many stages.
With that for the first ``a`` stages,

    p D >= S + sum of G_s for s < a + sum of F_s for the others - m sum of f_s for s < a,

where the last sum is the forward time before stage ``a``, which begins at most ``l`` chunks after
an even cut. ``S`` counts operations with their least times too: they may not be less in ``f_s``.

In inference, a stream of inputs has a result every ``D`` seconds. Each stage needs its part of the
work for every input, so ``D`` is at least the ``p``-th part of the work ``S``, and at least the
slowest part of the best cut by the least times of operations. Transfers can only add to ``D``.

On unlike devices group ``g`` has ``n_g`` stages, and a place takes at least ``t_g`` seconds there.
The places of a group take at most ``n_g D``. So for any weights ``w_g`` of the groups the sum of
``w_g t_g`` over the places of all groups is at most ``D`` times the sum of ``n_g w_g``. With ``c``
chunks per stage a group has at most ``c`` ranges of places, and the least such sum bounds ``D``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.program.costs import NodeCosts, tensor_bytes
from tensoropt.compiler.program.graph import Graph, Op
from tensoropt.compiler.program.options import op_options
from tensoropt.compiler.stages.cuts import least_slowest_s
from tensoropt.compiler.stages.devices import stage_link
from tensoropt.compiler.stages.order import Floats, order_of
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = [
    "UNEVEN",
    "least_interval_s",
    "least_place_s",
    "least_sent_s",
    "least_shared_s",
    "least_time_s",
    "least_v_s",
    "uneven_chunks",
]

UNEVEN = 0.5
"""Chunks by which a cut into several chunks per stage may differ from an even cut."""

_ONE = Mesh((1,))
_HALVINGS = 60
_TINY, _TINY_S = 1e-9, 1e-30
_FURTHEST, _WEIGHTS = 2.0, 41
"""The furthest factor and the number of weights that are tried for a group."""


def least_time_s(
    step_s: float,
    place_s: tuple[Sequence[float] | Floats, Sequence[float] | Floats],
    stages: int,
    micro_batches: int,
    chunks: int = 1,
    early: float = UNEVEN,
    sent_s: float = 0.0,
    begin_s: Floats | None = None,
) -> float:
    """Return a lower bound on the time of a step with ``chunks`` per stage.

    With several, the cut begins a stage at most ``early`` chunks before an even one. ``step_s`` is
    a lower bound on the time of the step on one stage, ``place_s`` are lower bounds on the time
    of each place for a micro-batch: forward, and in all. Each transfer from a chunk to the next
    takes at least ``sent_s``. With branches, ``begin_s`` has lower bounds on the time before each
    place and before the end; else it is the time of all places before. ``O(stages log places)``.
    """
    forward_s, all_s = (np.concatenate([[0.0], np.cumsum(own)]) for own in place_s)
    if begin_s is not None:
        forward_s = np.minimum.accumulate(begin_s[::-1])[::-1]
    follow_s = all_s[-1] - all_s  # after the first places; falls from place to place
    stage = np.arange(stages)
    if chunks == 1:
        share = (stages - stage) / stages
    else:
        count = stages * chunks
        share = np.minimum((count - stage + early) / count, 1.0)

    transfers_s = sent_s * float(stage.sum())

    def is_possible(time_s: float) -> bool:
        whole_s = stages * time_s / micro_batches if chunks == 1 else all_s[-1]
        first = np.searchsorted(-follow_s, -share * whole_s * (1 + _TINY))
        fill_s = forward_s[np.minimum(first, len(forward_s) - 1)].sum()
        return bool(stages * time_s >= step_s + fill_s + transfers_s)

    low_s, high_s = step_s / stages, step_s / stages + float(forward_s[-1]) + transfers_s
    for _ in range(_HALVINGS):
        middle_s = (low_s + high_s) / 2
        if is_possible(middle_s):
            high_s = middle_s
        else:
            low_s = middle_s
    return low_s


def least_v_s(
    work_s: float,
    place_s: tuple[Sequence[float] | Floats, Sequence[float] | Floats],
    stages: int,
    micro_batches: int,
    uneven: tuple[float, float] = (UNEVEN, UNEVEN),
    sent_s: float = 0.0,
) -> float:
    """Return a lower bound on the time of a step with two chunks per stage, along and back.

    ``work_s`` is a lower bound on its time on one stage in which operations take their least times;
    ``uneven`` are chunks by which the cut may differ from an even one, as of
    :func:`uneven_chunks`. The rest is as in :func:`least_time_s`. ``O(stages log places)``.
    """
    forward_s, all_s = (np.concatenate([[0.0], np.cumsum(own)]) for own in place_s)
    chunk, stage, (early, late) = np.arange(2 * stages), np.arange(stages), uneven

    def passed_s(chunks: npt.NDArray[np.floating], side: Literal["left", "right"]) -> Floats:
        """Return the forward time before the place until which some chunks of time pass."""
        until_s = np.clip(chunks / len(chunk), 0, 1) * all_s[-1]
        if side == "left":
            places = np.searchsorted(all_s, until_s * (1 - _TINY), "left")
        else:
            places = np.searchsorted(all_s, until_s * (1 + _TINY), "right") - 1
        found: Floats = forward_s[places]
        return found

    begin_s = passed_s(chunk - early, "left")
    first_s = begin_s[:stages] + sent_s * stage
    # Between the two chunks of the last stage nothing is sent.
    second_s = begin_s[: stages - 1 : -1] + sent_s * (2 * stages - 2 - stage)
    own_s = micro_batches * passed_s(stage[1:] + late, "right")
    gain_s = np.cumsum(second_s - first_s)[:-1] - own_s
    return float(work_s + first_s.sum() + gain_s.max(initial=0.0)) / stages


def least_interval_s(work_s: float, place_s: Floats, stages: int, overhead_s: float = 0.0) -> float:
    """Return a lower bound on the interval between the results of a stream of inputs.

    ``work_s`` is a lower bound on the time of one input on one stage, ``place_s`` are lower bounds
    on the time of each place. Each stage runs a graph, which takes ``overhead_s`` more.
    ``O(places stages)``.
    """
    return max(work_s / stages, least_slowest_s(place_s, stages)) + overhead_s


def least_shared_s(place_s: Sequence[Floats], stages: Sequence[int], chunks: int = 1) -> float:
    """Return a lower bound on the time of the slowest stage of unlike groups.

    ``place_s`` has a row for each group, with the least time of each place; ``stages`` is the
    number of stages of each group, and ``chunks`` the number of chunks of each stage. Weights near
    an even share of the work are tried. ``O(places chunks)``.
    """
    until_s = np.concatenate([np.zeros((len(stages), 1)), np.cumsum(place_s, axis=1)], axis=1)
    counts, ranges = np.array(stages, float), len(stages) * chunks

    def bound_s(weights: Floats) -> float:
        return _least_sum_s(weights[:, None] * until_s, ranges) / float((weights * counts).sum())

    best = 1 / until_s[:, -1].clip(_TINY_S)
    best_s = bound_s(best)
    for group in range(1, len(stages)):
        start = best
        for factor in np.geomspace(1 / _FURTHEST, _FURTHEST, _WEIGHTS):
            tried = start.copy()
            tried[group] *= factor
            if (tried_s := bound_s(tried)) > best_s:
                best_s, best = tried_s, tried
    return best_s


def _least_sum_s(until_s: Floats, ranges: int) -> float:
    """Return the least sum of all places, if at most ``ranges`` in a row have a group each.

    ``until_s`` has the time until each place for each group.
    """
    reached_s = until_s
    for _ in range(1, ranges):
        begin_s = reached_s.min(axis=0)
        reached_s = np.minimum.accumulate(begin_s - until_s, axis=1) + until_s
    return float(reached_s[:, -1].min())


def uneven_chunks(place_s: Floats, cuts: Sequence[int], stages: int) -> tuple[float, float]:
    """Return by how many chunks a cut differs from an even one.

    That is, the most by which a chunk begins before, and by which a stage begins after it; 0 if
    none does. ``place_s`` has the least time of each place for a micro-batch, in all.
    """
    until_s, count = np.cumsum(place_s), len(cuts) + 1
    begun = count * until_s[np.array(cuts, int) - 1] / until_s[-1]
    before = np.arange(1, count) - begun
    early, late = before.max(initial=0.0), -before[:stages].min(initial=0.0)
    return float(early), float(late)


def least_sent_s(graph: Graph, meshes: Iterable[Mesh], device: Device, stages: int) -> float:
    """Return the least time of a transfer to the next chunk, for one micro-batch.

    Each rank of a stage sends at least its part of the values that pass. A chunk has a first read
    of a parameter, and so has the rest of the step.
    """
    order = order_of(graph)
    sizes, whole = np.zeros(len(graph.values), np.int64), Layout.replicated(_ONE)
    for number in order.made_values:
        sizes[number] = tensor_bytes(graph.values[number].info, whole, _ONE)
    passing = order.passing(sizes)
    first, *_, last = order.first_reads
    least = int(passing[first + 1 : last + 1].min())
    links = ((mesh.size, stage_link(device, stages, mesh.shape)) for mesh in meshes)
    return min(link.send_s(least / size) for size, link in links)


def least_place_s(graph: Graph, meshes: Iterable[Mesh], device: Device) -> tuple[Floats, Floats]:
    """Return the least time of each place for one micro-batch: forward, and in all.

    The least over all strategies on all meshes. Leaves out communication, recomputation and the
    update. Linear in the nodes, and in the strategies of different operations.
    """
    order, classes = order_of(graph), dict[tuple[int, int], list[int]]()
    for index, node in enumerate(graph.nodes):
        if not isinstance(node, Op) or node.constant or node.passes:
            continue
        if not graph.trains or node.phase in ("forward", "backward"):
            classes.setdefault((id(node.info), id(node.rule)), []).append(index)
    run_s = np.zeros(len(graph.nodes))
    costs = [NodeCosts(graph, mesh, device) for mesh in meshes]
    for own in classes.values():
        op = graph.op(own[0])
        run_s[own] = min(
            each.op_time_s(op, strategy)
            for each in costs
            for strategy in op_options(op.rule, len(op.operands), each.mesh, graph.samples)
        )
        fused = [index for index in own if any(each.is_fused(graph.nodes[index]) for each in costs)]
        run_s[fused] = 0.0
    return order.place_sums(run_s)
