"""The state of a rank on a CUDA device: one block, from which other ranks copy boxes.

They open it by CUDA IPC. If that fails, for example between devices without peer access, the state
is copied through host memory, and the switch reports the reason.
"""

from __future__ import annotations

import math
import os
import select
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from tensoropt.elastic.generation.memory import Move, Source, Way
from tensoropt.elastic.generation.places import Place, places_of, size_of
from tensoropt.runtime.device import cudart
from tensoropt.runtime.device.blocks import DeviceBlock, Opened, Pinned, Stream
from tensoropt.runtime.device.cuda import CudaProvider
from tensoropt.runtime.device.provider import PlacedArray
from tensoropt.runtime.device.strided import Part, strided_copies
from tensoropt.runtime.support.arena import Arena, Block, address_of, map_block
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["CudaMemory"]

_OWN, _OTHER, _HOST = 0.0, 1.0, 2.0  # distances


class CudaMemory:
    """A `StateMemory` on the device of ``provider``. Raises `UserError` if it does not fit."""

    def __init__(self, plan: TrainingPlan, rank: int, provider: CudaProvider) -> None:
        self._provider, self._places = provider, places_of(plan, rank)
        self._block = provider.block(size_of(plan, rank))
        self._staging = Arena("state", self._block.size)  # uses no memory before it is written
        self._gpu = cudart.uuid(provider.number)
        self._facts = replace(self._staging.block, device=self._device())
        self._stream = Stream()
        self._pinned: list[Pinned] = []
        self._arrays = {
            name: provider.array_in(self._block, place.start, place.shape, place.dtype)
            for name, place in self._places.items()
        }

    def arrays(self) -> Mapping[str, PlacedArray]:
        return self._arrays

    def block(self) -> Block:
        return self._facts

    def _device(self) -> dict[str, str]:
        try:
            return {"gpu": self._gpu, "handle": self._block.handle().hex()}
        except UserError as error:
            return {"gpu": self._gpu, "why": str(error)}

    def publish(self) -> None:
        staging, block = address_of(self._staging.memory), self._block
        self._stream.copy(staging, block.address, block.size)
        self._stream.wait()

    def open(self, blocks: Sequence[Block | None], plan: TrainingPlan) -> Source:
        found = [None if block is None else _OpenBlock(block, self._gpu) for block in blocks]
        stages = [plan.stage(rank) for rank in range(len(found))]
        places = {stage: places_of(plan, stages.index(stage)) for stage in {*stages}}
        theirs = [places[stage] for stage in stages]
        return _CudaSource(self._block, self._places, found, theirs)

    def arena(self, name: str, size: int) -> Arena:
        """Return pinned memory, which the device can write during the next step."""
        arena = Arena(name, size)
        arena.touch()
        self._pinned.append(Pinned(address_of(arena.memory), arena.block.size))
        return arena

    def save(self, names: Iterable[str], into: Mapping[str, Array]) -> None:
        cudart.use_device(self._provider.number)  # the current device is per thread
        for name in names:
            array = self._arrays[name]
            self._stream.copy(into[name].ctypes.data, array.address, array.nbytes)
        self._stream.wait()


class _OpenBlock:
    """One rank's block, opened at ``address``: on a device, or else in host memory.

    ``distance`` is `_OWN` for this rank's device, `_OTHER` for another device, else `_HOST`.
    """

    def __init__(self, block: Block, own_gpu: str) -> None:
        self.pid = block.pid
        self.why: str | None = None
        self._process: int | None = None
        self._on_device = self._open_on_device(block)
        if self._on_device is not None:
            assert block.device is not None
            self.address = self._on_device.address
            self.distance = _OWN if block.device["gpu"] == own_gpu else _OTHER
        else:
            self._memory = map_block(block)
            self.address, self.distance = address_of(self._memory), _HOST

    def _open_on_device(self, block: Block) -> Opened | None:
        if block.device is None:
            return None
        self.why = block.device.get("why")
        if self.why is not None:
            return None
        try:
            found = Opened(bytes.fromhex(block.device["handle"]))
            self._process = os.pidfd_open(block.pid)
            return found
        except OSError:
            return None  # the process has ended; mapping its memory will report that
        except UserError as error:
            self.why = f"GPU {block.device['gpu']}: {error}"
            return None

    def check(self) -> None:
        """Raise `UserError` if the owner has ended: data read from its memory may be invalid."""
        if self._process is not None and select.select([self._process], [], [], 0)[0]:
            raise UserError(f"process {self.pid} ended while its state was read")

    def close(self) -> None:
        if self._on_device is not None:
            self._on_device.close()
        if self._process is not None:
            os.close(self._process)


class _CudaSource:
    """A `Source` that copies from blocks on devices or the host to this rank's device."""

    def __init__(
        self,
        into: DeviceBlock,
        places: Mapping[str, Place],
        found: Sequence[_OpenBlock | None],
        their_places: Sequence[Mapping[str, Place]],
    ) -> None:
        self._into, self._places = into, places
        self._found, self._their_places = found, their_places
        self._here = [block for block in found if block is not None]
        on_host = any(block.distance == _HOST for block in self._here)
        self.moved_by: Way = "host" if on_host else "device"
        self.why = next((block.why for block in self._here if block.why is not None), None)

    def distance(self, holder: int) -> float:
        block = self._found[holder]
        return math.inf if block is None else block.distance

    def prepare(self, moves: Sequence[Move], threads: int) -> Callable[[], None]:
        def copy() -> None:
            stream = Stream()
            for move in moves:
                self._begin(move, stream)
            stream.wait()
            stream.close()
            for block in self._here:
                block.check()

        return copy

    def _begin(self, move: Move, stream: Stream) -> None:
        ours, theirs = self._places[move.name], self._their_places[move.piece.holder][move.name]
        to = self._into.address + ours.start
        holder = self._found[move.piece.holder]
        assert holder is not None, f"rank {move.piece.holder} has no block here"
        parts = (
            Part.from_box(ours.shape, move.piece.mine),
            Part.from_box(theirs.shape, move.piece.theirs),
        )
        for box in strided_copies(*parts, ours.dtype.itemsize):
            stream.copy_box(to, holder.address + theirs.start, box)

    def close(self) -> None:
        with suppress(UserError):  # the owner may have ended
            for block in self._here:
                block.close()
