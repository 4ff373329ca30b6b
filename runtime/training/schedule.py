"""Numbers that change from step to step: the learning rate, the loss scale, the seed."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["LossScale", "learning_rate", "seed_of"]

_START, _GROWTH_STEPS = 65536.0, 2000  # torch.amp.GradScaler's
_LEAST, _MOST = 2.0**-14, 2.0**24


def learning_rate(step: int, peak: float, warmup: int, schedule: str, total: int) -> float:
    """Return the rate of ``step``, counted from 1.

    It rises linearly over ``warmup`` steps, is ``peak`` in the first step after them, and would
    reach 0 in the step after ``total`` (linearly, or along half a cosine: Loshchilov and Hutter,
    arXiv 1608.03983, without restarts), unless it is constant.
    """
    done = step - 1
    if done < warmup:
        return peak * step / warmup
    if schedule == "constant":
        return peak
    part = min(1.0, (done - warmup) / max(1, total - warmup))
    return peak * (1.0 - part if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * part)))


def seed_of(seed: int, step: int, micro_batch: int) -> int:
    """Return the seed of one run of the first graph: another in each, from 0 to 2^31 - 1."""
    state = np.random.SeedSequence([seed, step, micro_batch]).generate_state(1)
    return int(state[0] >> 1)


class LossScale:
    """What the loss is multiplied with, so that small gradients do not vanish in float16.

    It starts at 65536, is halved by a step whose gradients overflow, and doubled after 2000 steps
    in a row that did not (Micikevicius et al., arXiv 1710.03740, section 3.2); unless ``fixed``.
    """

    def __init__(self, fixed: float | None = None) -> None:
        self.fixed = fixed is not None
        self.value = _START if fixed is None else fixed
        self.good = 0

    def overflowed(self) -> bool:
        """Take note of an overflow; returns whether a smaller scale is worth a try."""
        self.good = 0
        if self.fixed or self.value <= _LEAST:
            return False
        self.value /= 2
        return True

    def held(self) -> None:
        """Take note of a step without an overflow."""
        self.good += 1
        if not self.fixed and self.good >= _GROWTH_STEPS:
            self.value, self.good = min(2 * self.value, _MOST), 0
