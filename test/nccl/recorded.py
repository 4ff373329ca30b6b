"""Recorded calls held against graphs; and whether to hold those of many plans or of a sample."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from stand_ins import calls, communication
from wanted import Step, communicators, disagreement

__all__ = ["FULL", "check_calls"]

FULL = os.environ.get("TENSOROPT_NCCL_CHECK") == "1"
"""Set by `make nccl-check`."""


def check_calls(log: Path, rank: int, wanted: Sequence[Step]) -> None:
    """Assert that all that a rank called is what ``wanted`` asks for, on one stream."""
    called = calls(log, rank)
    assert disagreement(wanted, called, rank) == ""
    made = [call["world"] for call in called if call["call"] == "ncclCommInitRank"]
    assert made == communicators(wanted)
    assert len({call["stream"] for call in communication(log, rank)}) <= 1
    assert not [call for call in called if call["call"] == "error"]
