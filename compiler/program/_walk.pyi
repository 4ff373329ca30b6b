from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

class Program:
    def __init__(
        self,
        flags: npt.NDArray[np.uint8],
        operands_begin: npt.NDArray[np.int32],
        operands: npt.NDArray[np.int32],
        constant: npt.NDArray[np.int32],
        results_begin: npt.NDArray[np.int32],
        results: npt.NDArray[np.int32],
        stays: npt.NDArray[np.uint8],
        alike: npt.NDArray[np.int32],
        folded: npt.NDArray[np.uint8],
        awaits: npt.NDArray[np.int32],
        last: int,
        handed: npt.NDArray[np.int32],
        views: int,
        batches: float,
    ) -> None: ...

_Cost = tuple[float, float, int, int, float, float, bool]

_CollectiveTime = tuple[list[tuple[float, float]], bool, float, float]

# ``Strategy`` of ``walk/walk.hpp``: seconds of compute and of collectives inside; static bytes, and
# bytes while it runs; layouts and bytes of operands, then of results; filled operands with the
# bytes of their copies, masks with their bytes; operands updated in place, with seconds.
_StrategyCost: TypeAlias = tuple[
    float,
    float,
    int,
    int,
    list[int],
    list[int],
    list[int],
    list[int],
    list[tuple[int, int]],
    list[tuple[int, int]],
    list[tuple[int, float]],
]

# ``Path::Step`` of ``walk/walk.hpp``: the layout and bytes after a step, the key of its
# collective, the bytes of one rank's part, its time, and its effect on operands under overlap.
_PathStep: TypeAlias = tuple[int, int, int, float, float, int]

class _Costing(Protocol):
    def strategy(self, position: int, picked: int) -> _StrategyCost: ...
    def path(self, value: int, source: int, target: int) -> tuple[float, list[_PathStep]]: ...
    def tree(self, value: int, source: int, targets: list[int]) -> list[tuple[int, int]]: ...
    def collective(self, key: int) -> _CollectiveTime: ...

class Images:
    def __init__(self, nodes: npt.NDArray[np.uint16], values: npt.NDArray[np.uint8]) -> None: ...

class Overlapping:
    def __init__(
        self, start_s: float, share: float, copied_s_per_byte: float, keeps_peak: bool
    ) -> None: ...

class Tasks:
    def __init__(
        self,
        key: Sequence[int],
        bytes: Sequence[float],
        part: Sequence[int],
        reads: Sequence[Sequence[int]],
        makes: Sequence[Sequence[int]],
        after: Sequence[Sequence[int]],
        size: Sequence[int],
        given: Sequence[int],
        compute_s: Sequence[float],
        sent_s: Sequence[float],
        beside: Sequence[int],
        lands: Sequence[int],
    ) -> None: ...

def join(
    tasks: Tasks, times: list[_CollectiveTime], how: Overlapping
) -> tuple[list[int], list[int]]: ...
def overlap(
    tasks: Tasks, group: Sequence[int], times: list[_CollectiveTime], how: Overlapping
) -> tuple[list[tuple[int, int]], float]: ...
def touched_bytes(lives: npt.NDArray[np.int64], expected: int) -> int: ...

class Walk:
    def __init__(
        self, program: Program, kinds: npt.NDArray[np.int32], how: Overlapping
    ) -> None: ...
    def run(
        self,
        costing: _Costing,
        assignment: npt.NDArray[np.int32],
        compute_s: float,
        update_s: float,
        joins: bool,
    ) -> _Cost: ...
    def arena(
        self, costing: _Costing, assignment: npt.NDArray[np.int32], images: Images
    ) -> tuple[int, int, int, int]: ...
    def record(
        self,
        costing: _Costing,
        assignment: npt.NDArray[np.int32],
        compute_s: float,
        update_s: float,
        joins: bool,
        overlaps: bool,
    ) -> tuple[
        _Cost,
        npt.NDArray[np.int32],
        npt.NDArray[np.int64],
        list[int],
        list[int],
        list[float],
        list[int],
    ]: ...
    def hidden(
        self,
        costing: _Costing,
        assignment: npt.NDArray[np.int32],
        graph_of: npt.NDArray[np.int32],
        graphs: int,
    ) -> list[tuple[float, int]]: ...
