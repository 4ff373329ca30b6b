"""Failures that are waited for, and failures that end a job."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tensoropt.elastic.coordinator.persistence import NoRoomError, unwritten
from tensoropt.elastic.coordinator.recovery import Recovery


@pytest.mark.parametrize(
    ("number", "waits"), [(errno.ENOSPC, True), (errno.EROFS, True), (errno.EMFILE, False)]
)
def test_only_a_disk_without_room_is_waited_for(number: int, waits: bool) -> None:
    error = unwritten(Path("file"), OSError(number, os.strerror(number)))
    assert isinstance(error, NoRoomError) == waits


@pytest.mark.parametrize(
    ("step", "why", "ends"),
    [
        (5, "rank 1 of 2: no sample from <object at 0x7f20>", True),  # at another address
        (6, "rank 1 of 2: no sample from <object at 0x7f20>", False),
        (5, "rank 1 of 2: no other sample", False),
        (5, "rank 1 of 2 was killed by SIGKILL", False),
    ],
)
def test_an_error_that_repeats_after_a_step_ends_the_job(step: int, why: str, ends: bool) -> None:
    ended: list[str] = []
    job = SimpleNamespace(
        step=5,
        stops=False,
        crashes=SimpleNamespace(in_training=set()),
        finish=lambda state, text: ended.append(f"{state}: {text}"),
    )
    recovery = Recovery(job, SimpleNamespace())  # type: ignore[arg-type]
    assert not recovery._fails_again("rank 0 of 2: no sample from <object at 0x7f10>")
    job.step = step
    assert recovery._fails_again(why) == ends
    assert ended == ([f"failed: {why} (twice, after step 5)"] if ends else [])
