from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

class Step:
    def __init__(
        self,
        times_s: npt.NDArray[np.float64],
        sizes: npt.NDArray[np.int64],
        places: Sequence[int],
        reads: Sequence[Sequence[int]],
        stages: int,
        micro_batches: int,
        splits_weights: bool,
    ) -> None: ...

class Numbers:
    def __init__(self, by_stage: Sequence[Sequence[int]]) -> None: ...
    @property
    def by_stage(self) -> list[list[int]]: ...

def generate(
    step: Step,
    in_turns: bool,
    passes: Sequence[int],
    lead: Sequence[int],
    room: Sequence[float],
    counts: Sequence[int],
    early: Sequence[float],
    late: Sequence[float],
) -> Numbers: ...
def run(step: Step, numbers: Numbers) -> tuple[list[float], list[int]]: ...
