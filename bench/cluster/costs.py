"""What it costs to change the devices of a job, in seconds in which all of its devices stand still.

The defaults are medians of `python bench/elasticity stalls large` on two shared cores: twelve
kinds of switches of a CNN and GPT-2, of states of 3 MB to 1 GB ("Elastic jobs" in the benchmarks).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LITERATURE_S", "STALL_S", "STOP_RESUME_S", "Costs", "settings"]

STALL_S = 0.1
"""Of a switch between plans while the job runs on. Growing an MPI world alone stalls 0.01 to 0.13 s
where it is prepared; the state has to be handed over as well."""

STOP_RESUME_S = 3.4
"""Of stopping a job and starting it again from its checkpoint: processes, imports, sessions."""

LITERATURE_S = 30.0
"""What simulations take for a change by checkpoint (Pollux, OSDI 2021, section 5.3)."""


@dataclass(frozen=True)
class Costs:
    """``switch_s`` is paid where a job changes its devices while it has some, if its policy is
    elastic; ``resume_s`` where it was stopped before, or its policy is not."""

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
