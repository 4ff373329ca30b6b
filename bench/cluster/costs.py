"""Costs of changing the devices of a job, in seconds that all of its devices stall.

The defaults are medians of `python bench/elasticity stalls large` on two shared cores: twelve kinds
of switches of a CNN and GPT-2, with states of 3 MB to 1 GB ("Elastic jobs" in the benchmarks).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LITERATURE_S", "STALL_S", "STOP_RESUME_S", "Costs", "settings"]

STALL_S = 0.1
"""Seconds of a switch between plans while the job runs.

Growing an MPI world alone stalls 0.01 to 0.13 s after preparation; the state must be moved too.
"""

STOP_RESUME_S = 3.4
"""Seconds to stop and restart a job from its checkpoint: processes, imports, sessions."""

LITERATURE_S = 30.0
"""Seconds of a change by checkpoint in published simulations (Pollux, OSDI 2021, section 5.3)."""


@dataclass(frozen=True)
class Costs:
    """Costs of a change of devices.

    ``switch_s`` applies to a running job of an elastic policy; ``resume_s`` to a job that was
    stopped before, or of an inelastic policy.
    """

    name: str
    switch_s: float
    resume_s: float


def settings(stall_s: float, stop_resume_s: float) -> list[Costs]:
    """Return the three settings of the study."""
    return [
        Costs("stall", stall_s, stop_resume_s),
        Costs("stop-resume", stop_resume_s, stop_resume_s),
        Costs("literature", LITERATURE_S, LITERATURE_S),
    ]
