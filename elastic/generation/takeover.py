"""Takeover of another generation's state: box by box, from its memory into this rank's.

All preparation happens before the other generation pauses, so it is paused only for the copies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensoropt.elastic.generation.memory import Move, StateMemory
from tensoropt.elastic.generation.parts import pieces_to_take
from tensoropt.elastic.generation.places import size_of
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.arena import Block
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.plan import TrainingPlan
from tensoropt.runtime.training.state import Held

__all__ = ["Takeover"]

_NODE = 4.0  # farther than any memory of the same machine


class Takeover:
    """The prepared copies of another generation's state into this rank's.

    ``facts`` come from the coordinator: the plan's folder, and a block and a distance per rank. A
    block is None if this rank takes nothing from it. Raises `UserError` if a block cannot be read,
    or the states differ.
    """

    def __init__(
        self, facts: Mapping[str, Any], held: Held, memory: StateMemory, threads: int
    ) -> None:
        self.facts = facts
        plan = TrainingPlan.from_plan(Plan.read(facts["plan"]))
        blocks = [None if block is None else Block(**block) for block in facts["blocks"]]
        small = (b and b.size < size_of(plan, rank) for rank, b in enumerate(blocks))
        if len(blocks) != plan.plan.ranks or any(small):
            raise UserError(f"{Path(facts['plan']).name}: not the plan of {len(blocks)} blocks")
        self.source = memory.open(blocks, plan)
        # First by the distance of the node, then of the memory on it.
        nodes = enumerate(facts["distances"])
        distances = [_NODE * far + self.source.distance(rank) for rank, far in nodes]
        found = pieces_to_take(plan, held.plan, held.rank, distances)
        moves = [Move(name, piece) for name, piece in found]
        self.bytes = 0
        for move in moves:
            count = math.prod(side.stop - side.start for side in move.piece.mine)
            self.bytes += count * held.state[move.name].dtype.itemsize
        self._copy = self.source.prepare(moves, threads)

    def run(self) -> None:
        """Copy each byte once, and release the blocks. Raises `UserError`.

        Gradients are not cleared: the first step overwrites them.
        """
        self._copy()
        self.source.close()
