"""Recorded calls held against graphs and each other, of many plans or of a sample."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stand_ins import calls, communication
from wanted import Step, communicators, disagreement

__all__ = ["FULL", "check_calls", "check_together", "disorder"]

FULL = os.environ.get("TENSOROPT_NCCL_CHECK") == "1"
"""Set by `make test` and `make nccl-check`; without it, a sample is enough."""


def check_calls(log: Path, rank: int, wanted: Sequence[Step]) -> None:
    """Assert that all that a rank called is what ``wanted`` asks for, on one stream."""
    called = calls(log, rank)
    assert disagreement(wanted, called, rank) == ""
    made = [call["world"] for call in called if call["call"] == "ncclCommInitRank"]
    assert made == communicators(wanted)
    assert len({call["stream"] for call in communication(log, rank)}) <= 1
    assert not [call for call in called if call["call"] == "error"]


def check_together(log: Path, ranks: int) -> None:
    """Assert that the members of a communicator call the same collectives in the same order.

    What one sends, the other awaits, in the same order and size.
    """
    alike = defaultdict(list)
    messages = defaultdict(list)
    for rank in range(ranks):
        for call in communication(log, rank):
            world = tuple(call["world"])
            what = call["call"], call["count"], call["type"], call.get("op")
            if call["call"] in ("ncclSend", "ncclRecv"):
                pair = rank, world[call["peer"]]
                ends = pair if call["call"] == "ncclSend" else pair[::-1]
                messages[world, ends, call["call"]].append(what[1:])
            else:
                alike[world, rank].append(what)
    for (world, _), own in alike.items():
        assert own == alike[world, world[0]]
    for (world, ends, _), sizes in messages.items():
        assert sizes == messages[world, ends, "ncclSend"] == messages[world, ends, "ncclRecv"]


def disorder(made: Sequence[dict[str, Any]], side: int) -> str:
    """Return what is called on the stream of transfers before it waits for the one that computes,
    or on that one, of the group, before it waits for the transfer."""
    has_begun, is_behind = False, True
    for call in made:
        name, stream = call["call"], call.get("stream")
        if name == "cudaStreamWaitEvent" and stream == side:
            has_begun, is_behind = True, False
        elif name == "cudaStreamWaitEvent":
            is_behind = True
        elif name == "cudaEventRecord" and stream == side:
            has_begun = False
        elif name.startswith("nccl") and stream == side and not has_begun:
            return f"{name} without what it reads"
        elif name.startswith("nccl") and stream not in (None, side) and not is_behind:
            return f"{name} before a transfer that was started first"
    return ""
