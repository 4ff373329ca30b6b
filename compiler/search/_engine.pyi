from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import numpy.typing as npt

_Table = npt.NDArray[np.float64]

class TooLargeError(Exception): ...
class StoppedError(Exception): ...

class Frontier(TypedDict):
    choices: npt.NDArray[np.int32]
    epsilon: float
    time_epsilon: float
    lines: _Table
    supported: int
    hull_epsilon: float
    gaps: int
    open_gaps: int
    short_of_memory: bool
    interrupted: bool

class Engine:
    def __init__(self) -> None: ...
    def add_table(self, time: _Table, static: _Table | None, transient: _Table | None) -> int: ...
    def add_node(self, table: int) -> None: ...
    def add_edge(self, a: int, b: int, table: int) -> None: ...
    def prepare(
        self,
        always_share: bool,
        budget_bytes: float,
        numbers_only: bool,
        order: Sequence[int],
        threads: int,
    ) -> bool: ...
    def widest(self) -> int: ...
    def steps(self) -> tuple[int, int]: ...
    def work(self) -> float: ...
    def min_time(self, last_limit_s: float = ...) -> npt.NDArray[np.int32] | None: ...
    def frontier(
        self,
        epsilon: float,
        time_limit_s: float,
        threads: int,
        direct_sums: float,
        box_sums: float,
        line_sums: float,
        hull_only: bool,
        forgive: bool,
        last_limit_s: float = ...,
        grace_s: float = ...,
        watch: object | None = None,
        known: _Table | None = None,
        lines: _Table | None = None,
    ) -> Frontier: ...

class Multipliers:
    def copy(self) -> Multipliers: ...

class LineBounds:
    def __init__(self, sizes: Sequence[int]) -> None: ...
    def add_time(self, a: int, b: int, values: _Table) -> None: ...
    def add_static(self, a: int, b: int, values: _Table) -> None: ...
    def add_moment(self, factors: Sequence[tuple[int, int, _Table]]) -> None: ...
    def connect(self, ranks: Sequence[float]) -> None: ...
    def start(self, time_weight: float) -> Multipliers: ...
    def ascend(
        self,
        at: Multipliers,
        time: float,
        memory: float,
        enough: float,
        turns: bool,
        steps: int,
        sweeps: int,
        limit_s: float,
    ) -> tuple[float, float, npt.NDArray[np.int32]]: ...
    def mixtures(
        self,
        at: Multipliers,
        choices: Sequence[Sequence[int]],
        time: float,
        memory: float,
        epsilon: float,
        limit_s: float,
    ) -> npt.NDArray[np.int32]: ...
    def sums(self, choice: Sequence[int]) -> tuple[float, float, float]: ...
