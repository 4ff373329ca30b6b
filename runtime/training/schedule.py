"""Scalars that change with the step: the learning rate, the loss scale and the seed."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["LossScale", "learning_rate", "seed_of"]

_START, _GROWTH_STEPS = 65536.0, 2000  # as in torch.amp.GradScaler
_LEAST, _MOST = 2.0**-14, 2.0**24


def learning_rate(
    step: int, peak: float, warmup: int, schedule: str, total: int, least: float = 0.0
) -> float:
    """Return the learning rate of ``step``, counted from 1.

    The rate rises linearly over ``warmup`` steps and is ``peak`` in the next step. Unless it is
    constant, it then falls linearly, or along half a cosine (Loshchilov and Hutter, arXiv
    1608.03983, without restarts), to ``least`` in the step after ``total``.
    """
    done = step - 1
    if done < warmup:
        return peak * step / warmup
    if schedule == "constant":
        return peak
    part = min(1.0, (done - warmup) / max(1, total - warmup))
    left = 1.0 - part if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * part))
    return least + (peak - least) * left


def seed_of(seed: int, step: int, micro_batch: int) -> int:
    """Return the seed of one run of the first graph, from 0 to 2^31 - 1, drawn for each run."""
    state = np.random.SeedSequence([seed, step, micro_batch]).generate_state(1)
    return int(state[0] >> 1)


class LossScale:
    """Factor of the loss that keeps small gradients from vanishing in float16.

    It starts at 65536. Unless ``fixed``, it is halved after a step with overflowing gradients, and
    doubled after 2000 consecutive steps without (Micikevicius et al., arXiv 1710.03740, section
    3.2).
    """

    def __init__(self, fixed: float | None = None) -> None:
        self.fixed = fixed is not None
        self.value = _START if fixed is None else fixed
        self.good = 0

    def overflowed(self) -> bool:
        """Record an overflow; returns whether the scale was reduced, so that training continues."""
        self.good = 0
        if self.fixed or self.value <= _LEAST:
            return False
        self.value /= 2
        return True

    def count_good_step(self) -> None:
        """Record a step without an overflow."""
        self.good += 1
        if not self.fixed and self.good >= _GROWTH_STEPS:
            self.value, self.good = min(2 * self.value, _MOST), 0
